"""Does the storage agree with a one-page model of a queue, for every filter and every order?

The oracle below keeps messages in a list and knows no SQL. Hypothesis runs clients against both, in batches, and every
answer must be the oracle's. Time is simulated: a lease expires when a rule says so, not when a clock does.
"""

import asyncio
from dataclasses import dataclass, field

import asyncpg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from crescendo.mlmq.storage import message_batches
from crescendo.mlmq.storage.database import answer
from crescendo.wire.mlmq.operations import (
    Acknowledge,
    Answer,
    CreateQueue,
    DeleteQueue,
    Delivery,
    Dequeue,
    Deregister,
    Done,
    Extend,
    Message,
    Messages,
    Once,
    Order,
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

HOUR_MS = 3_600_000
NOBODY = 999_999
BATCH = 12  # at least the largest number of requests at once
NAMES = [f"name{n}" for n in range(6)]


@dataclass(eq=False)
class Stored:
    id: int
    queue: int
    sender: int
    receiver: int | None
    priority: int
    context: int | None
    content: bytes
    holder: int | None = None
    had_by: int | None = None  # its last holder, even after releasing it
    delivery: int = 0
    given_out: bool = False


@dataclass
class Oracle:
    """Messages in the order in which they were sent."""

    clients: dict[int, int] = field(default_factory=dict)  # and their own queues
    queues: dict[int, tuple[str, int | None, int | None]] = field(default_factory=dict)  # name, client, owner
    messages: list[Stored] = field(default_factory=list)

    def seen_by(self, client: int, query: Query) -> list[Stored] | Refusal:
        if client not in self.clients:
            return Refusal.NO_SUCH_CLIENT
        if query.queue is not None and query.queue not in self.queues:
            return Refusal.NO_SUCH_QUEUE
        if query.queue is not None and self.queues[query.queue][1] not in {None, client}:
            return Refusal.NOT_YOURS
        seen = []
        for message in self.messages:
            if self.queues[message.queue][1] not in {None, client} or message.given_out:
                continue
            if message.receiver not in {None, client}:
                continue
            pairs = ((query.queue, message.queue), (query.sender, message.sender), (query.context, message.context))
            if all(wanted is None or wanted == found for wanted, found in pairs):
                seen.append(message)
        if query.order is Order.PRIORITY:
            seen.sort(key=lambda message: -message.priority)  # stable: then by age
        return seen

    def held(self, client: int, one: Delivery) -> Stored | None:
        for message in self.messages:
            if message.id == one.message and (message.holder, message.delivery) == (client, one.delivery):
                return message
        return None

    def drop_queue(self, queue: int) -> None:
        del self.queues[queue]
        self.messages = [message for message in self.messages if message.queue != queue]


def fields(message: Message | Stored) -> tuple[object, ...]:
    return (
        message.id, message.queue, message.sender, message.receiver, message.priority, message.context, message.content,
    )  # fmt: skip


def reason(found: Answer) -> Refusal | None:
    return found.reason if isinstance(found, Refused) else None


MISS = 11
picks = st.integers(0, MISS)  # an existing one; the last value stands for one that does not exist
names = st.sampled_from(NAMES)
settlements = st.sampled_from(
    [
        "acknowledge",
        "acknowledge another delivery",
        "acknowledge a former delivery",
        "extend",
        "release",
        "time passes",
    ]
)
filters = st.sampled_from(["queue", "queue", "queue", "sender", "context", "queue sender", "queue context", "all"])
dequeue_specs = st.tuples(picks, filters, picks, st.sampled_from(Order), st.sampled_from([1, 1, 2, 5]))
DequeueSpec = tuple[int, str, int, Order, int]
SendSpec = tuple[int, list[int], int | None, int, int, bytes]  # client, queues, receiver, priority, context, content
to_one = st.one_of(st.tuples(st.lists(picks, min_size=1, max_size=1), st.none()), st.tuples(st.just([]), picks))
plain_sends = st.lists(
    st.builds(
        lambda client_id, to, priority, context, content: (client_id, *to, priority, context, content),
        st.integers(0, 5), to_one, st.integers(4, 6), st.integers(0, 2), st.binary(max_size=3),
    ),
    min_size=1, max_size=5,
)  # fmt: skip
plain_dequeues = st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.booleans()), min_size=1, max_size=5)


class Clients(RuleBasedStateMachine):
    url: str
    loop: asyncio.AbstractEventLoop
    connection: asyncpg.Connection

    def ask(self, *requests: Request) -> list[Answer]:
        found = self.loop.run_until_complete(answer(self.connection, requests))
        assert len(found) == len(requests)
        return found

    def sql(self, statement: str, *values: object) -> None:
        self.loop.run_until_complete(self.connection.execute(statement, *values))

    @initialize()
    def start(self) -> None:
        # Not TRUNCATE: it creates new files each time, and the disk would have to sync thousands.
        self.sql("DELETE FROM mlmq.message; DELETE FROM mlmq.receipt; DELETE FROM mlmq.queue; DELETE FROM mlmq.client")
        self.oracle = Oracle()
        self.contexts: list[int] = []
        self.names: dict[str, int] = {}
        self.sessions: dict[int, tuple[int, int]] = {}  # of a client
        self.number = 0
        for name in NAMES[:2]:
            self.register(name)
        self.create(0, NAMES[2])
        # Enough to choose from, of both clients, in both queues, sorted neither by priority nor by age.
        self.send([(n, [n // 2, n // 3], None, 1 + n * 7 % 3, 2 if n % 4 == 0 else 1, bytes([n])) for n in range(8)])

    def client(self, at: int) -> int:
        return NOBODY if at == MISS else sorted(self.oracle.clients)[at % len(self.oracle.clients)]

    def queue(self, at: int) -> int:
        return NOBODY if at == MISS else sorted(self.oracle.queues)[at % len(self.oracle.queues)]

    def once(self, client: int) -> Once | None:
        """A slot that no other request of the batch uses; NOBODY has none."""
        if client not in self.sessions:
            return None
        self.number += 1
        slot, session = divmod(self.number % BATCH, 2)
        return Once(self.sessions[client][session], slot, self.number)

    def query(self, spec: DequeueSpec) -> tuple[int, Query, int]:
        """Filters are taken from an existing message, so that they match; or from none, so that they do not."""
        client_id, wanted, pick, order, count = spec
        client = self.client(client_id)
        # Mostly from messages that this client may read: refusals are covered by a few cases.
        near = [m for m in self.oracle.messages if self.oracle.queues[m.queue][1] in {None, client}]
        known = near if pick % 4 and near else self.oracle.messages
        model = known[pick % len(known)] if known and pick != MISS else None
        queue, sender, context = (model.queue, model.sender, model.context) if model else (NOBODY, NOBODY, NOBODY)
        given = ("queue", "sender", "context") if wanted == "all" else wanted.split()
        chosen = {"queue": queue, "sender": sender, "context": context or NOBODY}
        return client, Query(**{name: chosen[name] for name in given}, order=order), count

    @rule(what=st.sampled_from(["register", "create", "delete", "deregister"]), client=picks, queue=picks, name=names)
    def administer(self, what: str, client: int, queue: int, name: str) -> None:
        match what:
            case "register":
                self.register(name)
            case "create":
                self.create(client, name)
            case "delete":
                self.delete(client, queue)
            case _ if len(self.oracle.clients) > 2:
                self.deregister(client)

    def register(self, name: str) -> None:
        found = self.ask(Register(name), Register(name))
        known = self.names.get(name)
        if known is not None and self.oracle.queues[known][1] is None:
            assert [reason(one) for one in found] == [Refusal.NAME_TAKEN] * 2
            return
        first, second = found
        assert isinstance(first, Registered)
        assert isinstance(second, Registered)
        assert (first.client, first.queue) == (second.client, second.queue)
        assert first.session != second.session
        if first.client not in self.sessions:
            self.sessions[first.client] = first.session, second.session
        if known is not None:
            assert self.oracle.clients[first.client] == first.queue == known
        else:
            assert first.client not in self.oracle.clients
            assert first.queue not in self.oracle.queues
            self.oracle.clients[first.client] = self.names[name] = first.queue
            self.oracle.queues[first.queue] = (name, first.client, None)

    def create(self, client: int, name: str) -> None:
        owner = self.client(client)
        (found,) = self.ask(CreateQueue(owner, name))
        known = self.names.get(name)
        if owner == NOBODY:
            assert reason(found) is Refusal.NO_SUCH_CLIENT
        elif known is not None and self.oracle.queues[known][1] is not None:
            assert reason(found) is Refusal.NAME_TAKEN
        elif known is not None:
            assert found == QueueFound(known, *self.oracle.queues[known])
        else:
            assert isinstance(found, QueueFound)
            assert found == QueueFound(found.queue, name, None, owner)
            assert found.queue not in self.oracle.queues
            self.names[name] = found.queue
            self.oracle.queues[found.queue] = (name, None, owner)

    def delete(self, client: int, queue: int) -> None:
        client_id, which = self.client(client), self.queue(queue)
        (found,) = self.ask(DeleteQueue(client_id, which))
        if client_id == NOBODY:
            assert reason(found) is Refusal.NO_SUCH_CLIENT
        elif which == NOBODY:
            assert reason(found) is Refusal.NO_SUCH_QUEUE
        elif self.oracle.queues[which][1] is not None or self.oracle.queues[which][2] not in {None, client_id}:
            assert reason(found) is Refusal.NOT_YOURS
        else:
            assert found == Done()
            del self.names[self.oracle.queues[which][0]]
            self.oracle.drop_queue(which)

    def deregister(self, client: int) -> None:
        client_id = self.client(client)
        (found,) = self.ask(Deregister(client_id))
        if client_id == NOBODY:
            assert reason(found) is Refusal.NO_SUCH_CLIENT
            return
        assert found == Done()
        own = self.oracle.clients.pop(client_id)
        del self.names[self.oracle.queues[own][0]]
        self.oracle.drop_queue(own)
        for queue, (name, whose, owner) in self.oracle.queues.items():
            self.oracle.queues[queue] = (name, whose, None if owner == client_id else owner)

    sends = st.lists(
        st.tuples(
            picks, st.lists(picks, max_size=3), st.none() | picks, st.integers(1, 3), st.sampled_from([0, 0, 1, 2]),
            st.binary(max_size=3),
        ),
        min_size=1, max_size=6,
    )  # fmt: skip

    @rule(wanted=sends, once=st.booleans())
    def send(self, wanted: list[SendSpec], once: bool = False) -> None:
        requests = self.sends_of(wanted, once)
        self.check_sent(requests, self.ask(*requests))

    def sends_of(self, wanted: list[SendSpec], once: bool) -> list[Send]:
        requests = []
        for client_id, queues, receiver, priority, context, content in wanted:
            client, targets = self.client(client_id), tuple(dict.fromkeys(map(self.queue, queues)))
            to = None if receiver is None and targets else self.client(receiver or 0)
            known = self.contexts[-1] if context == 1 and self.contexts else None
            slot = self.once(client) if once else None
            requests.append(Send(client, content, targets, priority, to, known, context == 2, slot))
        return requests

    def check_sent(self, requests: list[Send], answers: list[Answer]) -> None:
        for request, found in zip(requests, answers, strict=True):
            oracle = self.oracle
            if NOBODY in {request.client, request.receiver}:
                assert reason(found) is Refusal.NO_SUCH_CLIENT
                continue
            if NOBODY in request.queues:
                assert reason(found) is Refusal.NO_SUCH_QUEUE
                continue
            targets = request.queues or (oracle.clients[request.receiver or 0],)
            assert isinstance(found, Sent)
            assert len(found.messages) == len(targets)
            if request.new_context:
                assert found.context is not None
                assert found.context not in self.contexts
                self.contexts.append(found.context)
            else:
                assert found.context == request.context
            for number, queue in zip(found.messages, targets, strict=True):
                assert all(number > message.id for message in oracle.messages)
                oracle.messages.append(
                    Stored(
                        number,
                        queue,
                        request.client,
                        request.receiver,
                        request.priority,
                        found.context,
                        request.content,
                    )
                )

    @rule(wanted=st.lists(dequeue_specs, min_size=1, max_size=5), client=picks, count=st.integers(0, 3))
    def peek_and_count(self, wanted: list[DequeueSpec], client: int, count: int) -> None:
        self.peek(wanted)
        self.pending(client, count)

    def peek(self, wanted: list[DequeueSpec]) -> None:
        asked = [self.query(spec) for spec in wanted]
        answers = self.ask(*(Peek(client, query, count) for client, query, count in asked))
        for (client, query, count), found in zip(asked, answers, strict=True):
            seen = self.oracle.seen_by(client, query)
            if isinstance(seen, Refusal):
                assert reason(found) is seen
            else:
                assert isinstance(found, Messages)
                assert list(map(fields, found.messages)) == list(map(fields, seen[:count]))

    @rule(wanted=st.lists(st.tuples(dequeue_specs, st.booleans()), min_size=1, max_size=5), once=st.booleans())
    def dequeue(self, wanted: list[tuple[DequeueSpec, bool]], once: bool) -> None:
        requests = self.dequeues_of(wanted, once)
        self.check_handed_out(requests, self.ask(*requests))

    @rule(
        sent=sends, wanted=st.lists(st.tuples(dequeue_specs, st.booleans()), min_size=1, max_size=5), once=st.booleans()
    )
    def exchange(self, sent: list[SendSpec], wanted: list[tuple[DequeueSpec, bool]], once: bool) -> None:
        """Any sends and dequeues, in one statement where possible."""
        self.send_and_dequeue(self.sends_of(sent, once), self.dequeues_of(wanted, once))

    @rule(sent=plain_sends, wanted=plain_dequeues)
    def exchange_plainly(self, sent: list[SendSpec], wanted: list[tuple[int, bool, bool]]) -> None:
        """To and from clients' own queues and public ones, so that some messages are handed over directly."""
        sends, dequeues = self.sends_of(sent, once=True), []
        for client_id, public, in_context in wanted:
            client = self.client(client_id)
            queue = self.queue(client_id) if public else self.oracle.clients.get(client, NOBODY)
            context = self.contexts[-1] if in_context and self.contexts else None
            dequeues.append(Dequeue(client, Query(queue, context=context), once=self.once(client)))
        self.send_and_dequeue(sends, dequeues)

    def send_and_dequeue(self, sends: list[Send], dequeues: list[Dequeue]) -> None:
        answers = self.ask(*sends, *dequeues)
        self.check_sent(sends, answers[: len(sends)])
        self.check_handed_out(dequeues, answers[len(sends) :])

    def dequeues_of(self, wanted: list[tuple[DequeueSpec, bool]], once: bool) -> list[Dequeue]:
        requests = []
        for spec, leased in wanted:
            client, query, count = self.query(spec)
            slot = self.once(client) if once else None
            requests.append(Dequeue(client, query, count, HOUR_MS if leased else 0, once=slot))
        return requests

    def check_handed_out(self, requests: list[Dequeue], found_by: list[Answer]) -> None:
        answers = dict(zip(range(len(requests)), found_by, strict=True))
        # Requests of one batch are served in order, those without a queue after the others.
        for at in sorted(answers, key=lambda at: requests[at].query.queue is None):
            request, found = requests[at], answers[at]
            seen = self.oracle.seen_by(request.client, request.query)
            if isinstance(seen, Refusal):
                assert reason(found) is seen
                continue
            due = seen[: request.count]
            assert isinstance(found, Messages)
            assert list(map(fields, found.messages)) == list(map(fields, due))
            for message, got in zip(due, found.messages, strict=True):
                message.delivery += 1
                assert got.delivery == message.delivery
                assert got.redelivered == (message.delivery > 1)
                if request.lease_ms:
                    message.holder = message.had_by = request.client
                    message.given_out = True
                else:
                    self.oracle.messages.remove(message)

    def holder(self, client: int, chosen: tuple[Delivery, ...]) -> int:
        """Mostly the current or former holder of the first one; sometimes any client."""
        had = [message.had_by for message in self.oracle.messages if message.id == chosen[0].message]
        return had[0] if client % 4 and had and had[0] in self.oracle.clients else self.client(client)

    def deliveries(self, numbers: list[int], shift: int) -> tuple[Delivery, ...]:
        known = [message for message in self.oracle.messages if message.delivery] or [None]
        chosen = (known[number % len(known)] for number in numbers)
        return tuple(
            dict.fromkeys(Delivery(one.id, max(1, one.delivery + shift)) if one else Delivery(1, 1) for one in chosen)
        )

    @rule(what=settlements, client=picks, numbers=st.lists(picks, min_size=1, max_size=3))
    def settle(self, what: str, client: int, numbers: list[int]) -> None:
        match what:
            case "acknowledge":
                self.acknowledge(client, numbers, 0)
            case "acknowledge another delivery":
                self.acknowledge(client, numbers, 1)
            case "acknowledge a former delivery":
                self.acknowledge(client, numbers, -1)
            case "extend" | "release":
                self.extend(client, numbers, what == "release")
            case _:
                self.a_lease_ends(numbers[0])

    def acknowledge(self, client: int, numbers: list[int], shift: int) -> None:
        chosen = self.deliveries(numbers, shift)
        client_id = self.holder(client, chosen)
        held = {one: self.oracle.held(client_id, one) for one in chosen}
        (found,) = self.ask(Acknowledge(client_id, chosen))
        assert found == Settled(tuple(one for one in chosen if held[one] is None))
        self.oracle.messages = [message for message in self.oracle.messages if message not in held.values()]

    def extend(self, client: int, numbers: list[int], back: bool) -> None:
        chosen = self.deliveries(numbers, 0)
        client_id = self.holder(client, chosen)
        held = {one: self.oracle.held(client_id, one) for one in chosen}
        (found,) = self.ask(Extend(client_id, chosen, 0 if back else HOUR_MS))
        assert found == Settled(tuple(one for one in chosen if held[one] is None))
        for message in held.values():
            if message:
                message.given_out = not back
                message.holder = None if back else client_id

    def a_lease_ends(self, number: int) -> None:
        given_out = [message for message in self.oracle.messages if message.given_out]
        if given_out:
            message = given_out[number % len(given_out)]
            message.given_out = False  # its holder may still acknowledge, until another client gets it
            self.sql("UPDATE mlmq.message SET leased_until = now() - interval '1 second' WHERE id = $1", message.id)

    def pending(self, client: int, count: int) -> None:
        client_id = self.client(client)
        (found,) = self.ask(Pending(client_id, count))
        if client_id == NOBODY:
            assert reason(found) is Refusal.NO_SUCH_CLIENT
            return
        public = []
        for queue, (name, whose, owner) in sorted(self.oracle.queues.items()):
            if whose is None and self.oracle.seen_by(client_id, Query(queue)):
                public.append(QueueFound(queue, name, None, owner))
        own = self.oracle.seen_by(client_id, Query(self.oracle.clients[client_id]))
        assert isinstance(own, list)
        assert found == PendingFound(len(own), tuple(public[:count]))


def run_state_machine(url: str, examples: int, steps: int, phases: tuple[Phase, ...]) -> None:
    loop = asyncio.new_event_loop()
    try:
        Clients.loop, Clients.connection = loop, loop.run_until_complete(asyncpg.connect(url))
        # The test checks answers, not durability: no need to wait for the disk.
        loop.run_until_complete(Clients.connection.execute("SET synchronous_commit = off"))
        run_state_machine_as_test(
            Clients,
            settings=settings(
                max_examples=examples,
                stateful_step_count=steps,
                phases=phases,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                database=None,
            ),
        )
        loop.run_until_complete(Clients.connection.close())
    finally:
        loop.close()


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dequeues with a slot use the procedure for batches where it can serve them; those without one never do."""
    monkeypatch.setattr(message_batches, "LEAST_MESSAGES", 1)


def test_every_filter_and_order_agrees_with_the_oracle(database_url: str) -> None:
    run_state_machine(
        database_url, 60, 30, (Phase.generate,)
    )  # shrinking against a database takes minutes: the soak test does it


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_every_filter_and_order_agrees_with_the_oracle_for_long(database_url: str) -> None:
    run_state_machine(database_url, 2_000, 60, (Phase.generate, Phase.shrink))
