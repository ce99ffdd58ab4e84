"""How does a broker learn of messages that were sent through another broker?

Over PostgreSQL's LISTEN and NOTIFY, on a separate connection and outside the transactions that store messages: NOTIFY
inside them would serialise their commits. Arrivals during a notification go into the next one. Notices may be lost with
the connection; the poll of waiting dequeues finds the messages they announced.

Every broker sends heartbeats, and a broker that has heard no other for some time sends no notices: they would cost a
lone broker a tenth of its time. A new broker asks, and the others answer at once.
"""

import asyncio
import contextlib
import logging
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

import asyncpg

CHANNEL = "crescendo_mlmq_sent"
_MAX_KEYS = 250  # PostgreSQL limits a payload to 8,000 bytes; an entry takes at most 31
_PAUSE_S = 0.002  # per other broker, so that all together send few more than 500 notices a second
_RECONNECT_S = 0.5
_HEARTBEAT_S = 1.0
_ALONE_AFTER_S = 3.5
_HELLO = "?"
_HEARTBEAT_ALONE_S = 10.0  # nobody is there to hear it, except a broker that was suspended
_INTERRUPTED = (
    OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError,
)  # fmt: skip

log = logging.getLogger(__name__)

Connect = Callable[[], Awaitable[Any]]
OnArrivals = Callable[[int, int], None]  # key of the waiting room, messages


class Notices:
    """Notifies other brokers and listens to them. Runs as one task until it is cancelled."""

    def __init__(self, connect: Connect, on_arrivals: OnArrivals, on_gap: Callable[[], None]) -> None:
        """`on_gap` is called when notices may have been missed."""
        self._connect = connect
        self._on_arrivals = on_arrivals
        self._on_gap = on_gap
        self._name = secrets.token_hex(4)
        self._pending: Counter[int] = Counter()
        self._wake_up = asyncio.Event()
        self._alone = False
        self._last_heard_s = 0.0
        self._others: dict[str, float] = {}  # name -> when it was last heard

    def notify(self, key: int, messages: int) -> None:
        """Messages arrived that no dequeue waited for here. Never blocks."""
        if self._alone:
            return
        if len(self._pending) < _MAX_KEYS or key in self._pending:
            self._pending[key] += messages
            self._wake_up.set()

    async def run(self) -> None:
        while True:
            try:
                await self._session()
            except _INTERRUPTED as err:
                log.debug("notices between brokers are interrupted: %s", err)
            await asyncio.sleep(_RECONNECT_S)

    async def _session(self) -> None:
        connection = await self._connect()
        try:
            await connection.execute("SET synchronous_commit = off")  # a notice stores nothing
            await connection.add_listener(CHANNEL, self._on_notice)
            await self._exchange_notices(connection)
        finally:
            with contextlib.suppress(Exception):
                connection.terminate()

    async def _exchange_notices(self, connection: Any) -> None:
        self._last_heard_s = last_sent_s = monotonic()  # assume that there are others until proven otherwise
        self._alone = False
        self._on_gap()
        content = _HELLO
        while True:
            await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, f"{self._name} {content}")
            if monotonic() - last_sent_s > _ALONE_AFTER_S + (_HEARTBEAT_ALONE_S if self._alone else 0.0):
                self._on_gap()  # we stalled, and others may have stopped notifying us
            last_sent_s = monotonic()
            await asyncio.sleep(self.pause_s())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_HEARTBEAT_ALONE_S if self._alone else _HEARTBEAT_S):
                    await self._wake_up.wait()
            self._wake_up.clear()
            self._alone = monotonic() - self._last_heard_s > _ALONE_AFTER_S
            arrivals, self._pending = self._pending, Counter()
            content = ",".join(f"{key}:{count}" for key, count in arrivals.items())

    def _on_notice(self, _connection: Any, _pid: int, _channel: str, payload: object) -> None:
        name, _, content = str(payload).partition(" ")
        if name == self._name:
            return
        self._last_heard_s, self._alone = monotonic(), False
        self._others[name] = self._last_heard_s
        if content == _HELLO:
            self._wake_up.set()  # whatever we send next is an answer
            return
        for entry in content.split(","):
            key, _, count = entry.partition(":")
            with contextlib.suppress(ValueError):  # any client of the database may notify; foreign payloads are ignored
                self._on_arrivals(int(key), max(int(count), 1))

    def pause_s(self) -> float:
        """The time between two notices. Each is read by all brokers: the more there are, the rarer they must be."""
        silent_s = monotonic() - _ALONE_AFTER_S
        self._others = {name: heard_s for name, heard_s in self._others.items() if heard_s > silent_s}
        return _PAUSE_S * max(len(self._others), 1)
