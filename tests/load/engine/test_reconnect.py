"""Is a lost connection reconnected, with backoff, at every address, without blocking the others?"""

import itertools
import threading
import time
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


class SynchronousDialPool(DialPool):
    """Dials in the caller's thread; time stands still meanwhile."""

    def submit(self, dial: Callable[[], Any]) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            future.set_result(dial())
        except PeerError as err:
            future.set_exception(err)
        return future


def channel(*, ready: bool = True, closed: str | None = None) -> Any:
    made = SimpleNamespace(ready=ready, closed=closed, closes=0)

    def close() -> None:
        made.closes += 1

    made.close = close
    made.file = 7
    made.fileno = lambda: made.file
    return made


def changes(
    connection: ReconnectingChannel[Any], until_ns: int, *, start_ns: int = 0, step_ns: int = 10 * MS
) -> list[tuple[int, ConnectionChange]]:
    found = []
    for now_ns in range(start_ns, until_ns, step_ns):
        change = connection.step(now_ns, SynchronousDialPool())
        if change is not ConnectionChange.NONE:
            found.append((now_ns, change))
    return found


def test_without_failover_a_lost_connection_stays_lost() -> None:
    connection = ReconnectingChannel(channel(closed="gone"))
    assert connection.lost
    assert [change for _, change in changes(connection, 1000 * MS)] == [ConnectionChange.LOST]
    assert connection.reason == "gone"


def test_a_live_connection_is_left_alone() -> None:
    connection = ReconnectingChannel(channel(), lambda _: channel())
    assert changes(connection, 1000 * MS) == []
    assert not connection.lost


def test_a_lost_connection_is_redialled_and_restored() -> None:
    fresh = channel(ready=False)
    connection = ReconnectingChannel(channel(closed="gone"), lambda _: fresh)
    assert not connection.lost
    assert [change for _, change in changes(connection, 200 * MS)] == [
        ConnectionChange.INTERRUPTED,
        ConnectionChange.DIALLED,
    ]
    assert connection.channel is fresh
    fresh.ready = True
    assert [change for _, change in changes(connection, 300 * MS, start_ns=200 * MS)] == [ConnectionChange.RESTORED]


def test_a_new_connection_that_changes_its_socket_is_polled_on_the_new_one() -> None:
    fresh = channel(ready=False)
    connection = ReconnectingChannel(channel(closed="gone"), lambda _: fresh)
    changes(connection, 200 * MS)
    fresh.file = 8
    assert [change for _, change in changes(connection, 300 * MS, start_ns=200 * MS)] == [ConnectionChange.DIALLED]
    fresh.ready = True
    assert [change for _, change in changes(connection, 400 * MS, start_ns=300 * MS)] == [ConnectionChange.RESTORED]


def test_backoff_grows_to_a_limit_and_every_address_is_tried() -> None:
    tries: list[tuple[int, int]] = []
    now = SimpleNamespace(ns=0)

    def refuse(attempt: int) -> Any:
        tries.append((attempt, now.ns))
        raise PeerError("refused the connection")

    connection = ReconnectingChannel(channel(closed="gone"), refuse)
    for now.ns in range(0, 60_000 * MS, 5 * MS):
        connection.step(now.ns, SynchronousDialPool())
    assert [attempt for attempt, _ in tries] == list(range(1, len(tries) + 1))
    gaps_ns = [after - before for (_, before), (_, after) in itertools.pairwise(tries)]
    for number, gap_ns in enumerate(gaps_ns, 2):
        max_ns = min(FIRST_BACKOFF_NS << (number - 1), MAX_BACKOFF_NS)
        assert max_ns / 2 <= gap_ns <= max_ns + 20 * MS
    assert len(set(gaps_ns[-10:])) > 1, "connections must not reconnect in lockstep"
    assert not connection.lost


def test_a_handshake_without_an_answer_is_abandoned() -> None:
    silent = channel(ready=False)
    connection = ReconnectingChannel(channel(closed="gone"), lambda _: silent)
    changes(connection, HANDSHAKE_TIMEOUT_NS + 500 * MS, step_ns=50 * MS)
    assert silent.closes >= 1
    assert not connection.lost


def test_closing_does_not_wait_for_a_host_that_does_not_answer() -> None:
    answers = threading.Event()
    late = channel()

    def dial() -> Any:
        answers.wait(60)
        return late

    pool = DialPool()
    dialling = pool.submit(dial)
    pool.close()
    assert not dialling.done(), "it came back while the host was silent"
    answers.set()
    dialling.result(60)
    deadline_s = time.monotonic() + 60
    while not late.closes and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert late.closes == 1, "nobody else will close it"
