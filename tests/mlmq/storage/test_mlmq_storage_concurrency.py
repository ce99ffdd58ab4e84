"""Does the storage stay correct under concurrent requests?

Several connections to one real PostgreSQL. Where two requests must meet, one of them is held open inside a transaction;
no test depends on which one is faster.
"""

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from crescendo.mlmq.storage import Database, message_batches
from crescendo.mlmq.storage.database import answer
from crescendo.wire.mlmq.operations import (
    Acknowledge,
    CreateQueue,
    DeleteQueue,
    Delivery,
    Dequeue,
    Deregister,
    Done,
    Extend,
    Messages,
    Once,
    Order,
    Peek,
    Pending,
    Query,
    QueueFound,
    Refusal,
    Refused,
    Register,
    Registered,
    Request,
    Send,
    Sent,
)
from mlmq_requests import BLOCKED_S, contents, one, public, registered, with_pool


@pytest.mark.parametrize("lease_ms", [0, 3_600_000])
@pytest.mark.parametrize("total", [1_500, pytest.param(10_000, marks=pytest.mark.soak)])
def test_32_consumers_get_each_message_exactly_once(
    database_url: str, lease_ms: int, total: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each consumer stops at its first empty answer: if all got one too early, messages would be left.

    Requests with a slot, by priority, are served by the procedure for batches, beside the general one.
    """
    monkeypatch.setattr(message_batches, "LEAST_MESSAGES", 1)

    async def work(pool: Any, database: Database) -> None:
        clients = await registered(database, *(f"consumer{n}" for n in range(32)))
        queues = [await public(database, clients[0].client, f"queue{n}") for n in range(3)]
        for start in range(0, total, 250):
            numbers = range(start, min(total, start + 250))
            await database.send([Send(clients[0].client, b"%d" % n, (queues[n % 3],), 1 + n % 10) for n in numbers])
        seen: Counter[bytes] = Counter()

        async def consume(me: Registered, rng: random.Random) -> None:
            number = 0
            for queue in queues:
                while True:
                    number += 1
                    query, count, repeatable = (
                        Query(queue, order=rng.choice(list(Order))),
                        rng.randint(1, 4),
                        rng.random(),
                    )
                    onces = [Once(me.session, slot, number) if repeatable < 0.5 else None for slot in range(3)]
                    batch = [Dequeue(me.client, query, count, lease_ms, once=once) for once in onces]
                    batch = batch[: rng.randint(1, 3)]
                    got = [content for found in (await database.dequeue(batch)).answers for content in contents(found)]
                    seen.update(got)
                    if not got:
                        break

        await asyncio.gather(*(consume(client, random.Random(client.client)) for client in clients))
        assert seen == Counter(str(n).encode() for n in range(total))

    with_pool(database_url, work)


@pytest.mark.parametrize("order", list(Order))
def test_locked_messages_are_skipped_and_available_again_after_a_rollback(database_url: str, order: Order) -> None:
    async def work(pool: Any, database: Database) -> None:
        (client,) = await registered(database, "a")
        queue = await public(database, client.client, "q")
        await database.send([Send(client.client, bytes([n]), (queue,)) for n in range(4)])
        take = Dequeue(client.client, Query(queue, order=order))
        async with pool.acquire() as other:
            transaction = other.transaction()
            await transaction.start()
            held = await answer(other, [take, take, take])
            assert [contents(found) for found in held] == [[b"\0"], [b"\1"], [b"\2"]]
            # Three of four are locked: the fourth is found at once, and then nothing is available.
            assert contents(await one(database, take)) == [b"\3"]
            assert contents(await one(database, take)) == []
            await transaction.rollback()
        left = [contents(found) for found in (await database.dequeue([take] * 4)).answers]
        assert left == [[b"\0"], [b"\1"], [b"\2"], []]

    with_pool(database_url, work)


def test_50_parallel_registrations_of_one_name_give_one_id(database_url: str) -> None:
    async def work(pool: Any, database: Database) -> None:
        found = await asyncio.gather(*(registered(database, "same", f"own{n}") for n in range(50)))
        assert len({client.client for client, _ in found}) == len({client.queue for client, _ in found}) == 1
        assert len({client.session for pair in found for client in pair}) == 100
        owner = found[0][0].client
        queues = await asyncio.gather(*(public(database, owner, "jobs") for _ in range(50)))
        assert len(set(queues)) == 1
        assert await pool.fetchval("SELECT count(*) FROM mlmq.client") == 51
        assert await pool.fetchval("SELECT count(*) FROM mlmq.queue") == 52

    with_pool(database_url, work, connections=20)


def test_a_name_is_a_client_or_a_queue_never_half_of_both(database_url: str) -> None:
    async def work(pool: Any, database: Database) -> None:
        (first,) = await registered(database, "first")
        for n in range(15):
            requests: list[Request] = [Register(f"n{n}"), CreateQueue(first.client, f"n{n}")] * 3
            found = await asyncio.gather(*(one(database, request) for request in requests))
            refused = [answer.reason if isinstance(answer, Refused) else None for answer in found]
            assert refused in ([None, Refusal.NAME_TAKEN] * 3, [Refusal.NAME_TAKEN, None] * 3)
        halves = "SELECT count(*) FROM mlmq.client c FULL JOIN mlmq.queue q ON q.client = c.id WHERE c.name <> q.name"
        assert await pool.fetchval(halves) == 0
        alone = "SELECT count(*) FROM mlmq.client c WHERE NOT EXISTS (SELECT 1 FROM mlmq.queue q WHERE q.client = c.id)"
        assert await pool.fetchval(alone) == 0

    with_pool(database_url, work)


def test_a_queue_is_not_deleted_while_it_is_answered_with(database_url: str) -> None:
    """Otherwise the answer to its creation could be a queue without a number."""

    async def work(pool: Any, database: Database) -> None:
        (client,) = await registered(database, "a")
        queue = await public(database, client.client, "q")
        async with pool.acquire() as creator:
            transaction = creator.transaction()
            await transaction.start()
            (found,) = await answer(creator, [CreateQueue(client.client, "q")])
            assert isinstance(found, QueueFound)
            assert found.queue == queue
            deletion = asyncio.create_task(one(database, DeleteQueue(client.client, queue)))
            done, _ = await asyncio.wait({deletion}, timeout=BLOCKED_S)
            assert not done
            await transaction.commit()
        assert await deletion == Done()

    with_pool(database_url, work)


def test_a_queue_is_not_deleted_while_a_message_to_it_is_in_flight(database_url: str) -> None:
    async def work(pool: Any, database: Database) -> None:
        (client,) = await registered(database, "a")
        queue = await public(database, client.client, "q")
        async with pool.acquire() as sender:
            transaction = sender.transaction()
            await transaction.start()
            await answer(sender, [Send(client.client, b"x", (queue,))])
            deletion = asyncio.create_task(one(database, DeleteQueue(client.client, queue)))
            done, _ = await asyncio.wait({deletion}, timeout=BLOCKED_S)
            assert not done
            await transaction.commit()
            assert await deletion == Done()
        assert await pool.fetchval("SELECT count(*) FROM mlmq.message") == 0
        refused = await one(database, Send(client.client, b"y", (queue,)))
        assert isinstance(refused, Refused)
        assert refused.reason is Refusal.NO_SUCH_QUEUE

    with_pool(database_url, work)


def test_all_operations_at_once_neither_deadlock_nor_leave_orphans(database_url: str) -> None:
    """A deadlock would raise StorageUnavailable."""

    async def work(pool: Any, database: Database) -> None:
        (client,) = await registered(database, "root")

        async def run_client(seed: int) -> None:
            rng = random.Random(seed)
            for _ in range(25):
                name = f"n{rng.randrange(4)}"
                found = (await database.register([Register(name), Register(f"n{rng.randrange(4)}")])).answers
                me = next((answer.client for answer in found if isinstance(answer, Registered)), client.client)
                made = (
                    await database.create_queue([CreateQueue(me, f"q{rng.randrange(4)}") for _ in range(3)])
                ).answers
                queues = [answer.queue for answer in made if isinstance(answer, QueueFound)] or [1]
                targets = tuple(dict.fromkeys(rng.choices(queues, k=2)))
                await database.send([Send(me, b"x", targets), Send(me, b"y", receiver=client.client)])
                got = await one(database, Dequeue(me, Query(queues[0]), 5, 1_000))
                if isinstance(got, Messages) and got.messages:
                    held = tuple(Delivery(message.id, message.delivery) for message in got.messages)
                    await database.extend([Extend(me, held, 1_000)])
                    await database.acknowledge([Acknowledge(me, held)])
                await database.pending([Pending(me)])
                match rng.randrange(4):
                    case 0:
                        await database.delete_queue([DeleteQueue(me, queue) for queue in queues])
                    case 1:
                        await database.deregister([Deregister(me)] if me != client.client else [])

        await asyncio.gather(*map(run_client, range(6)))
        orphans = (
            "SELECT count(*) FROM mlmq.message m WHERE NOT EXISTS (SELECT 1 FROM mlmq.queue q WHERE q.id = m.queue)"
        )
        assert await pool.fetchval(orphans) == 0

    with_pool(database_url, work)


@pytest.mark.parametrize("order", list(Order))
def test_a_long_queue_is_not_read_to_get_its_first_message(database_url: str, order: Order) -> None:
    """Counted by PostgreSQL itself, on a table that has grown since it was last analysed, as queues do."""

    async def work(pool: Any, database: Database) -> None:
        (client,) = await registered(database, "a")
        queue = await public(database, client.client, "q")
        take = Dequeue(client.client, Query(queue, order=order))
        for _ in range(8):  # so that the plan is cached while the queue is short
            await database.send([Send(client.client, b"x", (queue,))])
            await database.dequeue([take])
        await pool.execute("ANALYZE mlmq.message")
        await pool.execute(
            "INSERT INTO mlmq.message (id, queue, sender, sent_at, priority, content) "
            "SELECT nextval('mlmq.message_number'), $1, $2, now(), 1 + g % 10, '' FROM generate_series(1, 5000) g",
            queue,
            client.client,
        )
        async with pool.acquire() as connection, connection.transaction():
            before = await connection.fetchval(READ)
            found = await answer(connection, [take] * 10)
            assert all(len(contents(messages)) == 1 for messages in found)
            await answer(connection, [Peek(client.client, Query(queue, order=order))])
            assert await connection.fetchval(READ) - before < 200

    with_pool(database_url, work, connections=1)


READ = (
    "SELECT coalesce(idx_tup_fetch, 0) + coalesce(seq_tup_read, 0) "
    "FROM pg_stat_xact_user_tables WHERE schemaname = 'mlmq' AND relname = 'message'"
)


def test_batches_larger_than_a_statement_are_served_in_order(database_url: str) -> None:
    async def work(pool: Any, database: Database) -> None:
        (client,) = await registered(database, "a")
        queue = await public(database, client.client, "q")
        sent = (await database.send([Send(client.client, str(n).encode(), (queue,)) for n in range(600)])).answers
        numbers = [answer.messages[0] for answer in sent if isinstance(answer, Sent)]
        assert numbers == sorted(numbers)
        assert len(numbers) == 600
        served = await database.dequeue([Dequeue(client.client, Query(queue), 100)] * 7)
        assert [len(contents(found)) for found in served.answers] == [100] * 6 + [0]
        assert [content for found in served.answers for content in contents(found)] == [b"%d" % n for n in range(600)]
        assert served.database_ns > 0
        assert served.pool_wait_ns > 0
        assert (await database.serve([])).answers == []

    with_pool(database_url, work)


def test_concurrent_dequeues_of_one_queue_get_only_visible_messages(database_url: str) -> None:
    async def work(_pool: Any, database: Database) -> None:
        sender, *askers = await registered(database, "t-sender", "t-a", "t-b", "t-c", "t-d")
        queue = await public(database, sender.client, "t-shared")
        for content, receiver in (
            (b"for c", askers[2].client),
            (b"1", None),
            (b"for a", askers[0].client),
            (b"2", None),
        ):
            await one(database, Send(sender.client, content, queues=(queue,), receiver=receiver))
        asked = [Dequeue(asker.client, Query(queue=queue), lease_ms=0) for asker in askers]
        found = [contents(answer) for answer in (await database.serve(asked)).answers]
        assert found == [[b"1"], [b"2"], [b"for c"], []]
        assert [contents(answer) for answer in (await database.serve(asked)).answers] == [[b"for a"], [], [], []]

    with_pool(database_url, work)


def test_dequeues_of_one_queue_with_different_orders_are_served_in_request_order(database_url: str) -> None:
    async def work(_pool: Any, database: Database) -> None:
        [client] = await registered(database, "o-client")
        queue = await public(database, client.client, "o-queue")
        for content, priority in ((b"oldest", 1), (b"first", 9), (b"second", 8), (b"third", 7)):
            await one(database, Send(client.client, content, queues=(queue,), priority=priority))
        orders = (Order.PRIORITY, Order.PRIORITY, Order.AGE, Order.PRIORITY, Order.PRIORITY)
        asked = [Dequeue(client.client, Query(queue=queue, order=order)) for order in orders]
        found = [contents(answer) for answer in (await database.serve(asked)).answers]
        assert found == [[b"first"], [b"second"], [b"oldest"], [b"third"], []]

    with_pool(database_url, work)


def test_a_dequeue_served_separately_keeps_its_position_in_the_batch(database_url: str) -> None:
    async def work(_pool: Any, database: Database) -> None:
        one_client, other = await registered(database, "k-one", "k-other")
        shared, queue = [await public(database, one_client.client, name) for name in ("k-shared", "k-queue")]
        await one(database, Send(one_client.client, b"meant", queues=(shared,), receiver=other.client))
        await one(database, Send(one_client.client, b"single", queues=(queue,)))
        asked = [
            Dequeue(one_client.client, Query(queue=queue)),
            Dequeue(one_client.client, Query(queue=queue, order=Order.AGE)),
            Dequeue(one_client.client, Query(queue=shared)),
            Dequeue(other.client, Query(queue=shared)),
        ]
        found = [contents(answer) for answer in (await database.serve(asked)).answers]
        assert found == [[b"single"], [], [], [b"meant"]]

    with_pool(database_url, work)


def test_messages_unlocked_during_a_statement_are_handed_out_once(database_url: str) -> None:
    """Other connections keep locking and unlocking messages while one statement serves many dequeues of the queue."""

    async def work(pool: Any, database: Database) -> None:
        [sender], askers = await registered(database, "m-sender"), await registered(
            database, *(f"m-{n}" for n in range(20))
        )  # fmt: skip
        queue = await public(database, sender.client, "m-shared")
        messages = 2000
        for first in range(0, messages, 200):
            await database.send(
                [Send(sender.client, b"%d" % n, queues=(queue,)) for n in range(first, first + 200)]
            )  # fmt: skip
        found: Counter[bytes] = Counter()
        asked = [Dequeue(asker.client, Query(queue=queue), lease_ms=0) for asker in askers]

        async def disturb() -> None:
            async with pool.acquire() as connection:
                while found.total() < messages:
                    transaction = connection.transaction()
                    await transaction.start()
                    await connection.fetch(
                        "SELECT id FROM mlmq.message WHERE queue = $1 ORDER BY priority DESC, sent_at, id LIMIT 8 "
                        "FOR UPDATE SKIP LOCKED",
                        queue,
                    )
                    await transaction.rollback()

        async def take() -> None:
            while found.total() < messages:
                for answer_ in (await database.serve(asked)).answers:
                    found.update(contents(answer_))

        await asyncio.wait_for(asyncio.gather(disturb(), disturb(), take(), take()), 60)
        assert set(found.values()) == {1}
        assert len(found) == messages

    with_pool(database_url, work)
