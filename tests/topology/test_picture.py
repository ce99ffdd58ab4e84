"""The picture of a network: every node, every link, every cost, and the same every time."""

from pathlib import Path
from xml.etree import ElementTree

from crescendo.topology.generate import generate
from crescendo.topology.graph_types import TYPE_NAMES
from crescendo.topology.network_check import check_network
from crescendo.topology.node_positions import positions
from crescendo.topology.picture import html_of, svg_of
from crescendo.topology.topology_file import load_topology
from networks import SAMPLES, broker, link, network_of, router

SVG = "{http://www.w3.org/2000/svg}"


def _texts(svg: str) -> list[str]:
    return [str(text.text) for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]  # noqa: S314 - our own


def test_the_picture_shows_nodes_listeners_links_and_costs() -> None:
    svg = svg_of(generate(load_topology(SAMPLES / "redundant.yml")))
    texts = _texts(svg)
    assert {"router1", "router2", "router3", "router4", "inter-router :6002", "normal :5003"} <= set(texts)
    assert sorted(text for text in texts if text.isdigit()) == ["1", "1", "5", "5"]
    assert svg.count('class="link"') == 4


def test_no_two_nodes_cover_each_other(tmp_path: Path) -> None:
    for graph_type in TYPE_NAMES:
        network = network_of(tmp_path, {"graph_type": graph_type, "routers": 9, "brokers": 2})
        places = list(positions(network.graph).values())
        for at, (x, y) in enumerate(places):
            assert all(abs(x - a) > 0.4 or abs(y - b) > 0.4 for a, b in places[at + 1 :]), graph_type


def test_the_same_graph_has_the_same_picture(tmp_path: Path) -> None:
    first, second = (svg_of(network_of(tmp_path, {"graph_type": "mesh", "routers": 12})) for _ in range(2))
    assert first == second


def test_names_cannot_inject_markup(tmp_path: Path) -> None:
    network = network_of(tmp_path, {"nodes": [router("r", machine="<script>alert(1)</script>")]})
    page = html_of(network, check_network(network))
    assert "<script>" not in page


def test_a_page_says_what_would_not_work() -> None:
    network = generate(load_topology(SAMPLES / "config.yml"))
    assert "router2:111 belongs to no link" in html_of(network, check_network(network))


def test_an_empty_network_can_be_drawn(tmp_path: Path) -> None:
    assert _texts(svg_of(network_of(tmp_path, {"nodes": []}))) == ["topology: "]


def _paths(svg: str) -> list[str]:
    return [each.attrib["d"] for each in ElementTree.fromstring(svg).iter(f"{SVG}path") if "marker-end" in each.attrib]  # noqa: S314


def test_messages_go_from_left_to_right_and_links_say_what_they_are(tmp_path: Path) -> None:
    """The broker that opens the shovel is the last one; the arrow still goes where messages go."""
    nodes = [broker("a-last", program="rabbitmq"), broker("first", program="artemis")]
    links = [link("first", "a-last", via="shovel", addresses=["orders"])]
    network = network_of(tmp_path, {"nodes": nodes, "links": links, "directed": True})
    places = positions(network.graph)
    assert places["first"][0] < places["a-last"][0]
    svg = svg_of(network)
    [path] = _paths(svg)
    start, end = (float(part.split()[0]) for part in path.removeprefix("M").split(" L") for part in [part])
    assert start < end
    texts = _texts(svg)
    assert {"shovel", "orders"} <= set(texts)
    assert texts[-1].endswith("2 brokers, 1 link · → messages · ● opens the connection")


def test_links_between_the_same_nodes_do_not_cover_each_other(tmp_path: Path) -> None:
    nodes = [broker("a", program="artemis"), broker("b", program="artemis")]
    links = [link("a", "b", addresses=["x"]), link("b", "a", addresses=["y"]), link("a", "b", addresses=["z"])]
    network = network_of(tmp_path, {"nodes": nodes, "links": links, "directed": True, "multigraph": True})
    middles = [path.partition("Q")[2].split()[:2] for path in _paths(svg_of(network))]
    assert len({tuple(middle) for middle in middles}) == 3
