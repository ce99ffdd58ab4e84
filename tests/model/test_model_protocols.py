"""Is every fact about a protocol true, complete, and where everything else looks for it?"""

import ast
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from crescendo.calibrate.registry import calibrated_protocols, null_server_of
from crescendo.load.protocols.registry import driver_of
from crescendo.model.address import AddressOptions
from crescendo.model.errors import ConfigError
from crescendo.model.protocols import (
    AMQP10,
    MLMQ,
    MQTT,
    OWN,
    MessagingProtocol,
    default_port,
    known_protocols,
    protocol_of,
    protocol_of_scheme,
    secure_schemes,
)
from crescendo.model.workload import Settle
from protocol_plugin import install_protocol

SOURCE = Path(__file__).parents[2] / "src" / "crescendo"
protocols = pytest.mark.parametrize("protocol", OWN.values(), ids=OWN)


@protocols
@pytest.mark.parametrize("role", ["sender", "receiver"])
def test_every_protocol_has_a_driver_for_both_roles(protocol: MessagingProtocol, role: str) -> None:
    driver = driver_of(protocol.name, role)
    assert list(inspect.signature(driver).parameters)[:2] == ["url", "group"]


@protocols
def test_every_protocol_uses_the_words_of_the_model(protocol: MessagingProtocol) -> None:
    assert set(protocol.address_options) <= set(AddressOptions.__struct_fields__)
    assert set(protocol.settle) <= set(Settle)
    assert ("ack" in protocol.address_options) == bool(protocol.acks)
    assert ("priority" in protocol.address_options) == (protocol.priorities is not None)
    assert (protocol.secure_scheme is None) == (protocol.secure_port is None)


def test_no_two_protocols_share_a_scheme() -> None:
    schemes = [scheme for protocol in OWN.values() for scheme in protocol.schemes]
    assert len(schemes) == len(set(schemes))
    assert all(
        default_port(scheme) == protocol.schemes[scheme] for protocol in OWN.values() for scheme in protocol.schemes
    )


def test_a_scheme_leads_to_its_protocol_plain_or_over_tls() -> None:
    assert protocol_of_scheme("amqp") is protocol_of_scheme("amqps") is AMQP10
    assert secure_schemes()["mqtt"] == "mqtts"
    assert MLMQ.scheme not in secure_schemes()
    assert protocol_of_scheme("http") is None
    with pytest.raises(ConfigError, match="http://; known: amqp, amqps"):
        default_port("http")


def test_an_unknown_protocol_is_one_sentence_with_the_known_ones() -> None:
    with pytest.raises(
        ConfigError, match="'jms' is not available; known: amqp10, amqp091, stomp, mqtt, openwire, core, mlmq"
    ):
        protocol_of("jms")


def test_the_documentation_lists_the_options_that_each_protocol_supports() -> None:
    text = (SOURCE.parents[1] / "docs" / "experiment.md").read_text(encoding="utf-8")
    table = text[text.index("| option | what |") :].partition("\n\n")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert rows[0][2:] == list(OWN)
    documented = {
        (protocol, row[0].strip("`"))
        for row in rows[2:]
        for protocol, cell in zip(OWN, row[2:], strict=True)
        if cell not in {"", "always"}  # always so, without an option
    }
    assert documented == {(name, option) for name, protocol in OWN.items() for option in protocol.address_options}


def test_null_servers_are_made_for_the_protocols_that_have_one() -> None:
    assert set(calibrated_protocols()) == {name for name, protocol in OWN.items() if protocol.null_server}
    for name in calibrated_protocols():
        assert not null_server_of(name)(64, source=False).begun


def test_no_other_module_lists_the_protocols_or_knows_their_ports() -> None:
    """A literal with three of the names would be a second table, which a new protocol had to be added to."""
    schemes = {scheme for protocol in OWN.values() for scheme in protocol.schemes}
    ports = {port for protocol in OWN.values() for port in protocol.schemes.values()}
    names = sorted({*OWN, *schemes}, key=len, reverse=True)  # "core+ssl" before "core"
    mentioned = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b|\b({'|'.join(map(str, ports))})\b")
    found = []
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        mentions = mentioned.findall(text)
        if path == SOURCE / "model" / "protocols.py" or (
            len({name for name, _ in mentions if name}) < 3 and not any(port for _, port in mentions)
        ):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Dict | ast.List | ast.Set | ast.Tuple):
                parts = node.keys if isinstance(node, ast.Dict) else node.elts
                listed = {part.value for part in parts if isinstance(part, ast.Constant)} & {*OWN, *schemes}
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                listed = set(re.findall(r"([a-z0-9+]+)://", node.value)) & schemes
            else:
                listed = set()
            if len(listed) >= 3 or (isinstance(node, ast.Constant) and node.value in ports):
                found.append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    assert found == []


# -- plugins ---------------------------------------------------------------------------------------------------------

USE = """
from crescendo.load.protocols.registry import driver_of
from crescendo.model.experiment_file import experiment_from
from crescendo.model.protocols import known_protocols

document = {"name": "x", "system": {"url": "toy://host"}, "workload": {"protocol": "toy", "address": "queue://a?ttl=5s"}}
group = experiment_from(document).workload[0]
print(group.protocol, driver_of(group.protocol, "receiver").__module__, list(known_protocols())[-1])
"""


def run_python(code: str, packages: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


def test_another_package_can_offer_a_protocol(tmp_path: Path) -> None:
    install_protocol(tmp_path)
    done = run_python(USE, tmp_path)
    assert (done.stdout.split(), done.stderr) == (["toy", "toy_protocol", "toy"], "")


def test_options_that_the_protocol_of_a_plugin_lacks_are_rejected(tmp_path: Path) -> None:
    install_protocol(tmp_path)
    done = run_python(USE.replace("?ttl=5s", "?qos=1"), tmp_path)
    assert "toy does not support qos; these do: mqtt" in done.stderr


def test_our_own_protocols_win_their_names(tmp_path: Path) -> None:
    install_protocol(tmp_path, name="mqtt")
    done = run_python("from crescendo.model.protocols import *; print(protocol_of('mqtt').port)", tmp_path)
    assert done.stdout.split() == [str(MQTT.port)]


def test_a_broken_plugin_is_reported_and_affects_no_other_protocol(tmp_path: Path) -> None:
    install_protocol(tmp_path, code="raise RuntimeError('broken')")
    done = run_python("from crescendo.model.protocols import *; print(*known_protocols())", tmp_path)
    assert done.stdout.split() == list(OWN)
    assert "broken" in done.stderr
    assert "Traceback" not in done.stderr


def test_known_protocols_are_our_own_where_no_package_offers_one() -> None:
    assert list(known_protocols()) == ["amqp10", "amqp091", "stomp", "mqtt", "openwire", "core", "mlmq"]
