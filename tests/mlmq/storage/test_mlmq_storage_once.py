"""Can a lost answer lose or duplicate a message?

Leases that expire, requests that are repeated because their answers were lost, and copies of requests that a slow
broker serves long after the client has moved on.
"""

import asyncio
from typing import Any

import pytest

from crescendo.mlmq.storage import Database
from crescendo.mlmq.storage.database import answer
from crescendo.wire.mlmq.operations import (
    Acknowledge,
    Answer,
    Delivery,
    Dequeue,
    Extend,
    Message,
    Messages,
    Once,
    Query,
    Refusal,
    Refused,
    Registered,
    Send,
    Sent,
    Settled,
)
from mlmq_requests import BLOCKED_S, contents, one, public, registered, with_pool

HOUR_MS = 3_600_000


def only(found: Answer) -> Message:
    assert isinstance(found, Messages)
    (message,) = found.messages
    return message


def is_stale(found: Answer) -> bool:
    return isinstance(found, Refused) and found.reason is Refusal.STALE


async def filled(database: Database, count: int) -> tuple[Registered, Registered, int]:
    """Two clients, and a queue with messages 0, 1, 2, …"""
    first, second = await registered(database, "first", "second")
    queue = await public(database, first.client, "q")
    await database.send([Send(first.client, b"%d" % n, (queue,)) for n in range(count)])
    return first, second, queue


def test_a_message_is_redelivered_only_after_its_lease_has_expired(database_url: str) -> None:
    async def work(pool: Any, database: Database) -> None:
        first, second, queue = await filled(database, 1)
        got = only(await one(database, Dequeue(first.client, Query(queue), lease_ms=HOUR_MS)))
        assert not got.redelivered
        held = (Delivery(got.id, got.delivery),)
        other = Dequeue(second.client, Query(queue), lease_ms=HOUR_MS)
        assert contents(await one(database, other)) == []
        # Shortened, so that it expires during the test. Only its holder may do that.
        assert await one(database, Extend(second.client, held, 1)) == Settled(held)
        assert await one(database, Extend(first.client, held, 30)) == Settled()
        await asyncio.sleep(0.2)
        again = only(await one(database, other))
        assert (again.id, again.content, again.delivery, again.redelivered) == (got.id, got.content, 2, True)
        # The former holder can no longer acknowledge it; the current one can, and only once.
        assert await one(database, Acknowledge(first.client, held)) == Settled(held)
        now_held = (Delivery(again.id, again.delivery),)
        assert await one(database, Acknowledge(second.client, now_held)) == Settled()
        assert await one(database, Acknowledge(second.client, now_held)) == Settled(now_held)
        assert await pool.fetchval("SELECT count(*) FROM mlmq.message") == 0

    with_pool(database_url, work)


def test_a_late_acknowledgement_counts_while_no_other_client_holds_the_message(database_url: str) -> None:
    async def work(_: Any, database: Database) -> None:
        first, second, queue = await filled(database, 1)
        got = only(await one(database, Dequeue(first.client, Query(queue), lease_ms=1)))
        await asyncio.sleep(0.1)
        assert await one(database, Acknowledge(first.client, (Delivery(got.id, got.delivery),))) == Settled()
        assert contents(await one(database, Dequeue(second.client, Query(queue)))) == []

    with_pool(database_url, work)


def test_a_repeated_send_stores_once_and_gets_the_same_answer(database_url: str) -> None:
    async def work(pool: Any, database: Database) -> None:
        first, second, queue = await filled(database, 0)
        send = Send(first.client, b"x", (queue, second.queue), new_context=True, once=Once(first.session, 0, 1))
        sent = await one(database, send)
        assert isinstance(sent, Sent)
        assert await one(database, send) == sent
        # In one batch, and from many brokers at once.
        assert (await database.send([send, send])).answers == [sent, sent]
        fresh = Send(first.client, b"y", (queue,), once=Once(first.session, 1, 1))
        everywhere = await asyncio.gather(*(one(database, fresh) for _ in range(20)))
        assert len(set(everywhere)) == 1
        assert await pool.fetchval("SELECT count(*) FROM mlmq.message") == 3
        # The slot is used again; a late copy of an older request is refused.
        later = Send(first.client, b"z", (queue,), once=Once(first.session, 0, 2))
        assert isinstance(await one(database, later), Sent)
        assert is_stale(await one(database, send))
        # The same slot number of another client is another slot.
        foreign = Send(second.client, b"w", (queue,), once=Once(first.session, 0, 1))
        assert isinstance(await one(database, foreign), Sent)

    with_pool(database_url, work)


@pytest.mark.parametrize("lease_ms", [0, HOUR_MS])
def test_a_lost_answer_to_a_dequeue_can_be_requested_again(database_url: str, lease_ms: int) -> None:
    async def work(_: Any, database: Database) -> None:
        first, second, queue = await filled(database, 5)
        lost = Dequeue(first.client, Query(queue), 2, lease_ms, once=Once(first.session, 3, 1))
        answered = await one(database, lost)
        assert contents(answered) == [b"0", b"1"]
        assert contents(await one(database, Dequeue(second.client, Query(queue)))) == [b"2"]
        assert await one(database, lost) == answered
        assert (await database.dequeue([lost, lost])).answers == [answered, answered]
        following = Dequeue(first.client, Query(queue), 2, lease_ms, once=Once(first.session, 3, 2))
        assert contents(await one(database, following)) == [b"3", b"4"]
        assert is_stale(await one(database, lost))

    with_pool(database_url, work)


def test_a_late_copy_of_a_dequeue_takes_nothing_for_a_client_that_has_moved_on(database_url: str) -> None:
    """The first copy waits at a slow broker; the second got an empty answer. Then the client sent its next request."""

    async def work(_: Any, database: Database) -> None:
        first, second, queue = await filled(database, 0)
        slow = Dequeue(first.client, Query(queue), once=Once(first.session, 0, 1))
        assert contents(await one(database, slow)) == []
        assert contents(await one(database, slow)) == []  # an empty answer is not kept: it queries again
        following = Dequeue(first.client, Query(queue), once=Once(first.session, 0, 2))
        assert contents(await one(database, following)) == []
        await database.send([Send(second.client, b"late", (queue,))])
        assert is_stale(await one(database, slow))
        assert contents(await one(database, following)) == [b"late"]
        assert contents(await one(database, following)) == [b"late"]

    with_pool(database_url, work)


@pytest.mark.parametrize("commits", [True, False])
def test_a_repetition_waits_for_the_original_in_flight(database_url: str, commits: bool) -> None:
    async def work(pool: Any, database: Database) -> None:
        first, second, queue = await filled(database, 2)
        request = Dequeue(first.client, Query(queue), once=Once(first.session, 0, 1))
        async with pool.acquire() as original:
            transaction = original.transaction()
            await transaction.start()
            assert contents((await answer(original, [request]))[0]) == [b"0"]
            repetition = asyncio.create_task(one(database, request))
            done, _ = await asyncio.wait({repetition}, timeout=BLOCKED_S)
            assert not done
            await (transaction.commit() if commits else transaction.rollback())
            # Committed: the same message. Rolled back: it was never taken, and the repetition takes it.
            assert contents(await repetition) == [b"0"]
        rest = Dequeue(second.client, Query(queue), 5)
        assert contents(await one(database, rest)) == [b"1"]

    with_pool(database_url, work)


def test_receipts_grow_with_slots_and_not_with_traffic(database_url: str) -> None:
    async def work(pool: Any, database: Database) -> None:
        first, _, queue = await filled(database, 0)
        for number in range(1, 20):
            await database.send([Send(first.client, b"x", (queue,), once=Once(first.session, 0, number))])
            await database.dequeue([Dequeue(first.client, Query(queue), once=Once(first.session, 1, number))])
        assert await pool.fetchval("SELECT count(*) FROM mlmq.receipt") == 3  # the other client's first slot
        assert await database.forget_receipts(3600) == 0
        assert await database.forget_receipts(0) == 3

    with_pool(database_url, work)


def test_queue_lengths_count_waiting_and_leased_messages(database_url: str) -> None:
    async def work(_: Any, database: Database) -> None:
        first, second, queue = await filled(database, 5)
        await database.dequeue([Dequeue(second.client, Query(queue), 2, HOUR_MS)])
        await database.send([Send(first.client, b"", receiver=second.client)])
        lengths = await database.queue_lengths(2)
        assert [tuple(length) for length in lengths] == [(queue, "q", 3, 2), (second.queue, "second", 1, 0)]

    with_pool(database_url, work)
