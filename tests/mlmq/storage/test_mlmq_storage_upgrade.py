"""Does a database of an earlier version keep its messages, leases and answers when it is upgraded?

What the earlier version stored is written with its own procedures.
"""

import asyncio

import asyncpg
import pytest

from crescendo.mlmq.storage import Database, initialise, schema
from crescendo.wire.mlmq.operations import Acknowledge, Delivery, Dequeue, Once, Query, Send, Sent, Settled
from mlmq_requests import contents, one

FIRST_RELEASE = 6  # the last migration of version 0.1
SEND = """SELECT ord, status, sent FROM mlmq.send_many(
    ARRAY[0, 1, 2, 3], ARRAY[$1, $1, $1, $1]::bigint[], ARRAY[$2, $2, $2, $2]::bigint[],
    ARRAY['first', 'second', 'third', 'fourth']::bytea[], ARRAY[5, 5, 9, 1]::smallint[],
    ARRAY[NULL, NULL, NULL, NULL]::bigint[], ARRAY[NULL, NULL, NULL, NULL]::bigint[],
    ARRAY[false, false, false, false], ARRAY[$3, $3, $3, $3]::bigint[],
    ARRAY[0, 1, 2, 3]::smallint[], ARRAY[1, 1, 1, 1]::bigint[])"""
DEQUEUE = """SELECT content, id, delivery FROM mlmq.dequeue_many(
    ARRAY[$2]::bigint[], ARRAY[$1]::bigint[], ARRAY[NULL]::bigint[], ARRAY[NULL]::bigint[], ARRAY[false], ARRAY[1],
    ARRAY[$4]::integer[], ARRAY[$3]::bigint[], ARRAY[$5]::smallint[], ARRAY[2]::bigint[])"""


def test_an_upgrade_keeps_messages_leases_and_answers(empty_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        connection = await asyncpg.connect(empty_database)
        with monkeypatch.context() as before:
            released = schema.migrations()[:FIRST_RELEASE]
            before.setattr(schema, "migrations", lambda: released)
            assert await initialise(connection) == FIRST_RELEASE
        (_, _, client, _, session) = await connection.fetchrow("SELECT * FROM mlmq.begin_sessions(ARRAY['old'])")
        queue = await connection.fetchval("SELECT queue FROM mlmq.create_queues(ARRAY[$1::bigint], ARRAY['q'])", client)
        sent = await connection.fetch(SEND, queue, client, session)
        assert [row["status"] for row in sent] == [0, 0, 0, 0]
        (taken,) = await connection.fetch(DEQUEUE, queue, client, session, 0, 4)
        (leased,) = await connection.fetch(DEQUEUE, queue, client, session, 3_600_000, 5)
        assert (taken["content"], leased["content"]) == (b"third", b"first")

        assert await initialise(connection) == len(schema.migrations()) - FIRST_RELEASE
        assert await initialise(connection) == 0
        await connection.close()
        async with asyncpg.create_pool(empty_database, min_size=1, max_size=2) as pool:
            database = Database(pool)
            repeated = Send(client, b"second", (queue,), once=Once(session, 1, 1))
            assert await one(database, repeated) == Sent(tuple(sent[1]["sent"]), None)
            again = Dequeue(client, Query(queue), once=Once(session, 4, 2))
            assert contents(await one(database, again)) == [b"third"]
            assert contents(await one(database, Dequeue(client, Query(queue), 9))) == [b"second", b"fourth"]
            held = (Delivery(leased["id"], leased["delivery"]),)
            assert await one(database, Acknowledge(client, held)) == Settled()
            assert await pool.fetchval("SELECT count(*) FROM mlmq.message") == 0

    asyncio.run(work())
