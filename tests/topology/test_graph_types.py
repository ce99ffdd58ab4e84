"""The links of every topology type, counted by hand."""

import pytest

from crescendo.model.errors import ConfigError
from crescendo.topology.graph_types import TYPE_NAMES, links_of

R = [f"r{number}" for number in range(1, 10)]
B = [f"b{number}" for number in range(1, 10)]


def _pairs(graph_type: str, routers: int, brokers: int = 0, fanout: int = 2) -> set[tuple[str, str]]:
    links = links_of(graph_type, R[:routers], B[:brokers], fanout=fanout, cost=None)
    return {tuple(sorted(link.ends)) for link in links}  # type: ignore[misc]


@pytest.mark.parametrize(
    ("graph_type", "routers", "brokers", "expected"),
    [
        ("line", 3, 0, "r1-r2 r2-r3"),
        ("line", 1, 0, ""),
        ("line", 3, 2, "r1-r2 r2-r3 b1-r1 b2-r3"),
        ("line-mixed", 2, 1, "b1-r1 b1-r2"),
        ("line-mixed", 3, 1, "b1-r1 b1-r2 r2-r3"),
        ("line-mixed", 2, 2, "b1-r1 b1-r2 b2-r1"),
        ("cycle", 3, 0, "r1-r2 r2-r3 r1-r3"),
        ("complete", 3, 2, "r1-r2 r1-r3 r2-r3 b1-r1 b2-r2"),
        ("bus", 2, 3, "r1-r2 b1-r1 b2-r2 b3-r1"),
        ("star", 4, 1, "r1-r2 r1-r3 r1-r4 b1-r2"),
        ("tree", 5, 1, "r1-r2 r1-r3 r2-r4 r2-r5 b1-r3"),
        ("mesh", 4, 0, "r1-r2 r1-r3 r2-r4 r3-r4"),
        ("redundant", 4, 0, "r1-r2 r2-r4 r1-r3 r3-r4"),
        ("line_graph", 2, 0, "r1-r2"),
        ("line_mix_graph", 2, 1, "b1-r1 b1-r2"),
    ],
)
def test_a_type_has_these_links(graph_type: str, routers: int, brokers: int, expected: str) -> None:
    assert _pairs(graph_type, routers, brokers) == {tuple(pair.split("-")) for pair in expected.split()}


def test_one_broker_does_not_make_a_ring_out_of_a_line() -> None:
    assert _pairs("line", 3, 1) == {("r1", "r2"), ("r2", "r3"), ("b1", "r1")}


@pytest.mark.parametrize("graph_type", TYPE_NAMES)
def test_brokers_are_never_joined_to_brokers(graph_type: str) -> None:
    for source, target in _pairs(graph_type, 5, 9):
        assert {source[0], target[0]} != {"b"}


def test_the_redundant_pair_has_the_costs_of_the_thesis() -> None:
    links = links_of("redundant", R[:4], [], fanout=2, cost=None)
    assert {link.ends: link.cost for link in links} == {
        ("r1", "r2"): 1,
        ("r2", "r4"): 1,
        ("r1", "r3"): 5,
        ("r3", "r4"): 5,
    }


@pytest.mark.parametrize(
    ("graph_type", "routers", "said"),
    [
        ("lien", 3, "no type is called 'lien'"),
        ("cycle", 2, "three"),
        ("line", 0, "no routers"),
        ("redundant", 3, "four"),
    ],
)
def test_a_type_that_cannot_be_built_is_refused(graph_type: str, routers: int, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        links_of(graph_type, R[:routers], [], fanout=2, cost=None)
