"""Does no manifest, log or error contain the password of a system, in whatever form its files hold it?"""

import html
import json
import string
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crescendo.model.errors import ConfigError
from crescendo.model.experiment_file import experiment_from, to_document
from crescendo.model.protocols import secure_schemes
from crescendo.processes.ref import ProcessRef
from crescendo.systems import secret_forms as module
from crescendo.systems.base import Installation
from crescendo.systems.instance import RunningInstance
from crescendo.systems.instance_dir import move_logs
from crescendo.systems.kinds.node_secret import node_secret
from crescendo.systems.registry import SYSTEMS, system_of
from crescendo.systems.settings import settings_of

MARK = "s3cr3t"  # letters and digits, which survive every escaping
printable = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=10)
passwords = st.tuples(printable, printable).map(lambda parts: f"{parts[0]}{MARK}{parts[1]}")
EVERY_CHARACTER = "".join(character for character in string.printable if character.isprintable() and character != " ")
WITH_PASSWORD = sorted(set(SYSTEMS) - {"qpid-dispatch", "skupper-router", "relay"})  # routers have no users
SEVERAL_NODES = [
    ("activemq", {"failover": "jdbc"}),
    ("activemq", {"failover": "shared-store"}),
    ("artemis", {"failover": "replication"}),
    ("rabbitmq", {"nodes": 3, "queues": ["orders"]}),
]
MODES = [*((name, {}) for name in WITH_PASSWORD), *SEVERAL_NODES]
SOMEWHERE = Installation("9.2.1", Path("/opt/it"), "given", java=Path("/opt/java"), java_version="17")


def planned(name: str, password: str, directory: Path, **given: Any) -> RunningInstance:
    """An instance that was not started."""
    kind = system_of(name)
    chosen = {"database": "postgresql://ada@localhost/it"} if name == "mlmq" else {"user": "ada"}
    checked = settings_of(kind, {**chosen, "password": password, **given})
    ports = {
        port: 7000 + number
        for number, port in enumerate((*kind.ports, *checked.extra_ports, *secure_schemes().values()))
    }
    blueprint = kind.plan(checked, SOMEWHERE, directory, ports)
    instance = RunningInstance(kind, checked, SOMEWHERE, ports, directory, blueprint, None)
    instance.processes += [ProcessRef(launch.name, 1, "then") for launch in blueprint.launches]
    return instance


@pytest.mark.parametrize(("name", "mode"), MODES)
@given(passwords)
@settings(max_examples=25)
def test_what_a_manifest_says_of_a_system_contains_no_secret(name: str, mode: dict[str, Any], password: str) -> None:
    instance = planned(name, password, Path("/instances/one"), **mode)
    shown = json.dumps(instance.facts)
    assert MARK not in shown
    assert node_secret(instance._settings, instance.directory) not in shown
    document = {"name": "x", "system": {"kind": name, "settings": {"password": password, **mode}}, "workload": {}}
    assert MARK not in json.dumps(to_document(experiment_from(document).redacted()))


ENCRYPTED = [(name, {"tls": True}) for name in WITH_PASSWORD if name != "mlmq"]


@pytest.mark.parametrize(("name", "given"), MODES + ENCRYPTED)
def test_every_printable_character_may_be_in_a_password(name: str, given: dict[str, Any]) -> None:
    for password in (EVERY_CHARACTER + MARK, MARK + EVERY_CHARACTER, *(f"{one}{MARK}{one}" for one in EVERY_CHARACTER)):
        facts = planned(name, password, Path("/instances/one"), **given).facts
        assert MARK not in json.dumps(facts)
        assert facts["configuration"] or name == "loopback"


@pytest.mark.parametrize(("name", "mode"), SEVERAL_NODES)
def test_what_nodes_tell_each_other_needs_no_escaping(name: str, mode: dict[str, Any]) -> None:
    """Spring evaluates #{…}, Artemis ${…}: the password of an account is only in files of accounts."""
    files = planned(name, f"#{{1}}${{a:b}}{MARK}", Path("/instances/one"), **mode)._blueprint.files
    assert {Path(path).name for path, text in files.items() if MARK in text} <= {"users.properties", "definitions.json"}


@pytest.mark.parametrize(("name", "mode"), MODES)
@given(passwords)
@settings(max_examples=15)
def test_a_log_that_repeats_the_password_in_any_form_is_quoted_without_it(
    name: str, mode: dict[str, Any], password: str
) -> None:
    instance = planned(name, password, Path("/instances/one"), **mode)
    forms = instance._secret_forms
    logged = [password, quote(password, safe=""), json.dumps(password), html.escape(password), repr(password)]
    logged += [text for path, text in instance._blueprint.files.items() if MARK in text]
    for text in logged:
        assert MARK in text
        assert MARK not in module.redact_text(f"before {text} after", forms)


def test_the_form_in_the_file_of_a_kind_is_found_though_nobody_described_it() -> None:
    forms = planned("qpid-broker-j", "pa$$w0rd", Path("/instances/one"))._secret_forms
    assert "pa$$$$w0rd" in forms  # Broker-J expands $
    assert "a\\=b" in planned("artemis", "a=b", Path("/instances/one"))._secret_forms  # a properties file


def test_kept_logs_contain_no_secret_and_other_logs_are_moved_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CHUNK_BYTES", 7)  # so that secrets lie across chunks
    logs = tmp_path / "it" / "logs"
    logs.mkdir(parents=True)
    (logs / "talkative.log").write_text(f"user=ada pa\nss{MARK} ok pa%0Ass{MARK}\n" * 5 + "the end")
    (logs / "quiet.log").write_bytes(b"\xff\xfe nothing here\n")
    (logs / "empty.log").touch()
    (logs / "trap.log").symlink_to("/etc/passwd")
    move_logs(tmp_path / "it", tmp_path / "kept", (f"pa%0Ass{MARK}", f"pa\nss{MARK}"))
    assert (tmp_path / "kept" / "talkative.log").read_text() == "user=ada *** ok ***\n" * 5 + "the end"
    assert (tmp_path / "kept" / "quiet.log").read_bytes() == b"\xff\xfe nothing here\n"
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["quiet.log", "talkative.log"]


def test_a_refused_password_is_not_repeated() -> None:
    with pytest.raises(ConfigError) as caught:
        planned("artemis", f"two words {MARK}", Path("/instances/one"))
    assert MARK not in str(caught.value)
