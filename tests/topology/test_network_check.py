"""What --check finds, and what it does not report."""

from pathlib import Path
from typing import Any

import pytest

from crescendo.topology.generate import generate
from crescendo.topology.graph_types import TYPE_NAMES
from crescendo.topology.network_check import check_network
from crescendo.topology.topology_file import load_topology
from networks import SAMPLES, broker, link, network_of, router


def _problems(folder: Path, document: dict[str, Any], inventory: str | None = None) -> list[tuple[str, str]]:
    return [(found.problem, found.where) for found in check_network(network_of(folder, document, inventory))]


@pytest.mark.parametrize("graph_type", TYPE_NAMES)
def test_every_type_is_sound(tmp_path: Path, graph_type: str) -> None:
    assert _problems(tmp_path, {"graph_type": graph_type, "routers": 9, "brokers": 3}) == []


def test_a_node_without_a_way_to_the_others_is_found(tmp_path: Path) -> None:
    document = {"nodes": [router("a"), router("b"), router("c")], "links": [link("a", "b")]}
    assert _problems(tmp_path, document) == [("unreachable", "c")]


def test_two_written_listeners_on_one_port_are_found(tmp_path: Path) -> None:
    nodes = [router(name, machine="m", listener=[{"role": "normal", "port": 5000}]) for name in "ab"]
    assert ("port-clash", "a") in _problems(tmp_path, {"nodes": nodes, "links": [link("a", "b")]})


@pytest.mark.parametrize(("hosts", "clash"), [((None, None), True), (("10.0.0.1", "10.0.0.2"), False)])
def test_a_port_belongs_to_the_machine_and_not_to_one_of_its_addresses(
    tmp_path: Path, hosts: tuple[str | None, str | None], clash: bool
) -> None:
    nodes = [
        router(name, machine="m", address=f"10.0.0.{at}", listener=[{"host": host, "role": "normal", "port": 5000}])
        for at, (name, host) in enumerate(zip("ab", hosts, strict=True), 1)
    ]
    found = _problems(tmp_path, {"nodes": nodes, "links": [link("a", "b")]})
    assert found == ([("port-clash", "a")] if clash else [])


def test_a_machine_that_is_not_in_the_inventory_is_found(tmp_path: Path) -> None:
    document = {"nodes": [router("a"), router("b")], "links": [link("a", "b")]}
    assert _problems(tmp_path, document, "[routers]\na\n") == [("unknown-host", "b")]


def test_costs_that_differ_between_the_ends_are_found(tmp_path: Path) -> None:
    written = [{"host": "b", "port": 6001, "role": "inter-router", "cost": 3}]
    document = {"nodes": [router("a", connector=written), router("b")], "links": [link("a", "b", value=4)]}
    assert _problems(tmp_path, document) == [("asymmetric-cost", "a–b")]


@pytest.mark.parametrize("cost", ["low", 0, None])
def test_a_written_cost_that_is_not_one_is_found(tmp_path: Path, cost: object) -> None:
    written = [{"host": "b", "port": 6001, "role": "inter-router", "cost": cost}]
    document = {"nodes": [router("a", connector=written), router("b")], "links": [link("a", "b")]}
    [found] = check_network(network_of(tmp_path, document))
    assert str(found) == f"a–b: the connector of a has the cost {cost!r}; give a number from 1 to 2,147,483,647"


def test_a_link_that_both_ends_open_is_found(tmp_path: Path) -> None:
    ends = {"a": ("b", 6001), "b": ("a", 6000)}
    nodes = [
        router(name, connector=[{"host": host, "port": port, "role": "inter-router"}])
        for name, (host, port) in ends.items()
    ]
    assert _problems(tmp_path, {"nodes": nodes, "links": [link("a", "b")]}) == [("link", "a–b")]


@pytest.mark.parametrize(
    ("pairs", "directed", "loop"),
    [
        ("a-b b-c c-a", False, True),
        ("a-b b-c", False, False),
        ("a-b b-c c-a", True, True),
        ("a-b b-c a-c", True, False),
        ("a-b b-a", True, True),
    ],
)
def test_bridges_in_which_messages_would_circulate_are_found(
    tmp_path: Path, pairs: str, directed: bool, loop: bool
) -> None:
    links = [link(*pair.split("-")) for pair in pairs.split()]
    nodes = [broker(name) for name in "abc"]
    document = {"nodes": nodes, "links": links, "directed": directed, "multigraph": True}
    assert ("loop" in [problem for problem, _ in _problems(tmp_path, document)]) is loop


def test_bridges_for_different_addresses_are_not_a_loop(tmp_path: Path) -> None:
    links = [link("a", "b", addresses=["x"]), link("b", "c", addresses=["x"]), link("a", "c", addresses=["y"])]
    assert _problems(tmp_path, {"nodes": [broker(name) for name in "abc"], "links": links}) == []


@pytest.mark.parametrize(
    ("back", "loop"),
    [({"addresses": ["x"], "via": "amqp-bridge"}, True), ({"addresses": ["y"], "via": "amqp-bridge"}, False)],
)
def test_auto_links_of_routers_are_part_of_a_loop(tmp_path: Path, back: dict[str, Any], loop: bool) -> None:
    taken, given = (link(*ends, via="autoLink", addresses=["x"]) for ends in (("a", "r"), ("s", "b")))
    links = [taken, link("r", "s"), given, link("b", "a", **back)]
    nodes = [broker("a"), broker("b"), router("r"), router("s")]
    found = check_network(network_of(tmp_path, {"directed": True, "nodes": nodes, "links": links}))
    circulating = [str(each) for each in found if each.problem == "loop"]
    assert circulating == (["b: messages to x would circulate: b > a > r > b"] if loop else [])


def test_what_is_wrong_with_the_sample_is_said() -> None:
    found = [str(each) for each in check_network(generate(load_topology(SAMPLES / "config.yml")))]
    assert "router2–broker2: neither end connects to the other; router2 has def_conn: no, so write a connector" in found
    assert "router2: the connector to router2:111 belongs to no link" in found
    assert len(found) == 8
