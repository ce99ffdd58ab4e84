"""What happens when a connection is lost in the middle of a run?

Without further addresses it stays lost. With them it is made anew, at each address in turn, after a pause that grows
and is never quite the same, so that many connections do not all knock at once. Dialling happens in a thread, because a
host that does not answer must not hold up the connections that live. What was on its way is the engine's business.
"""

import random
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from enum import Enum
from typing import Generic, TypeVar

from crescendo.load.protocols.interfaces import LoadChannel
from crescendo.model.errors import CrescendoError

FIRST_PAUSE_NS = 50_000_000
LONGEST_PAUSE_NS = 2_000_000_000
GREETING_NS = 5_000_000_000
_DIALLERS = 4

AnyChannel = TypeVar("AnyChannel", bound=LoadChannel)


class ConnectionChange(Enum):
    """What a look at the connection showed."""

    NONE = 0
    LOST = 1  # it is over, and nobody will make it anew
    INTERRUPTED = 2  # it is over for now
    DIALLED = 3  # there is a new one, or one more that took its place, which is still being greeted
    RESTORED = 4  # the new one is ready


class _State(Enum):
    UP = 0
    PAUSING = 1
    DIALLING = 2
    GREETING = 3
    DEAD = 4


class DialPool:
    """The threads in which an engine's connections are made anew; started when the first one is needed."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None

    def submit(self, dial: Callable[[], AnyChannel]) -> "Future[AnyChannel]":
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_DIALLERS, thread_name_prefix="dial")
        return self._pool.submit(dial)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)


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
        self._file = -1  # what the one that is being greeted is watched by
        self._coming: Future[AnyChannel] | None = None
        self._random = random.Random(seed)  # noqa: S311
        self.reason = ""

    @property
    def lost(self) -> bool:
        """Over, for good."""
        return self._state is _State.DEAD or (self._redial is None and self.channel.closed is not None)

    def step(self, now_ns: int, diallers: DialPool) -> ConnectionChange:
        """Look at the connection, and do what is next. Called a few times a second."""
        match self._state:
            case _State.UP if self.channel.closed is not None:
                self.reason = self.channel.closed
                if self._redial is None:
                    self._state = _State.DEAD
                    return ConnectionChange.LOST
                self._pause(now_ns)
                return ConnectionChange.INTERRUPTED
            case _State.PAUSING if now_ns >= self._due_ns and self._redial is not None:
                redial, attempt = self._redial, self._attempt
                self._coming = diallers.submit(lambda: redial(attempt))
                self._state = _State.DIALLING
            case _State.DIALLING if self._coming is not None and self._coming.done():
                return self._answered(self._coming, now_ns)
            case _State.GREETING:
                return self._greeted(now_ns)
        return ConnectionChange.NONE

    def _answered(self, coming: "Future[AnyChannel]", now_ns: int) -> ConnectionChange:
        self._coming = None
        try:
            self.channel = coming.result()
        except CrescendoError as err:
            self.reason = str(err)
            self._pause(now_ns)
            return ConnectionChange.NONE
        self._state = _State.GREETING
        self._due_ns = now_ns + GREETING_NS
        self._file = self.channel.fileno()
        return ConnectionChange.DIALLED

    def _greeted(self, now_ns: int) -> ConnectionChange:
        if self.channel.ready:
            self._state = _State.UP
            self._attempt = 0
            return ConnectionChange.RESTORED
        if self.channel.closed is not None or now_ns > self._due_ns:
            self.reason = self.channel.closed or "the system did not answer"
            self.channel.close()
            self._pause(now_ns)
        elif self._file != self.channel.fileno():  # it was refused and asks in another way, on another socket
            self._file = self.channel.fileno()
            return ConnectionChange.DIALLED
        return ConnectionChange.NONE

    def _pause(self, now_ns: int) -> None:
        longest_ns = min(FIRST_PAUSE_NS << min(self._attempt, 20), LONGEST_PAUSE_NS)
        self._due_ns = now_ns + int(longest_ns * self._random.uniform(0.5, 1.0))
        self._attempt += 1
        self._state = _State.PAUSING
