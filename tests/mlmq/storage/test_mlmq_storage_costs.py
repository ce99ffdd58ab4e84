"""Does a request cost the same however many messages are leased, and does looking for messages write nothing?"""

from typing import Any

import pytest

from crescendo.mlmq.storage import Database
from crescendo.mlmq.storage.database import answer
from crescendo.wire.mlmq.operations import Dequeue, Once, Order, Query, Send
from mlmq_requests import contents, public, registered, with_pool

LEASES = 50_000
LEASED = """
INSERT INTO mlmq.message (id, queue, sender, context, sent_at, leased_until, leased_by, delivery, priority, content)
SELECT -n, $1, $2, 7, now() - interval '1 day', now() + interval '1 hour', $2, 1, 10, 'x' FROM generate_series(1, $3) n
"""
ROWS_READ = """
SELECT sum(t.idx_tup_fetch + t.seq_tup_read)::bigint FROM pg_stat_xact_user_tables t
WHERE t.schemaname = 'mlmq' AND t.relname = 'message'
"""


@pytest.mark.parametrize("kind", ["plain", "leased", "by age", "by sender", "by context"])
def test_a_dequeue_reads_as_many_rows_with_50000_leases_as_with_none(database_url: str, kind: str) -> None:
    async def work(pool: Any, database: Database) -> None:
        (one,) = await registered(database, "one")
        queue = await public(database, one.client, "q")
        request = {
            "plain": Dequeue(one.client, Query(queue), once=Once(one.session, 1, 1)),
            "leased": Dequeue(one.client, Query(queue), 1, 60_000),
            "by age": Dequeue(one.client, Query(queue, order=Order.AGE)),
            "by sender": Dequeue(one.client, Query(sender=one.client)),
            "by context": Dequeue(one.client, Query(queue, context=7)),
        }[kind]
        counted = []
        for leases in (0, LEASES):
            await pool.execute("DELETE FROM mlmq.message")
            await pool.execute(LEASED, queue, one.client, leases)
            await database.send([Send(one.client, b"free", (queue,), context=7)])
            async with pool.acquire() as connection:
                transaction = connection.transaction()
                await transaction.start()
                assert contents((await answer(connection, [request]))[0]) == [b"free"]
                counted.append(int(await connection.fetchval(ROWS_READ)))
                await transaction.rollback()
        assert counted[1] <= counted[0] + 20, counted  # some rows that the first turn left behind

    with_pool(database_url, work)


def test_looking_for_messages_writes_nothing(database_url: str) -> None:
    async def work(pool: Any, database: Database) -> None:
        one, other = await registered(database, "one", "other")
        empty, full = await public(database, one.client, "empty"), await public(database, one.client, "full")
        await database.send([Send(other.client, b"", (full,), context=9) for _ in range(5)])
        xid = await pool.fetchval("SELECT txid_snapshot_xmax(txid_current_snapshot())")
        found = await database.count_available(
            [
                Query(empty), Query(full), Query(full, sender=other.client), Query(full, sender=one.client),
                Query(context=9), Query(empty, context=9), Query(sender=other.client),
            ],
            3,
        )  # fmt: skip
        assert found == [0, 3, 3, 0, 3, 0, 3]
        nothing = Dequeue(one.client, Query(empty), once=Once(one.session, 0, 1))
        assert [contents(one) for one in (await database.serve([nothing])).answers] == [[]]
        # No transaction number was needed, so nothing was written.
        assert await pool.fetchval("SELECT txid_snapshot_xmax(txid_current_snapshot())") == xid

    with_pool(database_url, work)
