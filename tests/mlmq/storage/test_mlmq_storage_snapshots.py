"""Do an old snapshot and a transaction that holds our tables cost nobody anything?"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from crescendo.mlmq.storage import Database
from crescendo.mlmq.storage.database import answer
from crescendo.wire.mlmq.operations import Dequeue, Once, Query, Registered, Send
from mlmq_requests import contents, one, public, registered, with_pool

DEAD = 5_000
STORED_AND_GONE = """
INSERT INTO mlmq.message (id, queue, sender, sent_at, priority, content)
SELECT -n, $1, $2, now() - interval '1 day', 10, 'x' FROM generate_series(1, $3) n
"""
TRANSACTIONS = "DO $$ BEGIN FOR n IN 1..1100 LOOP PERFORM txid_current(); COMMIT; END LOOP; END $$"
DEAD_ROWS = "SELECT pg_stat_get_dead_tuples('mlmq.message'::regclass)"
FIRST_MESSAGE = """
EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)
SELECT id FROM mlmq.message WHERE queue = {} AND leased_until IS NULL ORDER BY priority DESC, sent_at, id LIMIT 1
"""
READS_OTHER_TABLES = "SELECT count(*) FROM pg_class"
READS_OUR_TABLES = "SELECT count(*) FROM mlmq.receipt, mlmq.message"
LONGER_THAN_REQUESTS_S = 0.15


@asynccontextmanager
async def old_snapshot(pool: Any, query: str) -> AsyncIterator[None]:
    """Somebody reads something and stays in the transaction."""
    async with pool.acquire() as other, other.transaction(isolation="repeatable_read"):
        await other.fetchval(query)
        await asyncio.sleep(LONGER_THAN_REQUESTS_S)
        yield


async def fill_with_dead_rows(pool: Any, queue: int, client: int) -> None:
    await pool.execute(STORED_AND_GONE, queue, client, DEAD)
    await pool.execute("DELETE FROM mlmq.message WHERE id < 0")
    await pool.execute(TRANSACTIONS)
    async with asyncio.timeout(60):
        while await pool.fetchval(DEAD_ROWS) < DEAD:  # the counts are late by a second
            await asyncio.sleep(0.05)


async def pages_of_a_dequeue(pool: Any, queue: int) -> int:
    async with pool.acquire() as connection:
        await connection.execute("SET enable_seqscan = off; SET enable_sort = off; SET enable_bitmapscan = off")
        (found,) = json.loads(await connection.fetchval(FIRST_MESSAGE.format(queue)))
        await connection.execute("RESET ALL")
    return int(found["Plan"]["Shared Hit Blocks"] + found["Plan"]["Shared Read Blocks"])


async def compacted(database: Database, most_left: int) -> str:
    """As soon as no autovacuum holds the table."""
    while (found := await database.compact_messages(most_left, DEAD)) == "busy":
        await asyncio.sleep(0.05)
    return found


async def client_and_queue(database: Database) -> tuple[Registered, int]:
    (client,) = await registered(database, "one")
    return client, await public(database, client.client, "q")


def test_dead_rows_that_an_old_snapshot_keeps_make_no_dequeue_slower(database_url: str) -> None:
    async def work(pool: Any, database: Database) -> None:
        client, queue = await client_and_queue(database)
        await database.send([Send(client.client, b"%d" % n, (queue,)) for n in range(4)])
        leased = await one(database, Dequeue(client.client, Query(queue), 1, 3_600_000))
        before = await pages_of_a_dequeue(pool, queue)
        async with old_snapshot(pool, READS_OTHER_TABLES):
            await fill_with_dead_rows(pool, queue, client.client)
            assert await pages_of_a_dequeue(pool, queue) > 10 * before
            assert await compacted(database, 3) == "too many are left"
            async with pool.acquire() as connection:
                transaction = connection.transaction()
                await transaction.start()
                await answer(connection, [Send(client.client, b"in flight", (queue,), 1)])
                await asyncio.sleep(LONGER_THAN_REQUESTS_S)
                assert await database.compact_messages(1_000, DEAD) == "busy"
                await transaction.commit()
            assert await compacted(database, 1_000) == "compacted"
            assert await pages_of_a_dequeue(pool, queue) <= 2 * before
            assert await pool.fetchval("SELECT pg_relation_size('mlmq.message')") < 100_000
            assert await compacted(database, 1_000) == "idle"
        # All that was there is there: the leased one, and the others in their order.
        assert contents(leased) == [b"0"]
        assert await pool.fetchval("SELECT content FROM mlmq.message WHERE leased_by IS NOT NULL") == b"0"
        left = [contents(await one(database, Dequeue(client.client, Query(queue)))) for _ in range(5)]
        assert left == [[b"1"], [b"2"], [b"3"], [b"in flight"], []]

    with_pool(database_url, work)


def test_nobody_waits_behind_a_transaction_that_has_read_our_tables(database_url: str) -> None:
    """A backup reads all tables and stays for hours. A session that waited for it would stop all later requests."""

    async def work(pool: Any, database: Database) -> None:
        client, queue = await client_and_queue(database)
        assert [await database.rotate_receipts(-1, 3600) for _ in range(2)] == ["switched", "copied"]
        async with old_snapshot(pool, READS_OUR_TABLES):
            await fill_with_dead_rows(pool, queue, client.client)
            began_s = time.monotonic()
            for number in range(1, 11):
                assert await database.rotate_receipts(-1, 3600) == "busy"
                assert await database.compact_messages(1_000, DEAD) == "busy"
                await one(database, Send(client.client, b"x", (queue,), once=Once(client.session, 0, number)))
            assert time.monotonic() - began_s < 1.5  # with waiting for locks it would be 3 s
        assert await database.rotate_receipts(-1, 3600) == "truncated"

    with_pool(database_url, work)
