"""How does a program use MLMQ without blocking?

The original client interface as coroutines: register, queues, send, peek, dequeue, and in addition leases with
acknowledgement. Every request is repeated on another broker when no answer arrives, and carries what makes that safe,
so a timeout neither loses nor duplicates a message. Pull only: the client receives nothing that it did not request.
"""

from collections.abc import Callable, Collection, Sequence
from time import monotonic_ns
from types import TracebackType
from typing import Any, Self, TypeVar

from crescendo.mlmq.client.backoff import Backoff
from crescendo.mlmq.client.caller import Caller
from crescendo.mlmq.client.errors import RefusedError
from crescendo.mlmq.client.exchange import Exchange
from crescendo.mlmq.client.link import Reply
from crescendo.mlmq.client.slots import Slots
from crescendo.model.errors import ConfigError, PeerError
from crescendo.wire.mlmq.operations import (
    MAX_WAIT_MS,
    Acknowledge,
    Answer,
    ClientFound,
    CreateQueue,
    DeleteQueue,
    Delivery,
    Dequeue,
    Deregister,
    Done,
    Extend,
    LookupClient,
    LookupQueue,
    Message,
    Messages,
    Peek,
    Pending,
    PendingFound,
    Query,
    QueueFound,
    Refusal,
    Refused,
    Register,
    Registered,
    Request,
    Send,
    Sent,
    Settled,
)

A = TypeVar("A", bound=Answer)
Observer = Callable[[Exchange], None]
DEFAULT_PRIORITY = 5


class AsyncClient:
    """One client of one or more brokers. Use as a context manager, or call `init` and `close`."""

    def __init__(
        self,
        name: str,
        brokers: Sequence[str],
        *,
        first_broker: int = 0,
        timeout_s: float = 10.0,
        attempt_timeout_s: float = 2.0,
        backoff: Backoff | None = None,
        patient: bool = True,
        impatient_of: Collection[Refusal] = (),
        observer: Observer | None = None,
    ) -> None:
        """`patient`: retry until the timeout when a broker is overloaded or unreachable; otherwise that is an error.

        `impatient_of` lists refusals that are errors even for a patient client.
        `observer` is called with every request that ended, with its tiers.
        """
        self.name = name
        self.timeout_s = timeout_s
        self._observer = observer
        self._caller = Caller(
            brokers,
            first=first_broker,
            attempt_timeout_s=attempt_timeout_s,
            backoff=backoff,
            wants_times=observer is not None,
            patient=patient,
            impatient_of=impatient_of,
        )
        self._registered: Registered | None = None
        self._slots: Slots | None = None

    async def init(self) -> None:
        """Connect to a broker."""
        await self._caller.connect(self.timeout_s)

    async def close(self) -> None:
        self._caller.close()

    @property
    def is_connected(self) -> bool:
        return self._caller.connected

    @property
    def broker(self) -> str | None:
        """The broker we are connected to now."""
        return self._caller.broker

    @property
    def connects(self) -> int:
        """How many times we have connected so far."""
        return self._caller.connects

    @property
    def id(self) -> int:
        return self._registration.client

    @property
    def own_queue(self) -> int:
        """The queue that receives messages to this client."""
        return self._registration.queue

    async def register(self) -> Registered:
        """Register under our name, new or known. Required by everything except the lookups."""
        before = self._registered
        answer = await self._ask(Register(self.name), Registered)
        self._registered = answer
        if self._slots is None or before is None or before.client != answer.client:
            self._slots = Slots(answer.session)  # otherwise the old slots may still hold answers to fetch
        return answer

    async def deregister(self) -> None:
        """Remove this client, with its own queue and the messages in it."""
        await self._ask(Deregister(self.id), Done, done_if_refused=Refusal.NO_SUCH_CLIENT)
        self._registered = self._slots = None

    async def create_queue(self, name: str) -> QueueFound:
        """Create a public queue of this name, or find it."""
        return await self._ask(CreateQueue(self.id, name), QueueFound)

    async def delete_queue(self, queue: int) -> None:
        """Delete a public queue that we own, with the messages in it."""
        await self._ask(DeleteQueue(self.id, queue), Done, done_if_refused=Refusal.NO_SUCH_QUEUE)

    async def lookup_client(self, name: str) -> ClientFound | None:
        return await self._find(LookupClient(name), ClientFound, Refusal.NO_SUCH_CLIENT)

    async def lookup_client_queue(self, client: int | str) -> QueueFound | None:
        """A client's own queue, by client id or name; public queues are found by name, too."""
        if isinstance(client, str):
            return await self._find(LookupQueue(name=client), QueueFound, Refusal.NO_SUCH_QUEUE)
        return await self._find(LookupQueue(client=client), QueueFound, Refusal.NO_SUCH_QUEUE, Refusal.NO_SUCH_CLIENT)

    async def send_message(self, queues: int | Sequence[int], content: bytes, priority: int = DEFAULT_PRIORITY) -> Sent:
        """Store a message in one queue or in each of several."""
        chosen = (queues,) if isinstance(queues, int) else tuple(queues)
        return await self._send(content, chosen, priority)

    async def send_message_to_client(self, client: int, content: bytes, priority: int = DEFAULT_PRIORITY) -> Sent:
        return await self._send(content, (), priority, client)

    async def send_request_to_client(self, client: int, content: bytes, priority: int = DEFAULT_PRIORITY) -> int:
        """Send a request and return the context that identifies its response."""
        sent = await self._send(content, (), priority, client, new_context=True)
        if sent.context is None:
            raise PeerError("the broker returned no context for a request")
        return sent.context

    async def send_response_to_client(
        self, client: int, context: int, content: bytes, priority: int = DEFAULT_PRIORITY
    ) -> Sent:
        return await self._send(content, (), priority, client, context)

    async def queues_with_pending_messages(self, most: int = 100) -> tuple[int, tuple[QueueFound, ...]]:
        """How many messages wait in our own queue, and which public queues hold messages for us."""
        found = await self._ask(Pending(self.id, most), PendingFound)
        return found.own, found.queues

    async def peek_message(self, query: Query) -> Message | None:
        """The first message, which stays in its queue."""
        messages = (await self._ask(Peek(self.id, query), Messages)).messages
        return messages[0] if messages else None

    async def dequeue_message(self, query: Query, *, wait_s: float = 0.0, lease_s: float = 0.0) -> Message | None:
        """The first message. Without a lease it is removed; with one it is redelivered unless acknowledged in time.

        `wait_s` is how long the broker waits for a message when there is none.
        """
        messages = await self.dequeue_messages(query, 1, wait_s=wait_s, lease_s=lease_s)
        return messages[0] if messages else None

    async def dequeue_messages(
        self, query: Query, most: int, *, wait_s: float = 0.0, lease_s: float = 0.0
    ) -> tuple[Message, ...]:
        """Up to `most` first messages."""
        wait_ms = min(round(wait_s * 1000), MAX_WAIT_MS)
        lease_ms, slots = round(lease_s * 1000), self._session
        key = query, most, lease_ms
        once = slots.reopen(key) or await slots.acquire()
        try:
            request = Dequeue(self.id, query, most, lease_ms, wait_ms, once)
            answer = await self._ask(request, Messages, wait_s=wait_ms / 1000)
        except BaseException as err:  # also cancellation: the messages may already be ours
            if isinstance(err, RefusedError) and not err.outcome_unknown:
                slots.release(once)
            else:
                slots.keep_open(key, once)
            raise
        slots.release(once)
        return answer.messages

    async def acknowledge(self, *messages: Message) -> Settled:
        """Remove leased messages for good. After a retry, `gone` may name messages that the first attempt removed."""
        return await self._ask(Acknowledge(self.id, _deliveries(messages)), Settled)

    async def extend(self, *messages: Message, lease_s: float) -> Settled:
        """Renew the lease for this long from now; 0 releases the messages at once."""
        return await self._ask(Extend(self.id, _deliveries(messages), round(lease_s * 1000)), Settled)

    async def __aenter__(self) -> Self:
        await self.init()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def _registration(self) -> Registered:
        if self._registered is None:
            raise ConfigError(f"client {self.name} is not registered; call register() first")
        return self._registered

    @property
    def _session(self) -> Slots:
        if self._slots is None:
            raise ConfigError(f"client {self.name} is not registered; call register() first")
        return self._slots

    async def _send(
        self, content: bytes, queues: tuple[int, ...], priority: int, receiver: int | None = None,
        context: int | None = None, new_context: bool = False,
    ) -> Sent:  # fmt: skip
        slots = self._session
        once = await slots.acquire()
        try:
            return await self._ask(Send(self.id, content, queues, priority, receiver, context, new_context, once), Sent)
        finally:
            slots.release(once)  # also without an answer: the next number makes the old request stale

    async def _find(self, request: Request, expected: type[A], *absent: Refusal) -> A | None:
        try:
            return await self._ask(request, expected)
        except RefusedError as err:
            if err.reason in absent:
                return None
            raise

    async def _ask(
        self, request: Request, expected: type[A], *, wait_s: float = 0.0, done_if_refused: Refusal | None = None
    ) -> A:
        """`done_if_refused` is the refusal that a retry gets when a lost attempt has already done the work."""
        started_ns = monotonic_ns()
        reply: Reply | None = None
        attempts = 0
        outcome = "unanswered"
        try:
            reply, attempts = await self._caller.call(request, self.timeout_s + wait_s, wait_s)
            if isinstance(reply.answer, Refused):
                outcome = reply.answer.reason.name.lower()
                if attempts > 1 and done_if_refused is reply.answer.reason and expected is Done:
                    return _expect(expected, Done())
                raise RefusedError(reply.answer)
            outcome = "empty" if reply.answer == _NO_MESSAGES else "ok"
            return _expect(expected, reply.answer)
        finally:
            if self._observer is not None:
                ended_ns = reply.answered_ns if reply else monotonic_ns()
                asked_ns = reply.asked_ns if reply and attempts == 1 else started_ns
                times = reply.times if reply else None
                self._observer(Exchange(type(request).__name__, outcome, asked_ns, ended_ns, attempts, times))


_NO_MESSAGES = Messages()


def _expect(expected: type[A], answer: Any) -> A:
    if not isinstance(answer, expected):
        raise PeerError(f"the broker answered {type(answer).__name__} instead of {expected.__name__}")
    return answer


def _deliveries(messages: Sequence[Message]) -> tuple[Delivery, ...]:
    return tuple(Delivery(message.id, message.delivery) for message in messages)
