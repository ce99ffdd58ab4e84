"""In any graph, links and connectors match, ports do not clash, and the order of the input does not matter."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from crescendo.topology.generate import Network, generate
from crescendo.topology.graph import BROKER_PROGRAMS, GraphLink, GraphNode, ordered
from crescendo.topology.listener_ports import port_of
from crescendo.topology.network_check import check_network
from crescendo.topology.topology_file import PortBases, Topology, load_topology

Drawn = tuple[list[GraphNode], list[GraphLink], bool]


@st.composite
def _nodes(draw: st.DrawFn) -> list[GraphNode]:
    """Up to six; some share a machine, some of those under another address of it, some have a written port."""
    drawn = st.tuples(
        st.sampled_from(["m1", "m2", "m3", ""]),
        st.booleans(),
        st.sampled_from(["", "", *BROKER_PROGRAMS]),
        st.booleans(),
    )
    nodes = []
    for number, (machine, second, program, written) in enumerate(draw(st.lists(drawn, min_size=1, max_size=6))):
        place = machine or f"n{number}"
        # A port of its own: what the user wrote is kept, even where it clashes.
        listener = [{"host": "0.0.0.0", "role": "normal", "port": 5000 + number}]  # noqa: S104
        nodes.append(
            GraphNode(
                id=f"n{number}",
                type="broker" if program else "router",
                program=program,
                machine=place,
                address=f"{place}-b" if second else place,
                sections={"listener": listener} if written else {},
            )
        )
    shared = Counter(node.address for node in nodes)
    return [_replaced(node, shares_machine=shared[node.address] > 1) for node in nodes]


def _replaced(node: GraphNode, **changes: Any) -> GraphNode:
    return GraphNode(**{name: getattr(node, name) for name in node.__struct_fields__} | changes)


@st.composite
def _graphs(draw: st.DrawFn) -> Drawn:
    """Links with costs and options, also several between the same two nodes; Broker-J accepts links only."""
    nodes = draw(_nodes())
    pairs = [
        (one.id, other.id)
        for at, one in enumerate(nodes)
        for other in nodes[:at]
        if {one.program, other.program} != {"qpid-broker-j"}
    ]
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=8)) if pairs else []
    costs = st.none() | st.integers(1, 100)
    options = st.dictionaries(st.sampled_from(["idleTimeoutSeconds", "linkCapacity"]), st.integers(1, 3))
    links = [
        GraphLink(source=one, target=other, cost=draw(costs), options=draw(options)) for one, other in sorted(chosen)
    ]
    return nodes, links, draw(st.booleans())


def _network(nodes: list[GraphNode], links: list[GraphLink], directed: bool) -> Network:
    # All roles begin at the same port, so that every allocation has to look for a free one.
    bases = PortBases(normal=5000, inter_router=5000, route_container=5000, openwire=5000, management=5000)
    return generate(Topology(ordered(nodes, links, directed=directed), {}, bases))


@given(_graphs())
@settings(max_examples=100)
def test_every_link_has_exactly_one_connector_that_matches_one_listener(drawn: Drawn) -> None:
    network = _network(*drawn)
    graph, nodes = network.graph, network.graph.by_id()
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
            is_between_routers = nodes[name].type == nodes[matching[0]].type == "router"
            reached.append((*sorted({name, matching[0]}), entry.get("cost") if is_between_routers else None))
    wanted = []
    for link in graph.links:
        is_between_routers = nodes[link.source].type == nodes[link.target].type == "router"
        wanted.append((*sorted(link.ends), link.cost if is_between_routers else None))
    assert Counter(reached) == Counter(wanted)
    assert not [found for found in check_network(network) if found.problem in {"link", "connector", "port-clash"}]


@given(_graphs())
@settings(max_examples=60)
def test_no_two_listeners_of_a_machine_share_a_port(drawn: Drawn) -> None:
    network = _network(*drawn)
    used = [
        (node.machine, entry["port"])
        for node in network.graph.nodes
        for entry in network.variables[node.id]["listener"]
    ]
    assert len(used) == len(set(used))


@given(_graphs(), st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_the_output_does_not_depend_on_the_order_of_the_input(drawn: Drawn, chance: random.Random) -> None:
    nodes, links, directed = drawn
    mixed_nodes, mixed_links = list(nodes), list(links)
    chance.shuffle(mixed_nodes)
    chance.shuffle(mixed_links)
    if not directed:  # then it does not matter at which end a link is written either
        turned = [
            GraphLink(source=link.target, target=link.source, cost=link.cost, options=link.options)
            for link in mixed_links
        ]
        mixed_links = [chance.choice(pair) for pair in zip(mixed_links, turned, strict=True)]
    assert _network(nodes, links, directed).document() == _network(mixed_nodes, mixed_links, directed).document()


def test_the_order_of_a_file_does_not_matter_either(tmp_path: Path) -> None:
    nodes = "- {id: b, type: router}\n- {id: a, type: router}\n"
    for name, text in (("one.yml", nodes), ("two.yml", "".join(reversed(nodes.splitlines(keepends=True))))):
        (tmp_path / name).write_text(f"nodes:\n{text}links:\n- {{source: b, target: a}}\n")
    first, second = (generate(load_topology(tmp_path / name)).document() for name in ("one.yml", "two.yml"))
    assert first == second
