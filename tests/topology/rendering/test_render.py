"""Configuration files: the router's template from its schema, and what each program would refuse."""

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from crescendo.model.errors import ConfigError
from crescendo.topology.generate import generate
from crescendo.topology.render import access_from, render
from crescendo.topology.rendered_files import write_files
from crescendo.topology.rendering.access import Access
from crescendo.topology.rendering.router_schema import RouterSchema, find_schema, read_schema, template_of
from crescendo.topology.rendering.routers import fill_router_template
from crescendo.topology.topology_file import load_topology
from networks import SAMPLES, broker, link, network_of, router

SCHEMA_FILE = SAMPLES / "schema" / "qdrouter.json"
USER = Access("user", "secret")


@pytest.fixture(scope="module")
def schema() -> RouterSchema:
    return read_schema(SCHEMA_FILE)


def _parsed(text: str) -> list[tuple[str, dict[str, str]]]:
    """The sections of a router's file, read line by line as its documentation describes them."""
    sections: list[tuple[str, dict[str, str]]] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        if match := re.fullmatch(r"(\w+) \{", line):
            sections.append((match[1], {}))
        elif match := re.fullmatch(r"(\w+): (.+)", line):
            sections[-1][1][match[1]] = match[2]
        else:
            assert line == "}"
    return sections


def test_every_section_of_the_template_is_optional_and_repeatable(schema: RouterSchema) -> None:
    template = template_of(schema)
    assert fill_router_template(template, {}) == "\n"
    for name, section in schema.sections.items():
        entry = {attribute: "1" for attribute, facts in section.attributes.items() if facts.get("type") != "map"}
        text = fill_router_template(template, {name: [entry, entry]})
        assert _parsed(text) == [(name, entry), (name, entry)]


def test_the_template_has_the_sections_of_the_schema_and_no_figures(schema: RouterSchema) -> None:
    """Counted in the schema by hand: what the router reports about itself cannot be configured."""
    assert {"router", "listener", "connector", "address", "linkRoute", "autoLink", "sslProfile", "log"} <= set(
        schema.sections
    )
    assert "allocator" not in schema.sections
    assert "node" not in schema.sections
    assert "acceptedDeliveries" not in schema.sections["router"].attributes
    assert {"prefix", "direction", "dir", "connection"} <= set(schema.sections["linkRoute"].attributes)


def test_a_new_attribute_of_a_new_version_needs_no_code(tmp_path: Path) -> None:
    document = json.loads(SCHEMA_FILE.read_text())
    document["entityTypes"]["router"]["attributes"]["speed"] = {"type": "integer", "create": True}
    document["entityTypes"]["tunnel"] = {"extends": "configurationEntity", "attributes": {"depth": {"create": True}}}
    (tmp_path / "new.json").write_text(json.dumps(document))
    template = template_of(read_schema(tmp_path / "new.json"))
    text = fill_router_template(template, {"router": [{"speed": 9}], "tunnel": [{"depth": 1}, {"depth": 2}]})
    assert _parsed(text) == [("router", {"speed": "9"}), ("tunnel", {"depth": "1"}), ("tunnel", {"depth": "2"})]


def test_nested_settings_of_a_virtual_host_are_written(schema: RouterSchema) -> None:
    groups = {"admin": {"users": "a, b", "maxFrameSize": 7}}
    text = fill_router_template(template_of(schema), {"vhost": [{"hostname": "h", "groups": groups}]})
    assert " ".join(text.split()) == "vhost { hostname: h groups: { admin: { users: a, b maxFrameSize: 7 } } }"


def test_what_was_generated_is_what_the_file_says(schema: RouterSchema) -> None:
    network = generate(load_topology(SAMPLES / "appendix_c.yml"))
    files = render(network, Access(), schema)
    for name in ("router1", "router2"):
        expected = [
            (section, {key: str(value) for key, value in entry.items()})
            for section, entries in network.variables[name].items()
            if section != "machine"
            for entry in entries
        ]
        assert _parsed(files[f"{name}/qdrouterd.conf"]) == expected


def test_skupper_router_has_the_same_sections_in_a_file_of_its_own(tmp_path: Path, schema: RouterSchema) -> None:
    document = {"graph_type": "line", "routers": 2}
    found = {
        program: render(network_of(tmp_path, {**document, "router_program": program}), USER, schema)
        for program in ("qpid-dispatch", "skupper-router")
    }
    assert {path: _parsed(text) for path, text in found["skupper-router"].items()} == {
        path.replace("qdrouterd", "skrouterd"): _parsed(text) for path, text in found["qpid-dispatch"].items()
    }


def test_booleans_are_written_as_the_router_reads_them(tmp_path: Path, schema: RouterSchema) -> None:
    network = network_of(tmp_path, {"nodes": [router("r", router=[{"allowUnsettledMulticast": True}])]})
    assert "    allowUnsettledMulticast: true\n" in render(network, Access(), schema)["r/qdrouterd.conf"]


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"listner": [{"port": 1}]}, "has no section listner; did you mean listener"),
        (
            {"listener": [{"port": 1, "sslprofile": "x"}]},
            r"listener\[0\]: listener has no attribute sslprofile; did you",
        ),
        ({"listener": [{"port": 1, "role": "inter-ruoter"}]}, "did you mean inter-router"),
        ({"listener": [{"port": 1, "cost": "low"}]}, "is not a whole number"),
        ({"linkRoute": [{"prefix": "x"}]}, "needs the attribute direction"),
        ({"router": [{"id": "r"}, {"id": "s"}]}, "only one router section"),
        ({"sslProfile": [{"name": "a\nlistener {", "certFile": "x"}]}, "cannot hold"),
    ],
)
def test_what_the_router_would_refuse_is_refused(
    tmp_path: Path, schema: RouterSchema, section: dict[str, Any], said: str
) -> None:
    network = network_of(tmp_path, {"nodes": [router("r", def_list=False, **section)]})
    with pytest.raises(ConfigError, match=f"node r: .*{said}") as raised:
        render(network, Access(), schema)
    assert "\n" not in str(raised.value)


def test_a_password_is_in_a_file_of_its_own_and_not_in_the_configuration(tmp_path: Path, schema: RouterSchema) -> None:
    network = network_of(tmp_path, {"nodes": [router("r"), broker("b")], "links": [link("r", "b")]})
    files = render(network, USER, schema)
    assert "secret" not in files["r/qdrouterd.conf"]
    assert "saslPassword: file:/etc/qpid-dispatch/broker-password" in files["r/qdrouterd.conf"]
    assert files["r/broker-password"] == "secret"
    for path in write_files(tmp_path / "out", files):
        assert path.stat().st_mode & 0o077 == 0


def test_brokers_refuse_anonymous_clients_by_default(tmp_path: Path) -> None:
    network = network_of(tmp_path, {"nodes": [broker("b")]})
    with pytest.raises(ConfigError, match="--anonymous"):
        access_from(network, None, None, anonymous=False)
    assert access_from(network, None, None, anonymous=True) == Access()


def test_the_schema_of_an_installed_router_is_found(tmp_path: Path) -> None:
    program = tmp_path / "sbin" / "qdrouterd"
    schema_file = tmp_path / "lib" / "qpid-dispatch" / "python" / "qpid_dispatch" / "management" / "qdrouter.json"
    for path in (program, schema_file):
        path.parent.mkdir(parents=True)
        path.touch()
    assert find_schema(program, "qdrouter.json") == schema_file


# -- brokers -----------------------------------------------------------------------------------------------------------


def _files(folder: Path, *programs: str, directed: bool = True, **more: Any) -> dict[str, str]:
    nodes = [broker(name, program=program) for name, program in zip("ab", programs, strict=True)]
    document = {"nodes": nodes, "links": [link("a", "b", **more)], "directed": directed}
    return render(network_of(folder, document), USER)


def _elements(text: str, path: str) -> list[ElementTree.Element]:
    names = {"a": "urn:activemq:core", "m": "http://activemq.apache.org/schema/core"}
    return ElementTree.fromstring(text).findall(path, names)  # noqa: S314 - our own


@pytest.mark.parametrize(
    ("via", "directed", "path"),
    [
        ("bridge", True, ".//a:bridges/a:bridge/a:queue-name"),
        ("amqp-bridge", True, ".//a:amqp-connection/a:bridge/a:bridge-to-queue/a:include"),
        ("federation", True, ".//a:federation/a:local-queue-policy/a:include"),
        ("federation", False, ".//a:federation/a:remote-queue-policy/a:include"),
        ("cluster", False, ".//a:cluster-connection/a:static-connectors/a:connector-ref"),
    ],
)
def test_artemis_brokers_are_joined_in_four_ways(tmp_path: Path, via: str, directed: bool, path: str) -> None:
    files = _files(tmp_path, "artemis", "artemis", directed=directed, via=via, addresses=["orders"])
    found = [len(_elements(files[f"{name}/etc/broker.xml"], path)) for name in "ab"]
    assert sorted(found) == [0, 1]
    # Both are members of a cluster, but one of them connects; every other link is the business of one broker.
    clustered = [len(_elements(files[f"{name}/etc/broker.xml"], ".//a:cluster-connection")) for name in "ab"]
    assert clustered == ([1, 1] if via == "cluster" else [0, 0])


def test_a_bridge_to_rabbitmq_names_its_queues_as_rabbitmq_does(tmp_path: Path) -> None:
    files = _files(tmp_path, "artemis", "rabbitmq", via="amqp-bridge", addresses=["orders"])
    [bridge] = _elements(files["a/etc/broker.xml"], ".//a:bridge-to-queue")
    assert bridge.get("remote-address-prefix") == "/amq/queue/"


@pytest.mark.parametrize("program", ["activemq", "qpid-broker-j"])
def test_bridges_in_both_directions_share_one_connection(tmp_path: Path, program: str) -> None:
    """ActiveMQ refuses a second one from the same broker."""
    links = [link("a", "b", addresses=["there"]), link("b", "a", addresses=["back"])]
    nodes = [broker("a", program="artemis"), broker("b", program=program)]
    document = {"nodes": nodes, "links": links, "directed": True, "multigraph": True}
    text = render(network_of(tmp_path, document), USER)["a/etc/broker.xml"]
    [connection] = _elements(text, ".//a:amqp-connection")
    bridges = [(each.tag.rpartition("}")[2], each[0].get("queue-match")) for each in connection[0]]
    assert bridges == [("bridge-to-queue", "there"), ("bridge-from-queue", "back")]


def test_a_network_connector_has_its_options_and_rules(tmp_path: Path) -> None:
    options = {"networkTTL": 3, "conduitSubscriptions": False, "excluded": ["topic://noise"]}
    files = _files(tmp_path, "activemq", "activemq", directed=False, addresses=["orders"], options=options)
    (connector,) = _elements(files["a/conf/activemq.xml"], ".//m:networkConnector")
    assert connector.get("networkTTL") == "3"
    assert connector.get("conduitSubscriptions") == "false"
    assert connector.get("duplex") == "true"
    (excluded,) = _elements(files["a/conf/activemq.xml"], ".//m:excludedDestinations/m:topic")
    assert excluded.get("physicalName") == "noise"


def test_shovels_speak_the_protocol_of_the_other_broker(tmp_path: Path) -> None:
    for program, protocol in (("rabbitmq", "amqp091"), ("artemis", "amqp10")):
        files = _files(tmp_path, "rabbitmq", program, addresses=["orders"])
        (parameter,) = json.loads(files["a/definitions.json"])["parameters"]
        assert parameter["component"] == "shovel"
        assert parameter["value"]["dest-protocol"] == protocol
        assert "rabbitmq_shovel" in files["a/enabled_plugins"]


def test_a_password_that_a_shovel_would_get_wrong_is_refused(tmp_path: Path) -> None:
    document = {"nodes": [broker("a", program="rabbitmq")], "links": []}
    with pytest.raises(ConfigError, match="choose another password"):
        render(network_of(tmp_path, document), Access("user", "with/slash"))


def test_federation_is_configured_where_messages_are_wanted(tmp_path: Path) -> None:
    files = _files(tmp_path, "rabbitmq", "rabbitmq", via="federation", addresses=["orders"])
    assert json.loads(files["a/definitions.json"])["parameters"] == []
    definitions = json.loads(files["b/definitions.json"])
    assert definitions["parameters"][0]["component"] == "federation-upstream"
    assert re.fullmatch(definitions["policies"][0]["pattern"], "orders")


@pytest.mark.parametrize(
    ("programs", "more", "said"),
    [
        (
            ("artemis", "artemis"),
            {"via": "brigde", "addresses": ["q"]},
            "known: bridge, amqp-bridge, federation, cluster",
        ),
        (("artemis", "artemis"), {"via": "bridge"}, "needs addresses"),
        (("artemis", "qpid-broker-j"), {"addresses": ["q"], "directed": False}, "back and forth"),
        (("artemis", "rabbitmq"), {"via": "cluster", "addresses": ["q"]}, "only Artemis"),
        (("activemq", "activemq"), {"options": {"networkTtl": 1}}, "no option networkTtl"),
        (("activemq", "qpid-broker-j"), {"addresses": ["q"]}, "joins only ActiveMQ"),
        (("rabbitmq", "rabbitmq"), {"addresses": ["q"], "directed": False}, "one way"),
    ],
)
def test_what_brokers_cannot_do_is_refused(
    tmp_path: Path, programs: tuple[str, str], more: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        _files(tmp_path, *programs, **more)


def test_a_relay_refuses_what_it_would_ignore(tmp_path: Path) -> None:
    document = {"nodes": [router("r", program="relay", sslProfile=[{"name": "x"}])]}
    with pytest.raises(ConfigError, match="node r: the relay does not accept"):
        render(network_of(tmp_path, document), Access())
