"""Are messages delayed, deleted and put aside exactly when their limits say so, and is the order right around them?"""

import asyncio
from typing import Any

import msgspec
import pytest

from crescendo.mlmq.storage import Database, message_statements
from crescendo.wire.mlmq.operations import (
    Acknowledge,
    ConfigureQueue,
    Delivery,
    Dequeue,
    Done,
    Extend,
    Messages,
    Once,
    Peek,
    Pending,
    PendingFound,
    Query,
    Refusal,
    Refused,
    Send,
    SendMany,
    Sent,
    Settled,
    refusal_of,
)
from mlmq_requests import contents, one, public, registered, with_pool

HOUR_MS = 3_600_000
EXPIRE_LEASES = "UPDATE mlmq.message SET leased_until = now() WHERE leased_until IS NOT NULL"
PASS_TIME = "UPDATE mlmq.message SET expires_at = now() WHERE expires_at IS NOT NULL"


def reason(answer: object) -> Refusal | None:
    return answer.reason if isinstance(answer, Refused) else None


@pytest.mark.parametrize("release", [False, True])
def test_a_poison_message_ends_in_the_dead_letters_and_the_others_keep_their_order(
    database_url: str, release: bool
) -> None:
    """Its lease expires, or its client gives it back, three times."""

    async def work(pool: Any, database: Database) -> None:
        (owner,) = await registered(database, "owner")
        queue, dead = await public(database, owner.client, "q"), await public(database, owner.client, "dead")
        assert await one(database, ConfigureQueue(owner.client, queue, 3, dead)) == Done()
        await database.send(
            [
                Send(owner.client, b"before", (queue,), 6),
                Send(owner.client, b"poison", (queue,), 6, receiver=owner.client),
                Send(owner.client, b"after", (queue,), 6),
            ]
        )
        take = Dequeue(owner.client, Query(queue), 1, HOUR_MS)
        (first,) = (await one(database, take)).messages
        assert await one(database, Acknowledge(owner.client, (Delivery(first.id, first.delivery),))) == Settled()
        for delivery in (1, 2, 3):
            (poison,) = (await one(database, take)).messages
            assert (poison.content, poison.delivery) == (b"poison", delivery)
            if release:
                held = (Delivery(poison.id, poison.delivery),)
                assert await one(database, Extend(owner.client, held, 0)) == Settled()
            else:
                await pool.execute(EXPIRE_LEASES)
        assert contents(await one(database, take)) == [b"after"]
        assert contents(await one(database, Dequeue(owner.client, Query(queue), 9))) == []
        # Everybody may read dead letters, whoever they were for, and sees that they were delivered before.
        (reader,) = await registered(database, "reader")
        (found,) = (await one(database, Dequeue(reader.client, Query(dead), 9))).messages
        assert (found.id, found.content, found.redelivered) == (poison.id, b"poison", True)
        assert await pool.fetchval("SELECT count(*) FROM mlmq.message WHERE queue = $1", queue) == 1

    with_pool(database_url, work)


def test_without_dead_letters_a_message_is_delivered_again_and_again(database_url: str) -> None:
    async def work(pool: Any, database: Database) -> None:
        (owner,) = await registered(database, "owner")
        queue, dead = await public(database, owner.client, "q"), await public(database, owner.client, "dead")
        assert await one(database, ConfigureQueue(owner.client, queue, 1, dead)) == Done()
        assert await one(database, ConfigureQueue(owner.client, queue)) == Done()
        await database.send([Send(owner.client, b"x", (queue,))])
        for delivery in range(1, 5):
            (found,) = (await one(database, Dequeue(owner.client, Query(queue), 1, HOUR_MS))).messages
            assert found.delivery == delivery
            await pool.execute(EXPIRE_LEASES)
        # The queue of the dead letters is deleted: the limit no longer applies, and nothing is lost.
        assert await one(database, ConfigureQueue(owner.client, queue, 1, dead)) == Done()
        await pool.execute("DELETE FROM mlmq.queue WHERE id = $1", dead)
        assert contents(await one(database, Dequeue(owner.client, Query(queue)))) == [b"x"]

    with_pool(database_url, work)


def test_only_its_owner_sets_the_limits_of_a_queue(database_url: str) -> None:
    async def work(_: Any, database: Database) -> None:
        owner, other = await registered(database, "owner", "other")
        queue, dead = await public(database, owner.client, "q"), await public(database, other.client, "dead")
        refused = [
            await one(database, request)
            for request in (
                ConfigureQueue(other.client, queue, 3, dead),
                ConfigureQueue(owner.client, queue, 3, 999_999),
                ConfigureQueue(owner.client, queue, 3, other.queue),
                ConfigureQueue(999_999, queue, 3, dead),
                ConfigureQueue(owner.client, 999_999, 3, dead),
            )
        ]
        assert list(map(reason, refused)) == [
            Refusal.NOT_YOURS,
            Refusal.NO_SUCH_QUEUE,
            Refusal.NOT_YOURS,
            Refusal.NO_SUCH_CLIENT,
            Refusal.NO_SUCH_QUEUE,
        ]
        assert await one(database, ConfigureQueue(owner.client, owner.queue, 3, dead)) == Done()

    with_pool(database_url, work)
    for wrong in ((1, 2, 3, None), (1, 2, None, 3), (1, 2, 3, 2)):
        with pytest.raises(ValueError, match="dead letters"):
            ConfigureQueue(*wrong)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert((1, 2, 0, 3), ConfigureQueue)


def test_a_delayed_message_is_invisible_until_it_is_due(database_url: str) -> None:
    async def work(pool: Any, database: Database) -> None:
        (owner,) = await registered(database, "owner")
        queue = await public(database, owner.client, "q")
        once = Once(owner.session, 0, 1)
        delayed = Send(owner.client, b"delayed", (queue,), 9, delay_ms=HOUR_MS, once=once)
        take = Dequeue(owner.client, Query(queue), 1, once=Once(owner.session, 1, 1))
        # In one statement with a dequeue that would get it, too.
        assert contents((await database.serve([delayed, take])).answers[1]) == []
        await database.send([Send(owner.client, b"now", (queue,), 1)])
        assert contents(await one(database, Peek(owner.client, Query(queue), 9))) == [b"now"]
        found = await one(database, Pending(owner.client))
        assert isinstance(found, PendingFound)
        await pool.execute(EXPIRE_LEASES)
        found = await one(database, Dequeue(owner.client, Query(queue), 9))
        assert contents(found) == [b"delayed", b"now"]
        assert isinstance(found, Messages)
        assert [message.redelivered for message in found.messages] == [False, False]
        short = Send(owner.client, b"short", (queue,), delay_ms=100)
        await database.send([short])
        await asyncio.sleep(0.3)
        assert contents(await one(database, take)) == [b"short"]

    with_pool(database_url, work)


def test_an_expired_message_is_deleted_but_not_while_it_is_leased(database_url: str) -> None:
    async def work(pool: Any, database: Database) -> None:
        (owner,) = await registered(database, "owner")
        queue = await public(database, owner.client, "q")
        await database.send([Send(owner.client, b"%d" % n, (queue,), expiry_ms=HOUR_MS) for n in range(3)])
        await database.send([Send(owner.client, b"stays", (queue,), 1)])
        (leased,) = (await one(database, Dequeue(owner.client, Query(queue), 1, HOUR_MS))).messages
        await pool.execute(PASS_TIME)
        assert contents(await one(database, Peek(owner.client, Query(queue), 9))) == [b"stays"]
        assert await one(database, Acknowledge(owner.client, (Delivery(leased.id, leased.delivery),))) == Settled()
        assert await pool.fetchval("SELECT count(*) FROM mlmq.message") == 1

    with_pool(database_url, work)


@pytest.mark.parametrize("slot", [None, 0])
def test_a_queue_keeps_messages_as_long_as_it_says(database_url: str, slot: int | None) -> None:
    async def work(pool: Any, database: Database) -> None:
        (owner,) = await registered(database, "owner")
        queue = await public(database, owner.client, "q")
        assert await one(database, ConfigureQueue(owner.client, queue, retention_ms=HOUR_MS)) == Done()
        once = None if slot is None else Once(owner.session, slot, 1)
        await database.send([Send(owner.client, b"old", (queue,), once=once)])
        left = await pool.fetchval("SELECT extract(epoch FROM expires_at - sent_at) FROM mlmq.message")
        assert left == 3600
        await pool.execute(PASS_TIME)
        once = None if slot is None else Once(owner.session, slot, 2)
        assert contents(await one(database, Dequeue(owner.client, Query(queue), once=once))) == []
        assert await pool.fetchval("SELECT count(*) FROM mlmq.message") == 0

    with_pool(database_url, work)


@pytest.mark.parametrize("lease_ms", [0, HOUR_MS])
def test_batches_need_no_general_procedure_and_are_served_in_order(
    database_url: str, lease_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(pool: Any, database: Database) -> None:
        low, high = await registered(database, "low", "high")
        queue, empty = [await public(database, low.client, name) for name in ("q", "empty")]
        await one(database, Send(low.client, b"for low", (queue,), 10, receiver=low.client))
        await one(database, ConfigureQueue(low.client, queue, retention_ms=HOUR_MS))
        lows, highs = (tuple(b"%s %d" % (kind, n) for n in range(30)) for kind in (b"low", b"high"))
        for name in ("send", "dequeue"):
            monkeypatch.delattr(message_statements, name)
        sent = [
            SendMany(low.client, queue, lows, 5, Once(low.session, 0, 1)),
            SendMany(high.client, queue, highs, 9, Once(high.session, 0, 1)),
        ]
        stored = (await database.serve(sent)).answers
        ids = [id_ for answer in stored if isinstance(answer, Sent) for id_ in answer.messages]
        assert (len(ids), ids) == (60, sorted(ids))
        asked = [
            Dequeue(high.client, Query(queue), 20, lease_ms, once=Once(high.session, 1, 1)),
            Dequeue(low.client, Query(empty), 20, lease_ms, once=Once(low.session, 1, 1)),
            Dequeue(low.client, Query(queue), 20, lease_ms, once=Once(low.session, 2, 1)),
        ]
        taken = (await database.serve(asked)).answers
        expected = [list(highs[:20]), [], [b"for low", *highs[20:], *lows[:9]]]
        assert [contents(answer) for answer in taken] == expected
        assert await pool.fetchval("SELECT count(*) FROM mlmq.message") == 21 + (40 if lease_ms else 0)
        assert await pool.fetchval("SELECT count(*) FROM mlmq.message WHERE expires_at IS NOT NULL") >= 21
        monkeypatch.undo()
        # What is not plain goes there as a whole, and each request gets what it would get alone.
        nowhere = SendMany(low.client, 999_999, lows, once=Once(low.session, 3, 1))
        again = [*sent, nowhere, SendMany(low.client, empty, lows[:1], once=Once(low.session, 4, 1))]
        *repeated, refused, single = (await database.serve(again)).answers
        assert (repeated, reason(refused), isinstance(single, Sent)) == (stored, Refusal.NO_SUCH_QUEUE, True)
        more = [asked[0], asked[2], Dequeue(low.client, Query(empty), 20, once=Once(low.session, 5, 1))]
        *repeated, last = (await database.serve(more)).answers
        assert (repeated, contents(last)) == ([taken[0], taken[2]], [b"low 0"])

    with_pool(database_url, work)


def test_many_messages_of_one_request_are_stored_in_order_once_and_all_or_none(database_url: str) -> None:
    async def work(pool: Any, database: Database) -> None:
        (owner,) = await registered(database, "owner")
        queue = await public(database, owner.client, "q")
        texts = tuple(b"%d" % n for n in range(100))
        send = SendMany(owner.client, queue, texts, once=Once(owner.session, 0, 1))
        single = SendMany(owner.client, queue, (b"last",))
        sent, last = (await database.serve([send, single])).answers
        assert isinstance(sent, Sent)
        assert isinstance(last, Sent)
        assert (len(sent.messages), len(last.messages)) == (100, 1)
        assert await one(database, send) == sent
        assert contents(await one(database, Dequeue(owner.client, Query(queue), 100))) == list(texts)
        assert contents(await one(database, Dequeue(owner.client, Query(queue), 100))) == [b"last"]
        nowhere = await one(database, SendMany(owner.client, 999_999, texts))
        assert reason(nowhere) is Refusal.NO_SUCH_QUEUE
        assert await pool.fetchval("SELECT count(*) FROM mlmq.message") == 0

    with_pool(database_url, work)
    assert reason(refusal_of(SendMany(1, 1, (b"", b"x" * 2001)))) is Refusal.TOO_LARGE
