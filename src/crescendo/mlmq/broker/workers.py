"""Who takes requests from the queue, and how do many of them become one statement?

A worker takes all that waits of one kind, up to a limit, and serves it with one statement on one connection of the
pool. A dequeue that found nothing and may wait goes to the waiting room, and the worker on to the next. Knows no
socket; knows the database only by what it answers.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from time import monotonic_ns

from crescendo.mlmq.broker.call import ANY_QUEUE, Call, client_key
from crescendo.mlmq.broker.empty_queues import EmptyQueues
from crescendo.mlmq.broker.journal import RequestLog
from crescendo.mlmq.broker.request_queue import RequestQueue
from crescendo.mlmq.broker.store import Store
from crescendo.mlmq.broker.waiting_room import WaitingRoom
from crescendo.model.errors import CrescendoError
from crescendo.wire.mlmq.operations import Answer, Dequeue, Extend, Messages, Refusal, Refused, Send

log = logging.getLogger(__name__)

NOTHING = Messages()
Tell = Callable[[int, int], None]


class Workers:
    """W tasks on one queue, with the waiting room between them."""

    def __init__(self, queue: RequestQueue[Call], room_limit: int, store: Store, journal: RequestLog) -> None:
        self.queue = queue
        self.room: WaitingRoom[Call] = WaitingRoom(room_limit, self._waited_in_vain)
        self.busy = 0
        self.draining = False
        self.tell_others: Tell = _tell_nobody
        self._store = store
        self._journal = journal
        self._emptiness = EmptyQueues(self.room.arrived, client_key)

    def submit(self, call: Call) -> bool:
        """Let it wait for a worker, or for a message where there is none for certain. False: too many wait."""
        if (
            call.deadline_ns
            and isinstance(call.request, Dequeue)
            and self._emptiness.certain(call.request)
            and not self.room.full
            and not self.draining
        ):
            self._park(call, monotonic_ns())
            return True
        return self._enqueue(call)

    def _enqueue(self, call: Call) -> bool:
        kind = type(call.request)
        return self.queue.put(call, Send if kind is Dequeue else kind)  # these two share a statement

    def _park(self, call: Call, now_ns: int) -> None:
        self.room.park(call, call.keys, (call.deadline_ns - now_ns) / 1e9)
        call.connection.parked.add(call)

    async def work(self) -> None:
        """One worker. Ends only by cancellation."""
        while True:
            lane, calls = await self.queue.take()
            self.busy += 1
            try:
                await self._serve(calls)
            except Exception:
                log.exception("a worker failed to hand out answers")  # it must live on: others depend on it
            finally:
                self.busy -= 1
                self.queue.done(lane)

    async def poll(self, every_s: float) -> None:
        """Let those who wait look again now and then: for what comes back when leases end, and for lost notices."""
        while True:
            await asyncio.sleep(every_s)
            self._look_again(self.room.oldest(self.queue.limit - len(self.queue)))

    def wake(self, key: int, messages: int) -> None:
        """Messages have come, through another broker."""
        woken, _ = self.room.wake(key, messages)
        if key > ANY_QUEUE:
            woken += self.room.wake(ANY_QUEUE, messages)[0]
        self._look_again(woken)

    def doubt(self) -> None:
        """Messages may have come without being told of: whoever asks must look."""
        self._emptiness.forget()

    def drain(self) -> None:
        """Nobody waits for messages any more."""
        self.draining = True
        for call in self.room.oldest(len(self.room)):
            call.waited(monotonic_ns())
            call.connection.answer(call, Refused(Refusal.CLOSING, "this broker is shutting down; ask another one"))

    def forget(self, calls: Iterable[Call]) -> None:
        """Their client is gone: a message must not be taken for it, and no wake-up spent on it."""
        for call in list(calls):
            self.room.leave(call)

    async def _serve(self, calls: list[Call]) -> None:
        group = self._with_who_waits(calls)
        if group:
            answers = await self._ask(group)
            self._hand_out(group, answers, self._announce(group, answers))

    def _with_who_waits(self, taken: list[Call]) -> list[Call]:
        """Sends first, then those who ask, then those who wait for what is sent."""
        taken = [call for call in taken if not call.connection.closing]
        sends = [call for call in taken if isinstance(call.request, Send)]
        group = taken
        if sends:
            others = [call for call in taken if not isinstance(call.request, Send)]
            group = sends + others + self._claimed(sends, self.queue.batch - len(taken))
        for call in group:
            if isinstance(call.request, Dequeue):
                call.before = self._emptiness.before(call.request)
        return group

    def _hand_out(self, group: list[Call], answers: list[Answer], news: dict[int, int]) -> None:
        for call, answer in zip(group, answers, strict=True):
            if call.before is not None and isinstance(call.request, Dequeue):
                # It has seen what was sent with it as well.
                queue, client = call.request.query.queue or ANY_QUEUE, client_key(call.request.client)
                call.before = call.before[0] + news.get(queue, 0), call.before[1] + news.get(client, 0)
                self._emptiness.looked(call.request, answer, call.before)
            elif isinstance(call.request, Extend):
                self.doubt()  # some may have been given back
            if call.deadline_ns and answer == NOTHING:
                self._let_wait(call)
            else:
                call.connection.answer(call, answer)

    def _claimed(self, sends: list[Call], most: int) -> list[Call]:
        """Who waits for what is sent: to be handed it in the same statement, sooner and with one commit for both."""
        claimed: list[Call] = []
        for key, messages in _news_of(call.request for call in sends).items():
            if len(claimed) >= most:
                break
            claimed += [call for call, _ in self.room.claim(key, min(messages, most - len(claimed)))]
        now_ns = monotonic_ns()
        for call in claimed:
            call.waited(now_ns)
            call.connection.parked.discard(call)
        return claimed

    async def _ask(self, group: list[Call]) -> list[Answer]:
        asked_ns = monotonic_ns()
        for call in group:
            call.queued(asked_ns)
        got_ns = asked_ns
        ok = False
        try:
            served = await self._store.serve([call.request for call in group if call.request is not None])
            answers, got_ns, ok = served.answers, asked_ns + served.pool_wait_ns, True
        except CrescendoError as err:  # away, or something a person must cure
            answers = _refuse(group, Refusal.UNAVAILABLE, str(err))
        except Exception:
            log.exception("a statement for %d requests failed", len(group))
            answers = _refuse(group, Refusal.INTERNAL, "a fault of the broker; its log says more")
        ended_ns = monotonic_ns()
        for call in group:
            call.pooled(got_ns)
            call.stored(ended_ns)
        self._journal.statement([type(call.request) for call in group], ended_ns - got_ns, ended_ns, ok)
        return answers

    def _let_wait(self, call: Call) -> None:
        now_ns = monotonic_ns()
        left_ns = call.deadline_ns - now_ns
        if left_ns <= 0:
            call.connection.answer(call, NOTHING)
        elif self.draining:
            call.connection.answer(call, Refused(Refusal.CLOSING, "this broker is shutting down; ask another one"))
        elif self.room.full:
            self._shed(call, "too many dequeues wait; ask again later")
        elif self._unchanged(call) or not self._enqueue(call):
            self._park(call, now_ns)

    def _unchanged(self, call: Call) -> bool:
        """Whether nothing has come since it looked. What came in between has woken nobody."""
        return isinstance(call.request, Dequeue) and self._emptiness.before(call.request) == call.before

    def _shed(self, call: Call, text: str) -> None:
        self._journal.metrics.shed += 1
        call.connection.answer(call, Refused(Refusal.OVERLOADED, text))

    def _look_again(self, calls: list[Call]) -> None:
        now_ns = monotonic_ns()
        for call in calls:
            call.waited(now_ns)
            if self._enqueue(call):
                call.connection.parked.discard(call)
            else:  # the poll will find it here
                self._park(call, now_ns)

    def _waited_in_vain(self, call: Call) -> None:
        call.connection.parked.discard(call)
        call.waited(monotonic_ns())
        if call.before is not None:
            call.connection.answer(call, NOTHING)
        elif not self._enqueue(call):  # nobody is told that there is nothing by mere inference
            self._shed(call, "too many requests wait; ask again later")

    def _announce(self, group: list[Call], answers: list[Answer]) -> dict[int, int]:
        """Wake who waits here for what the group has left; tell other brokers of what nobody here waited for.

        Returns what has come.
        """
        if not isinstance(group[0].request, Send):  # sends come first
            return {}
        stored = (call.request for call, answer in zip(group, answers, strict=True) if not isinstance(answer, Refused))
        news = _news_of(stored)
        taken = Counter(
            message.queue if message.receiver is None else client_key(message.receiver)
            for answer in answers
            if isinstance(answer, Messages)
            for message in answer.messages
        )
        for key, messages in news.items():
            woken, left = self.room.wake(key, messages, max(messages - taken[key], 0))
            if key < ANY_QUEUE and woken:
                left = 0  # only that client can see them, and it is here
            self._look_again(woken)
            if left and key != ANY_QUEUE:
                self.tell_others(key, left)
        return news


def _news_of(requests: Iterable[object]) -> dict[int, int]:
    """How many messages these requests put under which keys."""
    news: dict[int, int] = {}
    for request in requests:
        if not isinstance(request, Send):
            continue
        if request.receiver is not None:
            key = client_key(request.receiver)
            news[key] = news.get(key, 0) + 1
        else:
            for queue in request.queues:
                news[queue] = news.get(queue, 0) + 1
            news[ANY_QUEUE] = news.get(ANY_QUEUE, 0) + len(request.queues)
    return news


def _refuse(group: list[Call], reason: Refusal, text: str) -> list[Answer]:
    return [Refused(reason, text)] * len(group)


def _tell_nobody(_key: int, _messages: int) -> None:
    """A broker that has no way to others."""
