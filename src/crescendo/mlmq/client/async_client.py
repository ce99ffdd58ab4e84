"""How does a program use MLMQ without blocking?

The original client interface as coroutines: register, queues, send, peek, dequeue, and in addition leases with
acknowledgement. Every request is repeated on another broker when no answer arrives, and carries what makes that safe,
so a timeout neither loses nor duplicates a message. Pull only: the client receives nothing that it did not request.
"""

from collections.abc import Callable, Collection, Sequence
from time import monotonic
from types import TracebackType
from typing import Self, TypeVar

from crescendo.mlmq.client.backoff import Backoff
from crescendo.mlmq.client.caller import Caller
from crescendo.mlmq.client.request_errors import RefusedError
from crescendo.mlmq.client.requests import Observer, Requests
from crescendo.mlmq.client.shared_links import SharedLinks
from crescendo.mlmq.client.slots import Slots
from crescendo.model.errors import ConfigError, PeerError
from crescendo.wire.mlmq.operations import (
    MAX_WAIT_MS,
    Acknowledge,
    Answer,
    ClientFound,
    ConfigureQueue,
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
    Once,
    Peek,
    Pending,
    PendingFound,
    Query,
    QueueFound,
    Refusal,
    Register,
    Registered,
    Request,
    Send,
    SendMany,
    Sent,
    Settled,
)

A = TypeVar("A", bound=Answer)
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
        links: SharedLinks | None = None,
    ) -> None:
        """`patient`: retry until the timeout when a broker is overloaded or unreachable; otherwise that is an error.

        `impatient_of` lists refusals that are errors even for a patient client.
        `observer` is called with every request that ended, with its tiers.
        `links` are connections that it shares with other clients of this event loop; their owner closes them.
        """
        self.name = name
        self.timeout_s = timeout_s
        self._caller = Caller(
            brokers,
            first=first_broker,
            attempt_timeout_s=attempt_timeout_s,
            backoff=backoff,
            wants_times=observer is not None,
            patient=patient,
            impatient_of=impatient_of,
            links=links,
        )
        self._requests = Requests(self._caller, observer)
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

    async def configure_queue(
        self, queue: int, *, max_deliveries: int | None = None, dead_letters: int | None = None,
        retention_s: float | None = None,
    ) -> None:  # fmt: skip
        """Set all limits of a queue that we own. None: no such limit.

        A message that was delivered `max_deliveries` times on a lease and never acknowledged moves to `dead_letters`;
        one that is older than `retention_s` is deleted.
        """
        await self._ask(ConfigureQueue(self.id, queue, max_deliveries, dead_letters, _ms(retention_s)), Done)

    async def send_message(
        self, queues: int | Sequence[int], content: bytes, priority: int = DEFAULT_PRIORITY, *,
        delay_s: float = 0.0, expires_s: float | None = None,
    ) -> Sent:  # fmt: skip
        """Store a message in one queue or in each of several. It is handed out after `delay_s`, before `expires_s`."""
        chosen = (queues,) if isinstance(queues, int) else tuple(queues)
        return await self._send(content, chosen, priority, delay_s=delay_s, expires_s=expires_s)

    async def send_messages(
        self, queue: int, contents: Sequence[bytes], priority: int = DEFAULT_PRIORITY, *,
        delay_s: float = 0.0, expires_s: float | None = None,
    ) -> Sent:  # fmt: skip
        """Store up to 100 messages in one round trip: all of them or none."""
        return await self._store(
            lambda once: SendMany(
                self.id, queue, tuple(contents), priority, once, round(delay_s * 1000), _ms(expires_s)
            )
        )

    async def send_message_to_client(
        self, client: int, content: bytes, priority: int = DEFAULT_PRIORITY, *,
        delay_s: float = 0.0, expires_s: float | None = None,
    ) -> Sent:  # fmt: skip
        return await self._send(content, (), priority, client, delay_s=delay_s, expires_s=expires_s)

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
        deadline_s = monotonic() + self.timeout_s
        reopened = slots.reopen(key)
        once = reopened or await self._requests.acquire(slots, self.id, "Dequeue", deadline_s)
        try:
            request = Dequeue(self.id, query, most, lease_ms, wait_ms, once)
            answer, called = await self._requests.exchange(request, Messages, deadline_s - monotonic(), wait_ms / 1000)
        except BaseException as err:  # also cancellation: the messages may already be ours
            if isinstance(err, RefusedError) and not err.outcome_unknown:
                slots.release(once)
            else:
                slots.keep_open(key, once)
            raise
        if not answer.messages and (called.has_copies or reopened is not None):
            slots.keep_open(key, once)  # a copy of it may still take a message, for the next equal dequeue to fetch
        else:
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
        context: int | None = None, new_context: bool = False, delay_s: float = 0.0, expires_s: float | None = None,
    ) -> Sent:  # fmt: skip
        delay_ms, expiry_ms = round(delay_s * 1000), _ms(expires_s)
        return await self._store(
            lambda once: Send(
                self.id, content, queues, priority, receiver, context, new_context, once, delay_ms, expiry_ms
            )
        )

    async def _store(self, request: Callable[[Once], Send | SendMany]) -> Sent:
        slots, deadline_s = self._session, monotonic() + self.timeout_s
        once = await self._requests.acquire(slots, self.id, "Send", deadline_s)
        try:
            return (await self._requests.exchange(request(once), Sent, deadline_s - monotonic()))[0]
        finally:
            slots.release(once)  # also without an answer: the next number makes the old request stale

    async def _find(self, request: Request, expected: type[A], *absent: Refusal) -> A | None:
        try:
            return await self._ask(request, expected)
        except RefusedError as err:
            if err.reason in absent:
                return None
            raise

    async def _ask(self, request: Request, expected: type[A], *, done_if_refused: Refusal | None = None) -> A:
        return (await self._requests.exchange(request, expected, self.timeout_s, done_if_refused=done_if_refused))[0]


def _ms(duration_s: float | None) -> int | None:
    return None if duration_s is None else max(round(duration_s * 1000), 1)


def _deliveries(messages: Sequence[Message]) -> tuple[Delivery, ...]:
    return tuple(Delivery(message.id, message.delivery) for message in messages)
