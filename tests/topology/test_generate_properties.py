"""In any graph, links and connectors match, ports do not clash, and the order of the input does not matter."""

import random
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from crescendo.topology.generate import generate
from crescendo.topology.graph import Graph, GraphLink, GraphNode, ordered
from crescendo.topology.listener_ports import port_of
from crescendo.topology.network_check import check_network
from crescendo.topology.topology_file import PortBases, Topology, load_topology


@st.composite
def _graphs(draw: st.DrawFn) -> tuple[list[GraphNode], list[GraphLink], bool]:
    count = draw(st.integers(1, 8))
    machines = draw(st.lists(st.sampled_from(["m1", "m2", "m3", ""]), min_size=count, max_size=count))
    kinds = draw(st.lists(st.sampled_from(["router", "router", "broker"]), min_size=count, max_size=count))
    places = [machine or f"n{number}" for number, machine in enumerate(machines)]
    nodes = [
        GraphNode(
            id=f"n{number}",
            type=kinds[number],
            program="" if kinds[number] == "router" else "artemis",
            machine=places[number],
            address=places[number],
            shares_machine=places.count(places[number]) > 1,
        )
        for number in range(count)
    ]
    pairs = [(a, b) for a in range(count) for b in range(a)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    costs = st.none() | st.integers(1, 100)
    links = [GraphLink(source=f"n{a}", target=f"n{b}", cost=draw(costs)) for a, b in chosen]
    return nodes, links, draw(st.booleans())


def _document(nodes: list[GraphNode], links: list[GraphLink], directed: bool) -> tuple[Graph, dict[str, Any], Any]:
    # All roles begin at the same port, so that every allocation has to look for a free one.
    bases = PortBases(normal=5000, inter_router=5000, route_container=5000, openwire=5000, management=5000)
    graph = ordered(nodes, links, directed=directed)
    network = generate(Topology(graph, {}, bases))
    return graph, network.document(), network


@given(_graphs())
@settings(max_examples=150, deadline=None)
def test_every_link_has_exactly_one_connector_that_matches_one_listener(
    drawn: tuple[list[GraphNode], list[GraphLink], bool],
) -> None:
    graph, _, network = _document(*drawn)
    nodes = graph.by_id()
    reached = []
    for name, values in network.variables.items():
        for entry in values.get("connector", ()):
            matching = [
                other.id
                for other in graph.nodes
                if other.address == entry["host"]
                for listener in network.variables[other.id]["listener"]
                if port_of(listener) == entry["port"]
            ]
            assert len(matching) == 1
            reached.append(frozenset({name, matching[0]}))
            if nodes[name].type == nodes[matching[0]].type == "router":
                cost = next(link.cost for link in graph.links if set(link.ends) == {name, matching[0]})
                assert entry.get("cost") == cost
    assert sorted(map(sorted, reached)) == sorted(sorted(link.ends) for link in graph.links)
    assert not [found for found in check_network(network) if found.problem in {"link", "connector", "port-clash"}]


@given(_graphs())
@settings(max_examples=100, deadline=None)
def test_no_two_listeners_of_a_machine_share_a_port(drawn: tuple[list[GraphNode], list[GraphLink], bool]) -> None:
    graph, _, network = _document(*drawn)
    used = [(node.address, entry["port"]) for node in graph.nodes for entry in network.variables[node.id]["listener"]]
    assert len(used) == len(set(used))


@given(_graphs(), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_the_output_does_not_depend_on_the_order_of_the_input(
    drawn: tuple[list[GraphNode], list[GraphLink], bool], chance: random.Random
) -> None:
    nodes, links, directed = drawn
    mixed_nodes, mixed_links = list(nodes), list(links)
    chance.shuffle(mixed_nodes)
    chance.shuffle(mixed_links)
    if not directed:  # then it does not matter at which end a link is written either
        turned = [GraphLink(source=link.target, target=link.source, cost=link.cost) for link in mixed_links]
        mixed_links = [chance.choice(pair) for pair in zip(mixed_links, turned, strict=True)]
    assert _document(nodes, links, directed)[1] == _document(mixed_nodes, mixed_links, directed)[1]


def test_the_order_of_a_file_does_not_matter_either(tmp_path: Path) -> None:
    nodes = "- {id: b, type: router}\n- {id: a, type: router}\n"
    for name, text in (("one.yml", nodes), ("two.yml", "".join(reversed(nodes.splitlines(keepends=True))))):
        (tmp_path / name).write_text(f"nodes:\n{text}links:\n- {{source: b, target: a}}\n")
    first, second = (generate(load_topology(tmp_path / name)).document() for name in ("one.yml", "two.yml"))
    assert first == second
