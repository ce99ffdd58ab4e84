"""How does a broker learn of messages that were sent through another one?

Over PostgreSQL's LISTEN and NOTIFY, on one connection of its own and outside the transactions that store messages:
NOTIFY inside them would make their commits queue behind each other. What arrives while a notice is under way goes into
the next one. Notices may get lost with the connection; the poll of waiting dequeues finds what they would have told.

Every broker says now and then that it is there, and one that has heard of no other for some time tells nobody anything:
notices would cost a lonely broker a tenth of its time. A newcomer asks, and is answered at once.
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
_MAX_KEYS = 250  # 8,000 bytes are PostgreSQL's limit for a payload; an entry takes at most 31
_PAUSE_S = 0.002  # so that a busy broker sends at most 500 notices a second
_RECONNECT_S = 0.5
_SIGN_OF_LIFE_S = 1.0
_ALONE_AFTER_S = 3.5
_WHO_IS_THERE = "?"

log = logging.getLogger(__name__)

Connect = Callable[[], Awaitable[Any]]
Heard = Callable[[int, int], None]  # key of the waiting room, messages


class Notices:
    """Tells other brokers, and hears from them. Runs as one task until it is cancelled."""

    def __init__(self, connect: Connect, heard: Heard, missed: Callable[[], None]) -> None:
        """`missed` is called when notices may have come while nobody listened."""
        self._connect = connect
        self._heard = heard
        self._missed = missed
        self._name = secrets.token_hex(4)
        self._pending: Counter[int] = Counter()
        self._news = asyncio.Event()
        self._alone = False
        self._heard_s = 0.0

    def tell(self, key: int, messages: int) -> None:
        """Messages arrived that nobody waited for here. Never blocks."""
        if self._alone:
            return
        if len(self._pending) < _MAX_KEYS or key in self._pending:
            self._pending[key] += messages
            self._news.set()

    async def run(self) -> None:
        while True:
            try:
                await self._session()
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError) as err:
                log.debug("notices between brokers pause: %s", err)
            await asyncio.sleep(_RECONNECT_S)

    async def _session(self) -> None:
        connection = await self._connect()
        try:
            await connection.execute("SET synchronous_commit = off")  # a notice has nothing to keep
            await connection.add_listener(CHANNEL, self._on_notice)
            await self._converse(connection)
        finally:
            with contextlib.suppress(Exception):
                connection.terminate()

    async def _converse(self, connection: Any) -> None:
        self._heard_s = spoken_s = monotonic()  # until we know better there are others
        self._alone = False
        self._missed()
        words = _WHO_IS_THERE
        while True:
            await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, f"{self._name} {words}")
            if monotonic() - spoken_s > _ALONE_AFTER_S:
                self._missed()  # we were held up, and others may have taken us for gone
            spoken_s = monotonic()
            await asyncio.sleep(_PAUSE_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SIGN_OF_LIFE_S):
                    await self._news.wait()
            self._news.clear()
            self._alone = monotonic() - self._heard_s > _ALONE_AFTER_S
            told, self._pending = self._pending, Counter()
            words = ",".join(f"{key}:{count}" for key, count in told.items())

    def _on_notice(self, _connection: Any, _pid: int, _channel: str, payload: object) -> None:
        name, _, words = str(payload).partition(" ")
        if name == self._name:
            return
        self._heard_s, self._alone = monotonic(), False
        if words == _WHO_IS_THERE:
            self._news.set()  # whatever we say next is an answer
            return
        for entry in words.split(","):
            key, _, count = entry.partition(":")
            with contextlib.suppress(ValueError):  # anybody may send a notice; what is none of ours is ignored
                self._heard(int(key), max(int(count), 1))
