"""How does the load engine speak MLMQ?

Senders pipeline one request a message; its answer is the settlement, and what the broker refused is reported as such,
never sent again in secret. Receivers keep several dequeues waiting at the broker; at least once they hold messages on a
lease and acknowledge them, at most once they take them. What is the same both ways is in `mlmq_line`.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np

from crescendo.load.protocols.base_channel import BaseSendChannel, prefetch_of
from crescendo.load.protocols.interfaces import ReceivedMessages, SettledMessages
from crescendo.load.protocols.mlmq_channel import FIRST_NUMBER, PASSING, SILENCE_NS, MlmqChannel
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
    # Nobody knows whether these were stored; of all others nothing was.
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
        self._call()

    def room(self) -> int:
        if not self._clear:
            return 0
        return max(min(MAX_UNANSWERED - self._unanswered, self.capacity), 0)

    def pump(self) -> list[SettledMessages]:
        places: dict[Settlement, list[int]] = {}
        for frame in self._events():
            match frame.value:
                case Sent():
                    places.setdefault(Settlement.ACCEPTED, []).append(frame.request - FIRST_NUMBER)
                case Refused(reason=reason):
                    settlement = _SETTLEMENTS.get(reason, Settlement.REJECTED)
                    places.setdefault(settlement, []).append(frame.request - FIRST_NUMBER)
                case other:
                    self._fail(f"the system answered a message with {type(other).__name__}")
        if not self._waits_for_outcomes:
            return []
        return [self._outcome_at(np.array(found, np.int64), settlement) for settlement, found in places.items()]

    def _enter(self) -> None:
        for batch in self._batches.values():
            batch.address(self._client, self._queue)

    def _name_of(self, number: int) -> str:
        return Send.__name__

    def _new_batch(self, size: int) -> SendBatch:
        batch = SendBatch(body_length=size, priority=self._priority)
        batch.address(self._client, self._queue)
        return batch

    def _send_batch(self, count: int, place: int) -> None:
        first, of = FIRST_NUMBER + place, self._tiers.of
        self._count(count)
        for number in range(first + -first % of, first + count, of):
            self._wants_times(number, number)
        self._connection.outgoing.append(self._batch.frames(first, count, of))

    def _prepare(self, count: int, place: int) -> memoryview:
        frames: memoryview = self._batch.frames(FIRST_NUMBER + place, count, self._tiers.of)
        return frames

    def _depart(self, place: int, sent_ns: list[int]) -> None:
        first, of = FIRST_NUMBER + place, self._tiers.of
        self._count(len(sent_ns))
        for row in range(-first % of, len(sent_ns), of):
            self._asked_ns[first + row] = sent_ns[row]

    def _send_one(self, body: bytes, place: int) -> None:
        number = FIRST_NUMBER + place
        self._count(1)
        request = Send(self._client, body, (self._queue,), self._priority)
        self._connection.ask(number, request, wants_times=self._wants_times(number, number))


class MlmqReceiver(MlmqChannel):
    """A receiving channel. It asks for messages from `begin` on."""

    def __init__(self, url: str, group: Group, *, batching: bool = True) -> None:
        super().__init__(url, group, batching=batching)
        prefetch = prefetch_of(group, PREFETCH)
        self.window = prefetch
        self._idle = min(DEQUEUES, prefetch)  # dequeues that may be asked
        self._most = min(-(-prefetch // self._idle), MAX_MESSAGES_PER_ANSWER)
        self._lease_ms = 0
        if group.settle is not Settle.AT_MOST_ONCE:
            self._lease_ms = min(LEASE_MS + 2 * prefetch * group.consuming_ns // 10**6, MAX_LEASE_MS)
        self._begun = False
        self._number = FIRST_NUMBER
        self._places: Counter[type] = Counter()  # by kind, because kinds may take turns
        self._refused = 0  # dequeues to be asked again, a little later
        self._unsettled: list[Delivery] = []
        self._settling: dict[int, tuple[Delivery, ...]] = {}  # acknowledgements that are not answered yet
        self._unheard: list[Delivery] = []  # those of them that were refused, and go out again a little later
        self._call()

    def begin(self) -> None:
        self._begun = True
        self.settle()

    def pump(self) -> Iterator[ReceivedMessages]:
        for frame in self._events():
            deliveries = self._settling.pop(frame.request, None)
            match frame.value:
                case Messages(messages=messages) if deliveries is None:
                    self._idle += 1
                    yield from _arrived(messages)
                    if self._lease_ms:
                        self._unsettled += [Delivery(message.id, message.delivery) for message in messages]
                case Settled() if deliveries is not None:
                    pass  # what was no longer ours is handed out again, and says so
                case Refused(reason=reason) if reason in PASSING and deliveries is not None:
                    self._unheard += deliveries
                case Refused(reason=reason) if reason in PASSING:
                    self._refused += 1
                case Refused(reason=reason, text=text):
                    self._fail(f"the system refused {self._group.address}: {reason.name.lower()}: {text}")
                case other:
                    self._fail(f"the system answered out of turn, with {type(other).__name__}")

    def settle(self) -> None:
        if self.closed is not None:
            return
        deliveries, self._unsettled = self._unsettled, []
        self._acknowledge(deliveries)
        if self._begun:
            idle, self._idle = self._idle, 0
            self._dequeue(idle)
        self.flush()

    def keep_alive(self, now_ns: int) -> None:
        """Also the time to repeat what was refused for now: at once would be a busy loop around a busy broker."""
        super().keep_alive(now_ns)
        if self.closed is None and (self._refused or self._unheard):
            refused, self._refused = self._refused, 0
            unheard, self._unheard = self._unheard, []
            self._acknowledge(unheard)
            self._dequeue(refused)
            self.flush()

    def _acknowledge(self, deliveries: list[Delivery]) -> None:
        for at in range(0, len(deliveries), MAX_MESSAGES_PER_ANSWER):
            some = tuple(deliveries[at : at + MAX_MESSAGES_PER_ANSWER])
            self._settling[self._ask(Acknowledge(self._client, some))] = some

    def _dequeue(self, requests: int) -> None:
        for _ in range(requests):
            self._ask(Dequeue(self._client, Query(self._queue), self._most, self._lease_ms, WAIT_MS))

    def _enter(self) -> None:
        """Nothing more: `begin` asks for the first messages."""

    def _idle_timeout_ns(self) -> int:
        return SILENCE_NS + WAIT_MS * 10**6

    def _name_of(self, number: int) -> str:
        return Acknowledge.__name__ if number in self._settling else Dequeue.__name__

    def _ask(self, request: Request) -> int:
        number, self._number = self._number, self._number + 1
        self._count(1)
        self._connection.ask(
            number, request, wants_times=self._wants_times(number, self._places[type(request)])
        )  # fmt: skip
        self._places[type(request)] += 1
        return number


def _arrived(messages: Iterable[Message]) -> Iterator[ReceivedMessages]:
    """Neighbours of one size that are all new, or all handed out before, are one batch."""
    for (size, again), alike in itertools.groupby(messages, lambda one: (len(one.content), one.redelivered)):
        contents = [message.content for message in alike]
        yield ReceivedMessages(np.frombuffer(b"".join(contents), np.uint8).reshape(len(contents), size), again, False)
