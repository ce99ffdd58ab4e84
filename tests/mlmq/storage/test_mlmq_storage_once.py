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
    Abandon,
    Acknowledge,
    Answer,
    Delivery,
    Dequeue,
    Deregister,
    Done,
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
    """The first copy waits at a slow broker; the second got an empty answer. Then the client gives the request up."""

    async def work(_: Any, database: Database) -> None:
        first, second, queue = await filled(database, 0)
        slow = Dequeue(first.client, Query(queue), once=Once(first.session, 0, 1))
        assert contents(await one(database, slow)) == []
        assert contents(await one(database, slow)) == []  # an empty answer is not kept: it queries again
        assert await one(database, Abandon(first.client, (Once(first.session, 0, 2),))) == Done()
        await database.send([Send(second.client, b"late", (queue,))])
        assert is_stale(await one(database, slow))
        following = Dequeue(first.client, Query(queue), once=Once(first.session, 0, 3))
        assert contents(await one(database, following)) == [b"late"]
        assert contents(await one(database, following)) == [b"late"]

    with_pool(database_url, work)


@pytest.mark.parametrize("lease_ms", [0, HOUR_MS])
def test_what_was_taken_by_an_abandoned_dequeue_goes_back(database_url: str, lease_ms: int) -> None:
    async def work(_: Any, database: Database) -> None:
        first, second, queue = await filled(database, 3)
        lost = Dequeue(first.client, Query(queue), 2, lease_ms, once=Once(first.session, 3, 1))
        assert contents(await one(database, lost)) == [b"0", b"1"]
        abandon = Abandon(first.client, (Once(first.session, 3, 2), Once(first.session, 4, 1)))
        assert (await database.serve([abandon, abandon])).answers == [Done(), Done()]
        assert await one(database, abandon) == Done()
        assert is_stale(await one(database, lost))
        found = await one(database, Dequeue(second.client, Query(queue), 9))
        assert contents(found) == [b"0", b"1", b"2"]
        assert [message.redelivered for message in found.messages] == [True, True, False]
        assert contents(await one(database, Dequeue(second.client, Query(queue), 9))) == []
        unknown = await one(database, Abandon(999_999, (Once(first.session, 3, 2),)))
        assert isinstance(unknown, Refused)
        assert unknown.reason is Refusal.NO_SUCH_CLIENT

    with_pool(database_url, work)


def test_abandoning_gives_nothing_back_that_another_client_has_had(database_url: str) -> None:
    async def work(_: Any, database: Database) -> None:
        first, second, queue = await filled(database, 1)
        lost = Dequeue(first.client, Query(queue), 1, 1, once=Once(first.session, 0, 1))
        assert contents(await one(database, lost)) == [b"0"]
        await asyncio.sleep(0.1)
        again = only(await one(database, Dequeue(second.client, Query(queue), 1, HOUR_MS)))
        await one(database, Abandon(first.client, (Once(first.session, 0, 2),)))
        assert contents(await one(database, Dequeue(first.client, Query(queue)))) == []
        assert await one(database, Acknowledge(second.client, (Delivery(again.id, again.delivery),))) == Settled()
        assert contents(await one(database, Dequeue(first.client, Query(queue)))) == []

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


async def rotate(database: Database, forget_s: float = 3600.0) -> list[str]:
    return [await database.rotate_receipts(0, forget_s) for _ in range(3)]


def test_a_rotation_keeps_the_last_answer_of_every_slot(database_url: str) -> None:
    """Repetitions are recognised before, during and after it."""

    async def work(pool: Any, database: Database) -> None:
        first, _, queue = await filled(database, 0)
        for number in range(1, 20):
            await database.send([Send(first.client, b"x", (queue,), once=Once(first.session, 0, number))])
            await database.dequeue([Dequeue(first.client, Query(queue), once=Once(first.session, 1, number))])
        last = Send(first.client, b"x", (queue,), once=Once(first.session, 0, 19))
        taken = Dequeue(first.client, Query(queue), once=Once(first.session, 1, 19))
        answers = [await one(database, last), await one(database, taken)]
        assert await pool.fetchval("SELECT count(*) FROM mlmq.receipt") == 38
        for step in ("switched", "copied", "truncated"):
            assert await database.rotate_receipts(0, 3600) == step
            assert [await one(database, last), await one(database, taken)] == answers
            assert is_stale(await one(database, Send(first.client, b"x", (queue,), once=Once(first.session, 0, 18))))
        assert await pool.fetchval("SELECT count(*) FROM mlmq.receipt") == 2
        assert await database.rotate_receipts(10**9, 3600) == "idle"

    with_pool(database_url, work)


def test_receipts_grow_with_slots_and_not_with_traffic(database_url: str) -> None:
    async def work(pool: Any, database: Database) -> None:
        first, second, queue = await filled(database, 0)
        for number in range(1, 6):
            await database.send([Send(first.client, b"x", (queue,), once=Once(first.session, 0, number))])
            await database.send([Send(second.client, b"x", (queue,), once=Once(second.session, 0, number))])
            assert await rotate(database) == ["switched", "copied", "truncated"]
            assert await pool.fetchval("SELECT count(*) FROM mlmq.receipt") == 2
        await one(database, Deregister(second.client))
        assert await rotate(database) == ["switched", "copied", "truncated"]
        assert await pool.fetchval("SELECT count(*) FROM mlmq.receipt") == 1
        assert await rotate(database, forget_s=0) == ["switched", "copied", "truncated"]
        assert await pool.fetchval("SELECT count(*) FROM mlmq.receipt") == 0

    with_pool(database_url, work)


def test_a_rotation_waits_for_requests_in_flight_and_gives_way_to_readers(database_url: str) -> None:
    """What is written into the old table must be there before it is copied; a backup that reads it delays the rest."""

    async def work(pool: Any, database: Database) -> None:
        first, _, queue = await filled(database, 0)
        send = Send(first.client, b"x", (queue,), once=Once(first.session, 0, 1))
        async with pool.acquire() as connection, pool.acquire() as backup:
            transaction = connection.transaction()
            await transaction.start()
            await answer(connection, [send])
            assert await database.rotate_receipts(0, 0) == "busy"
            await transaction.commit()
            assert await database.rotate_receipts(-1, 3600) == "switched"
            assert await database.rotate_receipts(0, 3600) == "copied"
            reading = backup.transaction(isolation="repeatable_read")
            await reading.start()
            await backup.fetchval("SELECT count(*) FROM mlmq.receipt")
            assert await database.rotate_receipts(0, 3600) == "busy"
            assert isinstance(await one(database, send), Sent)
            await reading.commit()
        assert await database.rotate_receipts(0, 3600) == "truncated"
        assert await pool.fetchval("SELECT count(*) FROM mlmq.message") == 1

    with_pool(database_url, work)


def test_queue_lengths_count_waiting_and_leased_messages(database_url: str) -> None:
    async def work(_: Any, database: Database) -> None:
        first, second, queue = await filled(database, 5)
        await database.dequeue([Dequeue(second.client, Query(queue), 2, HOUR_MS)])
        await database.send([Send(first.client, b"", receiver=second.client)])
        lengths = await database.queue_lengths(2)
        assert [tuple(length) for length in lengths] == [(queue, "q", 3, 2), (second.queue, "second", 1, 0)]

    with_pool(database_url, work)
