"""How do workers take requests from the queue, and how do many requests become one statement?

A worker takes all waiting requests of one kind, up to a limit, and serves them with one statement on one connection of
the pool. A dequeue that found nothing and may wait goes to the waiting room, and the worker moves on. Knows no socket;
knows the database only by its answers.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from time import monotonic_ns
from typing import Any, Final

from crescendo.mlmq.broker.call import ANY_QUEUE, Call, client_key
from crescendo.mlmq.broker.empty_queues import EmptyQueues
from crescendo.mlmq.broker.request_log import RequestLog
from crescendo.mlmq.broker.request_queue import RequestQueue
from crescendo.mlmq.broker.store import Store
from crescendo.mlmq.broker.waiting_room import WaitingRoom
from crescendo.model.errors import CrescendoError
from crescendo.wire.mlmq.operations import Abandon, Answer, Dequeue, Extend, Messages, Refusal, Refused, Send, SendMany

log = logging.getLogger(__name__)

NO_MESSAGES = Messages()
_SELECTIONS_PER_QUERY: Final = 1_000
Notify = Callable[[int, int], None]


class Workers:
    """W tasks on one queue, sharing one waiting room."""

    def __init__(self, queue: RequestQueue[Call], room_limit: int, store: Store, request_log: RequestLog) -> None:
        self.queue = queue
        self.room: WaitingRoom[Call] = WaitingRoom(room_limit, self._wait_expired)
        self.busy = 0
        self.draining = False
        self.notify_others: Notify = _notify_none
        self._store = store
        self._request_log = request_log
        self._empty_queues = EmptyQueues(self.room.arrivals, client_key)

    def submit(self, call: Call) -> bool:
        """Queue it for a worker, or park it if its queue is known to be empty. False: too many requests are waiting."""
        if (
            call.deadline_ns
            and isinstance(call.request, Dequeue)
            and self._empty_queues.is_known_empty(call.request)
            and not self.room.full
            and not self.draining
        ):
            self._park(call, monotonic_ns())
            return True
        if isinstance(call.request, Abandon):
            self._abandon(call, call.request)
        return self._enqueue(call)

    def _enqueue(self, call: Call) -> bool:
        kind = type(call.request)
        return self.queue.put(call, Send if kind is Dequeue else kind)  # these two share a statement

    def _park(self, call: Call, now_ns: int) -> None:
        self.room.park(call, call.keys, (call.deadline_ns - now_ns) / 1e9, call.selection)
        call.connection.park(call)

    async def work(self) -> None:
        """One worker. Ends only by cancellation."""
        while True:
            lane, calls = await self.queue.take()
            self.busy += 1
            try:
                await self._serve(calls)
            except Exception:
                log.exception("a worker failed to deliver answers")  # keep going: other requests need it
            finally:
                self.busy -= 1
                self.queue.done(lane)

    async def poll(self, every_s: float) -> None:
        """Periodically look for messages whose leases ended or whose notices were lost, and wake dequeues for them."""
        while True:
            await asyncio.sleep(every_s)
            selections = self.room.selections
            for first in range(0, len(selections), _SELECTIONS_PER_QUERY):
                await self._look(selections[first : first + _SELECTIONS_PER_QUERY])

    async def _look(self, selections: list[Any]) -> None:
        """One query for all waiting dequeues, and it writes nothing: waiting must stay cheap for any number."""
        try:
            available = await self._store.count_available(selections, self.queue.batch)
        except CrescendoError:
            return  # the health page tells; the next look tries again
        for selection, messages in zip(selections, available, strict=True):
            if messages:
                room = self.queue.limit - len(self.queue)  # new requests come first
                self._requeue(self.room.take_for(selection, min(messages, room)))

    def wake(self, key: int, messages: int) -> None:
        """Messages have arrived through another broker."""
        woken, _ = self.room.wake(key, messages)
        if key > ANY_QUEUE:
            woken += self.room.wake(ANY_QUEUE, messages)[0]
        self._requeue(woken)

    def forget_empty_queues(self) -> None:
        """Messages may have arrived without a notice: dequeues must query again."""
        self._empty_queues.forget()

    def drain(self) -> None:
        """Refuse all waiting dequeues, and let none wait any more."""
        self.draining = True
        for call in self.room.take_oldest(len(self.room)):
            call.waited(monotonic_ns())
            call.connection.answer(call, Refused(Refusal.CLOSING, "this broker is shutting down; ask another one"))

    def _abandon(self, call: Call, abandon: Abandon) -> None:
        """Its client no longer wants these answers: let the dequeues that wait for a message go."""
        slots = {(once.session, once.slot) for once in abandon.onces}
        for waiting in list(call.connection.parked):
            once = getattr(waiting.request, "once", None)
            if once is not None and (once.session, once.slot) in slots and self.room.remove(waiting):
                call.connection.parked.discard(waiting)
                waiting.waited(monotonic_ns())
                call.connection.answer(waiting, Refused(Refusal.STALE, "the client has abandoned this request"))

    def forget(self, calls: Iterable[Call]) -> None:
        """Their client has disconnected: take no message for it, and spend no wake-up on it."""
        for call in list(calls):
            self.room.remove(call)

    async def _serve(self, calls: list[Call]) -> None:
        group = self._with_waiting_dequeues(calls)
        if group:
            answers = await self._execute(group)
            self._deliver(group, answers, self._announce(group, answers))

    def _with_waiting_dequeues(self, taken: list[Call]) -> list[Call]:
        """Sends first, then new dequeues, then waiting dequeues for the queues that are sent to."""
        taken = [call for call in taken if not call.connection.closing]
        sends = [call for call in taken if isinstance(call.request, Send)]
        group = taken
        if sends:
            others = [call for call in taken if not isinstance(call.request, Send)]
            group = sends + others + self._claim_waiting(sends, self.queue.batch - len(taken))
        for call in group:
            if isinstance(call.request, Dequeue):
                call.arrivals_before = self._empty_queues.arrival_counts(call.request)
        return group

    def _deliver(self, group: list[Call], answers: list[Answer], arrivals: dict[int, int]) -> None:
        for call, answer in zip(group, answers, strict=True):
            if call.arrivals_before is not None and isinstance(call.request, Dequeue):
                # It has seen the messages of its own statement, too.
                queue, client = call.request.query.queue or ANY_QUEUE, client_key(call.request.client)
                call.arrivals_before = (
                    call.arrivals_before[0] + arrivals.get(queue, 0),
                    call.arrivals_before[1] + arrivals.get(client, 0),
                )
                self._empty_queues.record_result(call.request, answer, call.arrivals_before)
            elif isinstance(call.request, (Extend, Abandon)):
                self.forget_empty_queues()  # some messages may have been released
            if call.deadline_ns and answer == NO_MESSAGES:
                self._park_or_answer(call)
            else:
                call.connection.answer(call, answer)

    def _claim_waiting(self, sends: list[Call], limit: int) -> list[Call]:
        """Waiting dequeues for what is sent: they share its statement: faster, and one commit for both."""
        claimed: list[Call] = []
        for key, messages in _arrivals_of(call.request for call in sends).items():
            if len(claimed) >= limit:
                break
            claimed += [call for call, _ in self.room.claim(key, min(messages, limit - len(claimed)))]
        now_ns = monotonic_ns()
        for call in claimed:
            call.waited(now_ns)
            call.connection.parked.discard(call)
        return claimed

    async def _execute(self, group: list[Call]) -> list[Answer]:
        requested_ns = monotonic_ns()
        for call in group:
            call.queued(requested_ns)
        acquired_ns = requested_ns
        ok = False
        try:
            served = await self._store.serve([call.request for call in group if call.request is not None])
            answers, acquired_ns, ok = served.answers, requested_ns + served.pool_wait_ns, True
        except CrescendoError as err:  # unavailable, or a problem for the operator
            answers = _refuse(group, Refusal.UNAVAILABLE, str(err))
        except Exception:
            log.exception("a statement for %d requests failed", len(group))
            answers = _refuse(group, Refusal.INTERNAL, "an error in the broker; see its log")
        ended_ns = monotonic_ns()
        for call in group:
            call.pooled(acquired_ns)
            call.stored(ended_ns)
        self._request_log.statement([type(call.request) for call in group], ended_ns - acquired_ns, ended_ns, ok)
        return answers

    def _park_or_answer(self, call: Call) -> None:
        now_ns = monotonic_ns()
        left_ns = call.deadline_ns - now_ns
        if left_ns <= 0:
            call.connection.answer(call, NO_MESSAGES)
        elif self.draining:
            call.connection.answer(call, Refused(Refusal.CLOSING, "this broker is shutting down; ask another one"))
        elif self.room.full:
            self._shed(call, "too many dequeues are waiting; ask again later")
        elif self._nothing_arrived_since(call) or not self._enqueue(call):
            self._park(call, now_ns)

    def _nothing_arrived_since(self, call: Call) -> bool:
        """Whether nothing has arrived since its query. An arrival in between has woken no dequeue."""
        return (
            isinstance(call.request, Dequeue)
            and self._empty_queues.arrival_counts(call.request) == call.arrivals_before
        )

    def _shed(self, call: Call, text: str) -> None:
        self._request_log.metrics.shed += 1
        call.connection.answer(call, Refused(Refusal.OVERLOADED, text))

    def _requeue(self, calls: list[Call]) -> None:
        now_ns = monotonic_ns()
        for call in calls:
            call.waited(now_ns)
            if self._enqueue(call):
                call.connection.parked.discard(call)
            else:  # the poll will find it there
                self._park(call, now_ns)

    def _wait_expired(self, call: Call) -> None:
        call.connection.parked.discard(call)
        call.waited(monotonic_ns())
        if call.arrivals_before is not None:
            call.connection.answer(call, NO_MESSAGES)
        elif not self._enqueue(call):  # never answer "empty" without a query
            self._shed(call, "too many requests are waiting; ask again later")

    def _announce(self, group: list[Call], answers: list[Answer]) -> dict[int, int]:
        """Wake waiting dequeues for the messages that the group has left over; notify other brokers of the rest.

        Returns the arrivals by key.
        """
        if not isinstance(group[0].request, (Send, SendMany)):  # sends come first
            return {}
        stored = (call.request for call, answer in zip(group, answers, strict=True) if not isinstance(answer, Refused))
        arrivals = _arrivals_of(stored)
        taken = Counter(
            message.queue if message.receiver is None else client_key(message.receiver)
            for answer in answers
            if isinstance(answer, Messages)
            for message in answer.messages
        )
        for key, messages in arrivals.items():
            woken, left = self.room.wake(key, messages, max(messages - taken[key], 0))
            if key < ANY_QUEUE and woken:
                left = 0  # only that client can see them, and it is connected here
            self._requeue(woken)
            if left and key != ANY_QUEUE:
                self.notify_others(key, left)
        return arrivals


def _arrivals_of(requests: Iterable[object]) -> dict[int, int]:
    """How many messages these requests store, by key."""
    arrivals: dict[int, int] = {}
    for request in requests:
        if not isinstance(request, (Send, SendMany)) or request.delay_ms:
            continue  # the poll finds delayed ones when they are due
        if isinstance(request, SendMany):
            for key in (request.queue, ANY_QUEUE):
                arrivals[key] = arrivals.get(key, 0) + len(request.contents)
        elif request.receiver is not None:
            key = client_key(request.receiver)
            arrivals[key] = arrivals.get(key, 0) + 1
        else:
            for queue in request.queues:
                arrivals[queue] = arrivals.get(queue, 0) + 1
            arrivals[ANY_QUEUE] = arrivals.get(ANY_QUEUE, 0) + len(request.queues)
    return arrivals


def _refuse(group: list[Call], reason: Refusal, text: str) -> list[Answer]:
    return [Refused(reason, text)] * len(group)


def _notify_none(_key: int, _messages: int) -> None:
    """The default: there are no other brokers to notify."""
