"""What happens when a connection is lost in the middle of a run?

Without failover it stays lost. With failover it is reconnected, at each address in turn, after an exponential backoff
with jitter, so that connections do not reconnect in lockstep. Dialling happens in a thread, because a host that does
not answer must not hold up the live connections. Messages in flight are left to the engine.
"""

import random
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from enum import Enum
from typing import Any, Generic, TypeVar

from crescendo.load.protocols.interfaces import LoadChannel
from crescendo.model.errors import CrescendoError

FIRST_BACKOFF_NS = 50_000_000
MAX_BACKOFF_NS = 2_000_000_000
HANDSHAKE_TIMEOUT_NS = 5_000_000_000
_MAX_THREADS = 4

AnyChannel = TypeVar("AnyChannel", bound=LoadChannel)


class ConnectionChange(Enum):
    """What has changed since the last check of the connection."""

    NONE = 0
    LOST = 1  # lost for good
    INTERRUPTED = 2  # lost, and about to be reconnected
    DIALLED = 3  # there is a new socket; its handshake is in progress
    RESTORED = 4  # the new connection is ready


class _State(Enum):
    UP = 0
    BACKING_OFF = 1
    DIALLING = 2
    HANDSHAKE = 3
    DEAD = 4


class DialPool:
    """The threads in which an engine redials its connections; started when the first one is needed."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._dialling: set[Future[Any]] = set()

    def submit(self, dial: Callable[[], AnyChannel]) -> "Future[AnyChannel]":
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="dial")
        dialling = self._pool.submit(dial)
        self._dialling.add(dialling)
        return dialling

    def taken(self, dialled: "Future[AnyChannel]") -> AnyChannel:
        """The result of a dial that has ended; from now on the caller closes it."""
        self._dialling.discard(dialled)
        return dialled.result()

    def close(self) -> None:
        """Without waiting for hosts that do not answer: what is dialled from now on is closed at once."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        for dialling in self._dialling:
            dialling.add_done_callback(_close_unused)


def _close_unused(dialled: "Future[Any]") -> None:
    if not dialled.cancelled() and dialled.exception() is None:
        dialled.result().close()


class ReconnectingChannel(Generic[AnyChannel]):
    """One connection of an engine, and its successors."""

    def __init__(
        self, channel: AnyChannel, redial: Callable[[int], AnyChannel] | None = None, *, seed: int = 0
    ) -> None:
        self.channel = channel
        self._redial = redial
        self._state = _State.UP
        self._attempt = 0  # since the connection was last up
        self._due_ns = 0
        self._fileno = -1  # of the new connection, during its handshake
        self._dialling: Future[AnyChannel] | None = None
        self._random = random.Random(seed)  # noqa: S311
        self.reason = ""

    @property
    def lost(self) -> bool:
        """Whether the connection is lost for good."""
        return self._state is _State.DEAD or (self._redial is None and self.channel.closed is not None)

    @property
    def in_handshake(self) -> bool:
        """Whether there is a new connection that has not been found ready yet; it may be, since the last check."""
        return self._state is _State.HANDSHAKE

    def step(self, now_ns: int, dial_pool: DialPool) -> ConnectionChange:
        """Check the connection and take the next step of reconnecting it. Called a few times per second."""
        match self._state:
            case _State.UP if self.channel.closed is not None:
                self.reason = self.channel.closed
                if self._redial is None:
                    self._state = _State.DEAD
                    return ConnectionChange.LOST
                self._back_off(now_ns)
                return ConnectionChange.INTERRUPTED
            case _State.BACKING_OFF if now_ns >= self._due_ns and self._redial is not None:
                redial, attempt = self._redial, self._attempt
                self._dialling = dial_pool.submit(lambda: redial(attempt))
                self._state = _State.DIALLING
            case _State.DIALLING if self._dialling is not None and self._dialling.done():
                return self._dial_finished(self._dialling, now_ns, dial_pool)
            case _State.HANDSHAKE:
                return self._check_handshake(now_ns)
        return ConnectionChange.NONE

    def _dial_finished(self, dialled: "Future[AnyChannel]", now_ns: int, dial_pool: DialPool) -> ConnectionChange:
        self._dialling = None
        try:
            self.channel = dial_pool.taken(dialled)
        except CrescendoError as err:
            self.reason = str(err)
            self._back_off(now_ns)
            return ConnectionChange.NONE
        self._state = _State.HANDSHAKE
        self._due_ns = now_ns + HANDSHAKE_TIMEOUT_NS
        self._fileno = self.channel.fileno()
        return ConnectionChange.DIALLED

    def _check_handshake(self, now_ns: int) -> ConnectionChange:
        if self.channel.ready:
            self._state = _State.UP
            self._attempt = 0
            return ConnectionChange.RESTORED
        if self.channel.closed is not None or now_ns > self._due_ns:
            self.reason = self.channel.closed or "the system did not answer"
            self.channel.close()
            self._back_off(now_ns)
        elif self._fileno != self.channel.fileno():  # refused, the channel tries again in another way on a new socket
            self._fileno = self.channel.fileno()
            return ConnectionChange.DIALLED
        return ConnectionChange.NONE

    def _back_off(self, now_ns: int) -> None:
        max_ns = min(FIRST_BACKOFF_NS << min(self._attempt, 20), MAX_BACKOFF_NS)
        self._due_ns = now_ns + int(max_ns * self._random.uniform(0.5, 1.0))
        self._attempt += 1
        self._state = _State.BACKING_OFF
