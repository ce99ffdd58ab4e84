"""Variables per machine: the samples, Appendix C of the thesis, and every defect of the original with its cure."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from crescendo.cli.main import main
from crescendo.cli.topology import VariablesFormat, variables_text
from crescendo.model.errors import ConfigError
from crescendo.topology.address_ways import ways_of
from crescendo.topology.generate import Network, generate, wired_links
from crescendo.topology.network_check import check_network
from crescendo.topology.topology_file import load_topology
from networks import SAMPLES, broker, link, network_of, router, write_topology

EVERYWHERE = "0.0.0.0"  # noqa: S104 - as in the thesis
LISTENERS = {
    number: [
        {"host": EVERYWHERE, "role": "inter-router", "port": 6000 + number},
        {
            "host": EVERYWHERE,
            "authenticatePeer": "no",
            "role": "normal",
            "port": 5000 + number,
            "saslMechanisms": "ANONYMOUS",
        },
    ]
    for number in (0, 1)
}
ADDRESSES = [
    {"prefix": "closest", "distribution": "closest"},
    {"prefix": "multicast", "distribution": "multicast"},
    {"prefix": "unicast", "distribution": "closest"},
]


def _connectors(network: Network) -> dict[str, list[dict[str, Any]]]:
    return {name: values["connector"] for name, values in network.variables.items() if "connector" in values}


def test_appendix_c_with_its_stated_differences(tmp_path: Path) -> None:
    """The output of the thesis for two routers, but interior mode and one connector for the one link."""
    assert network_of(tmp_path, {"graph_type": "line", "routers": 2}).document() == {
        "confs": [
            {
                "machine": "router1",
                "router": [{"id": "router1", "mode": "interior"}],
                "listener": LISTENERS[0],
                "connector": [{"host": "router2", "role": "inter-router", "port": 6001}],
                "address": ADDRESSES,
            },
            {
                "machine": "router2",
                "router": [{"id": "router2", "mode": "interior"}],
                "listener": LISTENERS[1],
                "address": ADDRESSES,
            },
        ]
    }


@pytest.mark.parametrize("name", ["config", "appendix_c", "ref_graph_test", "redundant"])
def test_the_samples_generate_their_golden_output(name: str) -> None:
    """`python -m pytest --rewrite-golden` does not exist on purpose: read the difference, then edit the file."""
    document = generate(load_topology(SAMPLES / f"{name}.yml")).document()
    golden = SAMPLES / "golden" / f"{name}.yml"
    assert variables_text(document, VariablesFormat.yaml) == golden.read_text()
    assert yaml.safe_load(golden.read_text()) == json.loads(variables_text(document, VariablesFormat.json))


# -- defects of the original, and their cures -------------------------------------------------------------------------


def test_only_one_end_of_a_link_connects(tmp_path: Path) -> None:
    network = network_of(tmp_path, {"graph_type": "complete", "routers": 4})
    assert {name: len(found) for name, found in _connectors(network).items()} == {
        "router1": 3,
        "router2": 2,
        "router3": 1,
    }


def test_the_cost_of_a_link_is_written(tmp_path: Path) -> None:
    links = [link("a", "b", value=10), link("b", "c")]
    network = network_of(tmp_path, {"nodes": [router("a"), router("b"), router("c")], "links": links})
    assert [entry.get("cost") for name in "ab" for entry in _connectors(network)[name]] == [10, None]


def test_addresses_of_the_inventory_reach_the_connectors(tmp_path: Path) -> None:
    inventory = "[routers]\nrouter1 ansible_host=10.0.0.3\nrouter2 ansible_host=10.0.0.4\n[all:children]\nrouters\n"
    network = network_of(tmp_path, {"graph_type": "line"}, inventory)
    assert [entry["host"] for entry in _connectors(network)["router1"]] == ["10.0.0.4"]


def test_children_groups_give_their_routers(tmp_path: Path) -> None:
    inventory = "[east]\nr1\n[west]\nr2\n[routers:children]\neast\nwest\n"
    assert set(network_of(tmp_path, {"graph_type": "line"}, inventory).variables) == {"r1", "r2"}


def test_every_entry_of_a_repeated_section_is_kept(tmp_path: Path) -> None:
    profiles = [{"name": "one", "certFile": "a"}, {"name": "two", "certFile": "b"}]
    listeners = [{"host": EVERYWHERE, "port": 1, "role": "normal"}, {"host": EVERYWHERE, "port": 2, "role": "normal"}]
    values = network_of(
        tmp_path,
        {"nodes": [router("a", sslProfile=profiles, listener=listeners), router("b")], "links": [link("a", "b")]},
    ).variables["a"]
    assert values["sslProfile"] == profiles
    assert values["listener"][:2] == listeners
    assert [entry["role"] for entry in values["listener"][2:]] == ["inter-router"]


@pytest.mark.parametrize("flag", [False, True])
def test_defaults_are_off_when_the_flag_is_false_and_on_when_it_is_true(tmp_path: Path, flag: bool) -> None:
    nodes = [router("a", def_list=flag, def_conn=flag, def_addr=flag), router("b", def_list=flag, def_conn=flag)]
    network = network_of(tmp_path, {"nodes": nodes, "links": [link("a", "b")]})
    for section in ("listener", "connector", "address"):
        assert (section in network.variables["a"]) is flag


def test_a_flag_that_is_not_a_boolean_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="def_list"):
        network_of(tmp_path, {"nodes": [router("a", def_list="nope")], "links": []})


def test_a_listener_takes_the_port_that_a_written_connector_expects(tmp_path: Path) -> None:
    written = [{"host": "b", "port": 7777, "role": "inter-router"}]
    network = network_of(tmp_path, {"nodes": [router("a", connector=written), router("b")], "links": [link("a", "b")]})
    assert _connectors(network) == {"a": written}
    assert network.variables["b"]["listener"][0] == {"host": EVERYWHERE, "role": "inter-router", "port": 7777}


def test_nodes_on_one_machine_have_different_ports(tmp_path: Path) -> None:
    nodes = [
        router(name, machine="host1", listener=[{"role": "normal", "port": 6000}] * (name == "a")) for name in "abc"
    ]
    network = network_of(
        tmp_path, {"nodes": nodes, "links": [link("a", "b"), link("b", "c")], "ports": {"inter-router": 6000}}
    )
    ports = [entry["port"] for values in network.variables.values() for entry in values["listener"]]
    assert len(ports) == len(set(ports)) == 6


def test_a_router_connects_to_its_broker_and_routes_links_to_it(tmp_path: Path) -> None:
    document = {"nodes": [router("r"), broker("b")], "links": [link("b", "r", addresses=["orders"])]}
    values = network_of(tmp_path, document).variables
    assert values["r"]["connector"] == [{"name": "b", "host": "b", "port": 5001, "role": "route-container"}]
    assert values["r"]["linkRoute"] == [
        {"prefix": "orders", "connection": "b", "direction": way} for way in ("in", "out")
    ]
    assert values["r"]["router"] == [{"id": "r", "mode": "standalone"}]


def test_a_waypoint_has_autolinks_in_both_directions(tmp_path: Path) -> None:
    document = {"nodes": [router("r"), broker("b")], "links": [link("r", "b", addresses=["q"], via="autoLink")]}
    values = network_of(tmp_path, document).variables["r"]
    assert values["autoLink"] == [{"address": "q", "connection": "b", "direction": way} for way in ("in", "out")]
    assert {"prefix": "q", "waypoint": "yes"} in values["address"]


def test_a_broker_that_cannot_connect_is_connected_to(tmp_path: Path) -> None:
    document = {
        "nodes": [broker("a", program="qpid-broker-j"), broker("b", program="artemis")],
        "links": [link("a", "b")],
    }
    assert set(_connectors(network_of(tmp_path, document))) == {"b"}


@pytest.mark.parametrize(
    ("source", "target", "via", "opener", "way"),
    [
        ("artemis", "rabbitmq", "shovel", "b", "in"),
        ("rabbitmq", "artemis", "shovel", "a", "out"),
        ("activemq", "rabbitmq", None, "b", "in"),
        ("activemq", "artemis", None, "b", "in"),
        ("artemis", "activemq", "amqp-bridge", "a", "out"),
        ("qpid-broker-j", "artemis", None, "b", "in"),
        ("rabbitmq", "rabbitmq", "federation", "b", "in"),
        ("activemq", "activemq", None, "a", "out"),
    ],
)
def test_the_broker_that_can_open_a_link_opens_it_in_either_direction(
    tmp_path: Path, source: str, target: str, via: str | None, opener: str, way: str
) -> None:
    joined = link("a", "b", addresses=["q"], **({"via": via} if via else {}))
    nodes = [broker("a", program=source), broker("b", program=target)]
    network = network_of(tmp_path, {"nodes": nodes, "links": [joined], "directed": True})
    [(name, [connector])] = _connectors(network).items()
    assert (name, connector["direction"]) == (opener, way)


def test_links_in_both_directions_have_a_connector_each(tmp_path: Path) -> None:
    nodes = [broker(name, program="artemis") for name in ("a", "b")]
    links = [link("a", "b", addresses=["q"]), link("b", "a", addresses=["replies"])]
    document = {"nodes": nodes, "links": links, "directed": True, "multigraph": True}
    network = network_of(tmp_path, document)
    wired = [(each.link.ends, each.opener.id, each.connector["addresses"]) for each in wired_links(network)]
    assert wired == [(("a", "b"), "a", ["q"]), (("b", "a"), "b", ["replies"])]
    assert check_network(network) == []
    assert ways_of(network.graph) == {"q": ("a", "b"), "replies": ("b", "a")}


def test_a_router_takes_from_one_broker_and_gives_to_another(tmp_path: Path) -> None:
    nodes = [broker("a"), router("r"), broker("b")]
    links = [link(*ends, via="autoLink", addresses=["q"]) for ends in (("a", "r"), ("r", "b"))]
    links.append(link("r", "a", via="autoLink", addresses=["replies"]))
    network = network_of(tmp_path, {"nodes": nodes, "links": links, "directed": True, "multigraph": True})
    values = network.variables["r"]
    assert values["autoLink"] == [
        {"address": "replies", "connection": "a", "direction": "out"},
        {"address": "q", "connection": "b", "direction": "out"},
        {"address": "q", "connection": "a-2", "direction": "in"},
    ]
    assert [entry["name"] for entry in values["connector"]] == ["a", "b", "a-2"]
    assert not any("waypoint" in entry for entry in values["address"])
    assert ways_of(network.graph)["q"] == ("a", "b")


# -- mistakes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"graph_typ": "line"}, "did you mean graph_type"),
        ({"graph_type": "line"}, "needs hostfile"),
        ({}, "one of graph_file, graph_type and nodes"),
        ({"graph_type": "line", "routers": 2, "router_program": "qdrouterd"}, "known: relay, qpid-dispatch"),
        ({"nodes": [router("a"), router("a")]}, "two nodes are called a"),
        ({"nodes": [router("router1")], "links": [link("router1", "ruoter1")]}, "did you mean router1"),
        ({"nodes": [router("a")], "links": [link("a", "a")]}, "linked to itself"),
        ({"nodes": [router("a"), router("b")], "links": [link("a", "b"), link("b", "a")]}, "linked twice"),
        ({"nodes": [router("a"), router("b")], "links": [link("a", "b", value=0)]}, "links.0. .a to b.: .* >= 1"),
        ({"nodes": [router("a", def_lst=False)]}, "did you mean def_list"),
        ({"nodes": [{"id": "a"}]}, "give its type"),
        ({"nodes": [router("../a")]}, "node ../a"),
        ({"nodes": [broker("a", program="artmis")]}, "known: artemis"),
    ],
)
def test_a_mistake_in_a_file_is_named_in_one_sentence(tmp_path: Path, document: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as raised:
        load_topology(write_topology(tmp_path, document))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("key", ["links", "edges"])
def test_a_json_graph_of_either_networkx_is_the_same_network(tmp_path: Path, key: str) -> None:
    """networkx calls links `edges` since 3.4."""
    nodes, links = [router("a", listener={"role": "normal", "port": 7000}), router("b")], [link("a", "b", weight=4)]
    (tmp_path / "graph.json").write_text(json.dumps({"nodes": nodes, key: links, "directed": False, "graph": {}}))
    (tmp_path / "from_json.yml").write_text("graph_file: graph.json\n")
    written = network_of(tmp_path, {"nodes": nodes, "links": links})
    assert generate(load_topology(tmp_path / "from_json.yml")).document() == written.document()
    assert _connectors(written) == {"a": [{"host": "b", "role": "inter-router", "port": 6001, "cost": 4}]}


@pytest.mark.parametrize(
    ("document", "words", "code"),
    [
        ({"graph_type": "lien", "routers": 2}, ["generate"], 2),
        ({"graph_type": "line", "routers": 2}, ["generate"], 0),
        ({"nodes": [router("a"), router("b")]}, ["show", "--check"], 1),
        ({"graph_type": "line", "routers": 2}, ["show", "--check"], 0),
    ],
)
def test_errors_are_in_the_exit_code(
    tmp_path: Path, document: dict[str, Any], words: list[str], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The original ended with 0 whatever happened."""
    path = write_topology(tmp_path, document)
    monkeypatch.setattr("sys.argv", ["crescendo", "topology", *words, str(path)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code or 0) == code


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"graph\.yml: no such file"):
        load_topology(write_topology(tmp_path, {"graph_file": "graph.yml"}))


def test_yaml_aliases_cannot_grow_without_limit(tmp_path: Path) -> None:
    (tmp_path / "bomb.yml").write_text("nodes: &a [x]\nlinks: [*a, *a]\n")
    with pytest.raises(ConfigError, match="not YAML"):
        load_topology(tmp_path / "bomb.yml")
