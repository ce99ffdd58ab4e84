"""How does the load engine speak MLMQ?

Senders pipeline one request per message; its answer is the settlement. A refused message is reported as such and never
silently resent. Receivers keep several dequeues waiting at the broker. With at-least-once they hold messages on a lease
and acknowledge them, with at-most-once they take them. `mlmq_channel` holds what both directions share.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np

from crescendo.load.protocols.base_channel import BaseSendChannel, prefetch_of
from crescendo.load.protocols.interfaces import ReceivedMessages, SettledMessages
from crescendo.load.protocols.mlmq_channel import FIRST_NUMBER, IDLE_TIMEOUT_NS, TRANSIENT_REFUSALS, MlmqChannel
from crescendo.model.workload import STAMP_BYTES, Group, Settle
from crescendo.record.schema import Settlement
from crescendo.wire.mlmq.batch import SendBatch
from crescendo.wire.mlmq.operations import (
    MAX_LEASE_MS,
    MAX_MESSAGES_PER_ANSWER,
    Acknowledge,
    Delivery,
    Dequeue,
    Message,
    Messages,
    Query,
    Refusal,
    Refused,
    Request,
    Send,
    Sent,
    Settled,
)

MAX_UNANSWERED = 256
DEQUEUES = 4
WAIT_MS = 2000
LEASE_MS = 30_000
PREFETCH = DEQUEUES * MAX_MESSAGES_PER_ANSWER
_PRIORITY = 5
_SETTLEMENTS = {
    # With the first two the message may have been stored; with all others it was not.
    Refusal.UNAVAILABLE: Settlement.MODIFIED,
    Refusal.INTERNAL: Settlement.MODIFIED,
    Refusal.NO_SUCH_QUEUE: Settlement.RELEASED,
    Refusal.NO_SUCH_CLIENT: Settlement.RELEASED,
}


class MlmqSender(BaseSendChannel, MlmqChannel):
    """A sending channel."""

    def __init__(self, url: str, group: Group, *, batching: bool = True) -> None:
        super().__init__(url, group, batching=batching)
        self._priority = group.target.options.priority or _PRIORITY
        self.resize(max(self._size, STAMP_BYTES))
        self._connect()

    def room(self) -> int:
        if not self._is_writable:
            return 0
        return max(min(MAX_UNANSWERED - self._unanswered, self.capacity), 0)

    def pump(self) -> list[SettledMessages]:
        positions: dict[Settlement, list[int]] = {}
        for frame in self._events():
            match frame.value:
                case Sent():
                    positions.setdefault(Settlement.ACCEPTED, []).append(frame.request - FIRST_NUMBER)
                case Refused(reason=reason):
                    settlement = _SETTLEMENTS.get(reason, Settlement.REJECTED)
                    positions.setdefault(settlement, []).append(frame.request - FIRST_NUMBER)
                case other:
                    self._fail(f"the system answered a message with {type(other).__name__}")
        if not self._waits_for_outcomes:
            return []
        return [
            self._settled_positions(np.array(found, np.int64), settlement) for settlement, found in positions.items()
        ]

    def _on_queue_found(self) -> None:
        for batch in self._batches.values():
            batch.address(self._client, self._queue)

    def _request_name(self, number: int) -> str:
        return Send.__name__

    def _new_batch(self, size: int) -> SendBatch:
        batch = SendBatch(body_length=size, priority=self._priority)
        batch.address(self._client, self._queue)
        return batch

    def _send_batch(self, count: int, position: int) -> None:
        first, sample_every = FIRST_NUMBER + position, self._spans.sample_every
        self._count_requests(count)
        for number in range(first + -first % sample_every, first + count, sample_every):
            self._wants_times(number, number)
        self._connection.outgoing.append(self._batch.frames(first, count, sample_every))

    def _prepare(self, count: int, position: int) -> memoryview:
        frames: memoryview = self._batch.frames(FIRST_NUMBER + position, count, self._spans.sample_every)
        return frames

    def _on_prepared_sent(self, position: int, sent_ns: list[int]) -> None:
        first, sample_every = FIRST_NUMBER + position, self._spans.sample_every
        self._count_requests(len(sent_ns))
        for row in range(-first % sample_every, len(sent_ns), sample_every):
            self._requested_ns[first + row] = sent_ns[row]

    def _send_one(self, body: bytes, position: int) -> None:
        number = FIRST_NUMBER + position
        self._count_requests(1)
        request = Send(self._client, body, (self._queue,), self._priority)
        self._connection.send_request(number, request, wants_times=self._wants_times(number, number))


class MlmqReceiver(MlmqChannel):
    """A receiving channel. It requests messages from `begin` on."""

    def __init__(self, url: str, group: Group, *, batching: bool = True) -> None:
        super().__init__(url, group, batching=batching)
        prefetch = prefetch_of(group, PREFETCH)
        self.window = prefetch
        self._idle_dequeues = min(DEQUEUES, prefetch)  # dequeues that may be requested
        self._max_messages = min(-(-prefetch // self._idle_dequeues), MAX_MESSAGES_PER_ANSWER)
        self._lease_ms = 0
        if group.settle is not Settle.AT_MOST_ONCE:
            self._lease_ms = min(LEASE_MS + 2 * prefetch * group.consuming_ns // 10**6, MAX_LEASE_MS)
        self._begun = False
        self._number = FIRST_NUMBER
        self._request_counts: Counter[type] = Counter()  # by type, because types may alternate
        self._refused_dequeues = 0  # to be requested again, a little later
        self._unsettled: list[Delivery] = []
        self._settling: dict[int, tuple[Delivery, ...]] = {}  # unanswered acknowledgements
        self._refused_acks: list[Delivery] = []  # to be sent again, a little later
        self._connect()

    def begin(self) -> None:
        self._begun = True
        self.settle()

    def pump(self) -> Iterator[ReceivedMessages]:
        for frame in self._events():
            deliveries = self._settling.pop(frame.request, None)
            match frame.value:
                case Messages(messages=messages) if deliveries is None:
                    self._idle_dequeues += 1
                    yield from _in_batches(messages)
                    if self._lease_ms:
                        self._unsettled += [Delivery(message.id, message.delivery) for message in messages]
                case Settled() if deliveries is not None:
                    pass  # messages whose lease had expired are redelivered, and marked so
                case Refused(reason=reason) if reason in TRANSIENT_REFUSALS and deliveries is not None:
                    self._refused_acks += deliveries
                case Refused(reason=reason) if reason in TRANSIENT_REFUSALS:
                    self._refused_dequeues += 1
                case Refused(reason=reason, text=text):
                    self._fail(f"the system refused {self._group.address}: {reason.name.lower()}: {text}")
                case other:
                    self._fail(f"the system sent an unexpected answer: {type(other).__name__}")

    def settle(self) -> None:
        if self.closed is not None:
            return
        deliveries, self._unsettled = self._unsettled, []
        self._acknowledge(deliveries)
        if self._begun:
            idle, self._idle_dequeues = self._idle_dequeues, 0
            self._dequeue(idle)
        self.flush()

    def keep_alive(self, now_ns: int) -> None:
        """Also repeats refused requests: repeating them at once would be a busy loop around a busy broker."""
        super().keep_alive(now_ns)
        if self.closed is None and (self._refused_dequeues or self._refused_acks):
            refused, self._refused_dequeues = self._refused_dequeues, 0
            refused_acks, self._refused_acks = self._refused_acks, []
            self._acknowledge(refused_acks)
            self._dequeue(refused)
            self.flush()

    def _acknowledge(self, deliveries: list[Delivery]) -> None:
        for at in range(0, len(deliveries), MAX_MESSAGES_PER_ANSWER):
            some = tuple(deliveries[at : at + MAX_MESSAGES_PER_ANSWER])
            self._settling[self._send_request(Acknowledge(self._client, some))] = some

    def _dequeue(self, requests: int) -> None:
        for _ in range(requests):
            self._send_request(Dequeue(self._client, Query(self._queue), self._max_messages, self._lease_ms, WAIT_MS))

    def _on_queue_found(self) -> None:
        """Nothing more: `begin` requests the first messages."""

    def _idle_timeout_ns(self) -> int:
        return IDLE_TIMEOUT_NS + WAIT_MS * 10**6

    def _request_name(self, number: int) -> str:
        return Acknowledge.__name__ if number in self._settling else Dequeue.__name__

    def _send_request(self, request: Request) -> int:
        number, self._number = self._number, self._number + 1
        self._count_requests(1)
        self._connection.send_request(
            number, request, wants_times=self._wants_times(number, self._request_counts[type(request)])
        )  # fmt: skip
        self._request_counts[type(request)] += 1
        return number


def _in_batches(messages: Iterable[Message]) -> Iterator[ReceivedMessages]:
    """One batch per run of messages with the same size that are all new or all redelivered."""
    for (size, again), alike in itertools.groupby(messages, lambda one: (len(one.content), one.redelivered)):
        contents = [message.content for message in alike]
        yield ReceivedMessages(np.frombuffer(b"".join(contents), np.uint8).reshape(len(contents), size), again, False)
