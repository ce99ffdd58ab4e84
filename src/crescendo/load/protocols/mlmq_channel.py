"""What do sending and receiving connections to MLMQ have in common?

A connection goes to one of the brokers in its URL, in rotation, registers as a client of its own, and finds or creates
the public queue of its group. A sample of its requests asks for its times, which become spans. MLMQ only answers
requests, so silence counts only while one is unanswered. Sending and dequeueing are left to `mlmq`.
"""

import itertools
import os
import secrets
import time
from abc import abstractmethod
from collections import deque
from enum import IntEnum
from typing import Any

from crescendo.client.mlmq import brokers_of
from crescendo.load.engine.request_spans import RequestSpans, Spans
from crescendo.load.protocols.base_channel import BaseChannel
from crescendo.model.errors import PeerError
from crescendo.model.workload import Group
from crescendo.wire.mlmq.codec import Codec, Frame, Times, Unreadable
from crescendo.wire.mlmq.operations import (
    TYPES,
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
"""About this many requests per second of each connection ask for their times; all of them if there are fewer."""

FIRST_NUMBER = 16
"""The number of the first request of the load; those below are for setup."""

IDLE_TIMEOUT_NS = 30 * 10**9
TRANSIENT_REFUSALS = frozenset({Refusal.OVERLOADED, Refusal.UNAVAILABLE, Refusal.INTERNAL})
_RETRY_NS = 50_000_000
_UNPACED_SAMPLE_EVERY = 64
_MAX_DURATION_NS = 2**53  # a broker that reports more than a hundred days is wrong, and no column could hold it
_READ_BYTES = 64 * 1024
_TIERS = ("receive", "queue wait", "pool wait", "database", "send", "wait for a message")
_broker_turns = itertools.count(os.getpid())  # so that processes with one connection each do not all choose one broker


class SetupRequest(IntEnum):
    """Request numbers that are not load."""

    CONNECTION = 0  # never requested: messages that the broker sends on its own
    REGISTRATION = 1
    QUEUE = 2


class _CodecAdapter:
    """Adapts MLMQ's codec to what `BaseChannel` drives."""

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

    def send_request(self, number: int, request: Request, *, wants_times: bool = False) -> None:
        self.outgoing.append(memoryview(self._codec.encode(number, request, wants_times=wants_times)))


class MlmqChannel(BaseChannel):
    """One connection, in either direction."""

    _connection: _CodecAdapter

    def __init__(self, url: str, group: Group, *, batching: bool) -> None:
        brokers = brokers_of(url)
        super().__init__(url, group, batching=batching)
        host, _, port = brokers[next(_broker_turns) % len(brokers)].rpartition(":")
        self._host, self._port = host, int(port)
        self._client = self._queue = 0
        self._unanswered = 0
        self._unanswered_since_ns = 0  # since then at least one request was unanswered
        self._spans = RequestSpans(max(1, round(group.rate / SPANS_PER_S)) if group.rate else _UNPACED_SAMPLE_EVERY)
        self._setting_up: tuple[SetupRequest, Request] | None = None  # the last setup request
        self._postponed: tuple[int, SetupRequest, Request] | None = None  # when to send it again
        self._requested_ns: dict[int, int] = {}  # send times of the requests that asked for their times

    def _connect(self) -> None:
        self._dial(_CodecAdapter())
        self._set_up(SetupRequest.REGISTRATION, Register(f"crescendo-{secrets.token_hex(8)}"))

    def flush(self) -> bool:
        if self._postponed is not None and time.monotonic_ns() >= self._postponed[0] and self.closed is None:
            _, setup, request = self._postponed
            self._set_up(setup, request)
        return super().flush()

    def keep_alive(self, now_ns: int) -> None:
        """MLMQ only answers requests, so silence counts only while one is unanswered."""
        since_ns = max(self.read_ns, self._unanswered_since_ns)
        if self.closed is None and self._unanswered and now_ns - since_ns > self._idle_timeout_ns():
            self._fail(f"the system has been silent for {(now_ns - since_ns) / 1e9:.0f} s")
        if self._postponed is not None:
            self.flush()

    def take_spans(self) -> list[Spans]:
        return self._spans.take()

    def peer_closed(self) -> bool:
        return True  # there is no close handshake, and settled messages have left the queue already

    def _send_close(self) -> None:
        """MLMQ has no close frame: closing the socket is enough."""

    def _idle_timeout_ns(self) -> int:
        return IDLE_TIMEOUT_NS

    def _heartbeat_interval_ns(self) -> int:
        return 0

    def _handle(self, event: Frame | Unreadable) -> bool:
        if isinstance(event, Unreadable):
            raise PeerError(f"the system sent an unreadable frame: {event.text}")
        if event.request:
            self._unanswered -= 1
        match event.request, event.value:
            case _, Refused(reason=Refusal.CLOSING, text=text):
                self._fail(f"the system is closing: {text}")
            case SetupRequest.REGISTRATION | SetupRequest.QUEUE, Refused(reason=reason) if (
                reason in TRANSIENT_REFUSALS and self._setting_up
            ):
                # Many connections at once may exceed the broker's request queue; each retries a little later.
                self._postponed = (self.read_ns + _RETRY_NS, *self._setting_up)
            case SetupRequest.CONNECTION | SetupRequest.REGISTRATION | SetupRequest.QUEUE, Refused(
                reason=reason, text=text
            ):
                self._fail(f"the system refused {self._group.address}: {reason.name.lower()}: {text}")
            case SetupRequest.REGISTRATION, Registered(client=client):
                self._client = client
                self._set_up(SetupRequest.QUEUE, CreateQueue(client, self._group.destination))
            case SetupRequest.QUEUE, QueueFound(queue=queue):
                self._queue = queue
                self._on_queue_found()
                self.ready = True
            case _:
                if event.times is not None:
                    self._record_times(event.request, event.value, event.times)
                return False
        return True

    def _set_up(self, setup: SetupRequest, request: Request) -> None:
        self._setting_up, self._postponed = (setup, request), None
        self._count_requests(1)
        self._connection.send_request(setup, request)

    def _count_requests(self, requests: int) -> None:
        """This many more requests are unanswered."""
        if not self._unanswered:
            self._unanswered_since_ns = time.monotonic_ns()
        self._unanswered += requests

    def _on_connection_error(self, reason: str) -> None:
        self._fail(reason if self._client else f"{reason}; is this an MLMQ port?")

    def _wants_times(self, number: int, position: int) -> bool:
        """Whether the request asks for its times; `position` counts the requests of its type."""
        if position % self._spans.sample_every:
            return False
        self._requested_ns[number] = time.monotonic_ns()
        return True

    def _record_times(self, number: int, answer: Answer, times: Times) -> None:
        requested_ns = self._requested_ns.pop(number, None)
        if requested_ns is not None and max(times) < _MAX_DURATION_NS:
            tiers = zip(_TIERS, times, strict=True) if times.wait_ns else zip(_TIERS, times[:-1], strict=False)
            self._spans.add(self._request_name(number), _outcome_of(answer), requested_ns, self.read_ns, tiers)

    @abstractmethod
    def _on_queue_found(self) -> None:
        """Called when client and queue are known."""

    @abstractmethod
    def _request_name(self, number: int) -> str:
        """The type of this request, as the name of its spans."""


def _outcome_of(answer: Any) -> str:
    if isinstance(answer, Refused):
        return answer.reason.name.lower()
    return "empty" if isinstance(answer, Messages) and not answer.messages else "ok"
