"""Is a lost connection made anew, with pauses, at every address, and never in the way of the others?"""

import itertools
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from crescendo.load.engine.reconnect import (
    FIRST_BACKOFF_NS,
    HANDSHAKE_TIMEOUT_NS,
    MAX_BACKOFF_NS,
    ConnectionChange,
    DialPool,
    ReconnectingChannel,
)
from crescendo.model.errors import PeerError

MS = 1_000_000


class AtOnce(DialPool):
    """Dials in the caller's thread; time stands still meanwhile."""

    def submit(self, dial: Callable[[], Any]) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            future.set_result(dial())
        except PeerError as err:
            future.set_exception(err)
        return future


def channel(*, ready: bool = True, closed: str | None = None) -> Any:
    made = SimpleNamespace(ready=ready, closed=closed, goodbyes=0)

    def close() -> None:
        made.goodbyes += 1

    made.close = close
    made.file = 7
    made.fileno = lambda: made.file
    return made


def changes(
    line: ReconnectingChannel[Any], until_ns: int, *, start_ns: int = 0, step_ns: int = 10 * MS
) -> list[tuple[int, ConnectionChange]]:
    found = []
    for now_ns in range(start_ns, until_ns, step_ns):
        change = line.step(now_ns, AtOnce())
        if change is not ConnectionChange.NONE:
            found.append((now_ns, change))
    return found


def test_without_further_addresses_it_stays_lost() -> None:
    line = ReconnectingChannel(channel(closed="gone"))
    assert line.lost
    assert [change for _, change in changes(line, 1000 * MS)] == [ConnectionChange.LOST]
    assert line.reason == "gone"


def test_a_connection_that_lives_is_left_alone() -> None:
    line = ReconnectingChannel(channel(), lambda _: channel())
    assert changes(line, 1000 * MS) == []
    assert not line.lost


def test_it_is_made_anew_and_restored() -> None:
    fresh = channel(ready=False)
    line = ReconnectingChannel(channel(closed="gone"), lambda _: fresh)
    assert not line.lost
    assert [change for _, change in changes(line, 200 * MS)] == [ConnectionChange.INTERRUPTED, ConnectionChange.DIALLED]
    assert line.channel is fresh
    fresh.ready = True
    assert [change for _, change in changes(line, 300 * MS, start_ns=200 * MS)] == [ConnectionChange.RESTORED]


def test_a_new_connection_that_asks_again_on_another_socket_is_watched_there() -> None:
    fresh = channel(ready=False)
    line = ReconnectingChannel(channel(closed="gone"), lambda _: fresh)
    changes(line, 200 * MS)
    fresh.file = 8
    assert [change for _, change in changes(line, 300 * MS, start_ns=200 * MS)] == [ConnectionChange.DIALLED]
    fresh.ready = True
    assert [change for _, change in changes(line, 400 * MS, start_ns=300 * MS)] == [ConnectionChange.RESTORED]


def test_pauses_grow_up_to_a_limit_and_every_address_has_its_turn() -> None:
    tries: list[tuple[int, int]] = []
    now = SimpleNamespace(ns=0)

    def refuse(attempt: int) -> Any:
        tries.append((attempt, now.ns))
        raise PeerError("refused the connection")

    line = ReconnectingChannel(channel(closed="gone"), refuse)
    for now.ns in range(0, 60_000 * MS, 5 * MS):
        line.step(now.ns, AtOnce())
    assert [attempt for attempt, _ in tries] == list(range(1, len(tries) + 1))
    gaps_ns = [after - before for (_, before), (_, after) in itertools.pairwise(tries)]
    for number, gap_ns in enumerate(gaps_ns, 2):
        longest_ns = min(FIRST_BACKOFF_NS << (number - 1), MAX_BACKOFF_NS)
        assert longest_ns / 2 <= gap_ns <= longest_ns + 20 * MS
    assert len(set(gaps_ns[-10:])) > 1, "many connections must not knock in step"
    assert not line.lost


def test_who_answers_and_then_says_nothing_is_given_up() -> None:
    silent = channel(ready=False)
    line = ReconnectingChannel(channel(closed="gone"), lambda _: silent)
    changes(line, HANDSHAKE_TIMEOUT_NS + 500 * MS, step_ns=50 * MS)
    assert silent.goodbyes >= 1
    assert not line.lost
