"""When does a router drop a neighbour? Two routers that are turned by hand, with a clock of the test."""

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from crescendo.systems.relay import router_server
from crescendo.systems.relay.router_config import router_config
from crescendo.systems.relay.router_server import RouterServer


class Clock:
    """The clock of the machine, plus what the test adds to it."""

    def __init__(self) -> None:
        self.added_s = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.added_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(router_server, "time", made)
    return made


def _server(name: str, **sections: Any) -> RouterServer:
    listener = [{"host": "127.0.0.1", "port": 0, "role": "inter-router"}]
    document = {"router": [{"id": name, "mode": "interior"}], "listener": listener, **sections}
    return RouterServer(router_config(document, "test"))


def _neighbours(server: RouterServer) -> list[Any]:
    return [peer for peer in server._router.tables.peers.values() if peer.router is not None]


@pytest.fixture
def pair(clock: Clock) -> Iterator[tuple[RouterServer, RouterServer]]:
    with closing(_server("b")) as second:
        connector = [{"host": "127.0.0.1", "port": second.ports[0], "role": "inter-router"}]
        with closing(_server("a", connector=connector)) as first:
            deadline_s = time.monotonic() + 20
            while not (_neighbours(first) and _neighbours(second)):
                assert time.monotonic() < deadline_s
                first.turn()
                second.turn()
            yield first, second


def test_a_machine_that_stood_still_costs_no_connection(pair: tuple[RouterServer, RouterServer], clock: Clock) -> None:
    before = [_neighbours(server) for server in pair]
    clock.added_s += 60.0
    for server in (*pair, *pair):
        server.turn()
    assert [_neighbours(server) for server in pair] == before


def test_a_neighbour_that_stays_silent_is_dropped(pair: tuple[RouterServer, RouterServer], clock: Clock) -> None:
    first, _ = pair
    turns = 0
    while _neighbours(first):
        turns += 1
        assert turns < 200
        clock.added_s += 0.1
        first.turn()
    assert turns > 10
