"""Routing between relays: the cheapest live path, never a loop, whatever the network."""

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import dijkstra

from crescendo.systems.relay.link_state import Advertisement, LinkState

Costs = dict[frozenset[str], int]


@st.composite
def _networks(draw: st.DrawFn) -> tuple[list[str], Costs]:
    names = [f"r{number}" for number in range(draw(st.integers(2, 9)))]
    pairs = [frozenset({a, b}) for at, a in enumerate(names) for b in names[:at]]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True))
    return names, {pair: draw(st.integers(1, 9)) for pair in chosen}


def _states(names: list[str], costs: Costs, receivers: dict[str, list[str]] | None = None) -> dict[str, LinkState]:
    """Every router knows what every router advertises, as after flooding."""
    states = {name: LinkState(name) for name in names}
    for name, state in states.items():
        neighbours = {other: cost for pair, cost in costs.items() if name in pair for other in pair - {name}}
        state.advertise(neighbours, (receivers or {}).get(name, []))
    for state in states.values():
        for other in states.values():
            state.learn(other.own)
    return states


def _distances(names: list[str], costs: Costs) -> np.ndarray:
    """All distances, by another implementation."""
    matrix = np.zeros((len(names), len(names)))
    for pair, cost in costs.items():
        a, b = (names.index(name) for name in pair)
        matrix[a, b] = matrix[b, a] = cost
    return dijkstra(matrix, directed=False)


@given(_networks())
@settings(max_examples=150, deadline=None)
def test_every_message_takes_the_cheapest_path_and_never_loops(drawn: tuple[list[str], Costs]) -> None:
    names, costs = drawn
    states, distances = _states(names, costs), _distances(names, costs)
    for a, start in enumerate(names):
        for b, goal in enumerate(names):
            route = states[start].routes().get(goal)
            if start == goal:
                assert route is None
                continue
            assert (route is None) == np.isinf(distances[a, b])
            if route is None:
                continue
            assert route.cost == distances[a, b]
            place, paid, visited = start, 0, {start}
            while place != goal:
                hop = states[place].routes()[goal].next_hop
                paid += costs[frozenset({place, hop})]
                assert hop not in visited
                visited.add(hop)
                place = hop
            assert paid == distances[a, b]


@given(_networks(), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_after_a_link_dies_the_cheapest_live_path_is_taken(
    drawn: tuple[list[str], Costs], chance: random.Random
) -> None:
    names, costs = drawn
    states = _states(names, costs)
    if not costs:
        return
    dead = chance.choice(sorted(costs, key=sorted))
    noticed = chance.choice(sorted(dead))  # one end notices; that must be enough for everybody
    left = {pair: cost for pair, cost in costs.items() if pair != dead}
    neighbours = {other: cost for pair, cost in left.items() if noticed in pair for other in pair - {noticed}}
    states[noticed].advertise(neighbours, [])
    for state in states.values():
        state.learn(states[noticed].own)
    distances = _distances(names, left)
    for a, start in enumerate(names):
        for b, goal in enumerate(names):
            route = states[start].routes().get(goal)
            if start != goal:
                assert (np.inf if route is None else route.cost) == distances[a, b]


def test_an_old_advertisement_changes_nothing() -> None:
    state = LinkState("a")
    newer = Advertisement("b", 2, {"a": 1}, ["x"])
    assert state.learn(newer)
    assert not state.learn(newer)
    assert not state.learn(Advertisement("b", 1, {}, []))
    assert newer in state.advertisements


def test_only_routers_that_can_be_reached_hold_an_address() -> None:
    states = _states(["a", "b", "c"], {frozenset("ab"): 3}, {"b": ["x"], "c": ["x"]})
    assert {name: route.cost for name, route in states["a"].holders("x").items()} == {"b": 3}


def test_the_higher_of_two_costs_counts() -> None:
    state = LinkState("a")
    state.advertise({"b": 2}, [])
    state.learn(Advertisement("b", 1, {"a": 7}, []))
    assert state.routes()["b"].cost == 7
