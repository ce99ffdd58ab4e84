"""What is the same about a connection to MLMQ, whichever way messages go?

It goes to one of the brokers that its URL names, by turns, registers as a client of its own, and finds or makes the
public queue of its group. A share of its requests asks for its times, which become spans. MLMQ speaks only when it is
asked, so silence counts while something is unanswered. What is asked for, sending or dequeueing, is left to `mlmq`.
"""

import itertools
import os
import secrets
import time
from abc import abstractmethod
from collections import deque
from enum import IntEnum
from typing import Any

from crescendo.client.mlmq import TYPES, brokers_of
from crescendo.load.engine.request_spans import RequestSpans, Spans
from crescendo.load.protocols.base_channel import BaseChannel
from crescendo.model.errors import PeerError
from crescendo.model.workload import Group
from crescendo.wire.mlmq.codec import Codec, Frame, Times, Unreadable
from crescendo.wire.mlmq.operations import (
    Answer,
    CreateQueue,
    Messages,
    QueueFound,
    Refusal,
    Refused,
    Register,
    Registered,
    Request,
)

SPANS_PER_S = 100
"""About so many requests a second of each connection ask for their times; every one where there are fewer."""

FIRST_NUMBER = 16
"""The number of the first request of the load; those below are for setting up."""

SILENCE_NS = 30 * 10**9
PASSING = frozenset({Refusal.OVERLOADED, Refusal.UNAVAILABLE, Refusal.INTERNAL})
_PAUSE_NS = 50_000_000
_UNBOUNDED_ONE_OF = 64
_LONGEST_NS = 2**53  # a broker that says more than a hundred days talks nonsense, which no column could hold
_READ_BYTES = 64 * 1024
_TIERS = ("receive", "queue wait", "pool wait", "database", "send", "wait for a message")
_turns = itertools.count(os.getpid())  # so that processes with one connection each do not all begin with one broker


class About(IntEnum):
    """Numbers of requests that are not load."""

    CONNECTION = 0  # never asked: what the broker says of its own accord
    REGISTRATION = 1
    QUEUE = 2


class _Wire:
    """MLMQ's codec as `BaseChannel` drives codecs."""

    def __init__(self) -> None:
        self.outgoing: deque[memoryview] = deque()
        self._codec = Codec(TYPES)
        self._buffer = memoryview(bytearray(_READ_BYTES))

    def receive_buffer(self) -> memoryview:
        return self._buffer

    def received(self, count: int) -> None:
        self._codec.receive(self._buffer[:count])

    def next_event(self) -> Frame | Unreadable | None:
        return self._codec.next_frame()

    def ask(self, number: int, request: Request, *, wants_times: bool = False) -> None:
        self.outgoing.append(memoryview(self._codec.encode(number, request, wants_times=wants_times)))


class MlmqChannel(BaseChannel):
    """One connection, either way."""

    _connection: _Wire

    def __init__(self, url: str, group: Group, *, batching: bool) -> None:
        brokers = brokers_of(url)
        super().__init__(url, group, batching=batching)
        host, _, port = brokers[next(_turns) % len(brokers)].rpartition(":")
        self._host, self._port = host, int(port)
        self._client = self._queue = 0
        self._unanswered = 0
        self._asking_since_ns = 0  # since then there was always an unanswered request
        self._tiers = RequestSpans(max(1, round(group.rate / SPANS_PER_S)) if group.rate else _UNBOUNDED_ONE_OF)
        self._setting_up: tuple[About, Request] | None = None  # what was asked last
        self._postponed: tuple[int, About, Request] | None = None  # when it is to be asked again
        self._asked_ns: dict[int, int] = {}  # when those requests left that asked for their times

    def _call(self) -> None:
        self._dial(_Wire())
        self._set_up(About.REGISTRATION, Register(f"crescendo-{secrets.token_hex(8)}"))

    def flush(self) -> bool:
        if self._postponed is not None and time.monotonic_ns() >= self._postponed[0] and self.closed is None:
            _, about, request = self._postponed
            self._set_up(about, request)
        return super().flush()

    def keep_alive(self, now_ns: int) -> None:
        """MLMQ speaks only when it is asked, so silence counts while something is unanswered."""
        since_ns = max(self.read_ns, self._asking_since_ns)
        if self.closed is None and self._unanswered and now_ns - since_ns > self._idle_timeout_ns():
            self._fail(f"the system has been silent for {(now_ns - since_ns) / 1e9:.0f} s")
        if self._postponed is not None:
            self.flush()

    def take_spans(self) -> list[Spans]:
        return self._tiers.take()

    def peer_closed(self) -> bool:
        return True  # whatever was received is no longer in the queue; there is nothing left to be heard

    def _send_close(self) -> None:
        """There is none: who hangs up has left."""

    def _idle_timeout_ns(self) -> int:
        return SILENCE_NS

    def _heartbeat_interval_ns(self) -> int:
        return 0

    def _handle(self, event: Frame | Unreadable) -> bool:
        if isinstance(event, Unreadable):
            raise PeerError(f"the system sent what cannot be read: {event.text}")
        if event.request:
            self._unanswered -= 1
        match event.request, event.value:
            case _, Refused(reason=Refusal.CLOSING, text=text):
                self._fail(f"the system closes: {text}")
            case About.REGISTRATION | About.QUEUE, Refused(reason=reason) if reason in PASSING and self._setting_up:
                # Many connections at once may be more than the broker lets wait; each comes again a little later.
                self._postponed = (self.read_ns + _PAUSE_NS, *self._setting_up)
            case About.CONNECTION | About.REGISTRATION | About.QUEUE, Refused(reason=reason, text=text):
                self._fail(f"the system refused {self._group.address}: {reason.name.lower()}: {text}")
            case About.REGISTRATION, Registered(client=client):
                self._client = client
                self._set_up(About.QUEUE, CreateQueue(client, self._group.destination))
            case About.QUEUE, QueueFound(queue=queue):
                self._queue = queue
                self._enter()
                self.ready = True
            case _:
                if event.times is not None:
                    self._time(event.request, event.value, event.times)
                return False
        return True

    def _set_up(self, about: About, request: Request) -> None:
        self._setting_up, self._postponed = (about, request), None
        self._count(1)
        self._connection.ask(about, request)

    def _count(self, requests: int) -> None:
        """So many more are unanswered."""
        if not self._unanswered:
            self._asking_since_ns = time.monotonic_ns()
        self._unanswered += requests

    def _wants_times(self, number: int, place: int) -> bool:
        """Whether the request asks for its times; `place` counts the requests of its kind."""
        if place % self._tiers.of:
            return False
        self._asked_ns[number] = time.monotonic_ns()
        return True

    def _time(self, number: int, answer: Answer, times: Times) -> None:
        asked_ns = self._asked_ns.pop(number, None)
        if asked_ns is not None and max(times) < _LONGEST_NS:
            tiers = zip(_TIERS, times, strict=True) if times.wait_ns else zip(_TIERS, times[:-1], strict=False)
            self._tiers.add(self._name_of(number), _outcome_of(answer), asked_ns, self.read_ns, tiers)

    @abstractmethod
    def _enter(self) -> None:
        """Client and queue are known."""

    @abstractmethod
    def _name_of(self, number: int) -> str:
        """What kind of request this was."""


def _outcome_of(answer: Any) -> str:
    if isinstance(answer, Refused):
        return answer.reason.name.lower()
    return "empty" if isinstance(answer, Messages) and not answer.messages else "ok"
