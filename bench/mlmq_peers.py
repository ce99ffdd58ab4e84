"""Other queues on PostgreSQL, on the same server as MLMQ, to compare it with.

PgQueuer with asyncpg as its authors recommend, and the loop that anybody would write first: insert, and delete what
`FOR UPDATE SKIP LOCKED` picks. A number of producers and consumers move messages for some seconds, durable, in one
process. A message counts when it was handed out; MLMQ's own clients move them the same way, through one broker.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

from crescendo.mlmq.client import AsyncClient, Query

CONTENT = b"x" * 200
AHEAD = 2_000
WAIT_S = 0.2
_TABLE = """
DROP TABLE IF EXISTS plain_queue;
CREATE TABLE plain_queue (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, queue bigint NOT NULL, priority smallint NOT NULL,
    sent_at timestamptz NOT NULL DEFAULT clock_timestamp(), content bytea NOT NULL
);
CREATE INDEX ON plain_queue (queue, priority DESC, sent_at, id);
"""
_INSERT = "INSERT INTO plain_queue (queue, priority, content) SELECT 1, 5, u.c FROM unnest($1::bytea[]) AS u (c)"
_TAKE = """
DELETE FROM plain_queue WHERE id = ANY (ARRAY(
    SELECT id FROM plain_queue WHERE queue = 1 ORDER BY priority DESC, sent_at, id LIMIT $1 FOR UPDATE SKIP LOCKED
)) RETURNING id, priority, sent_at, content
"""


class Clock:
    """Counts what consumers get between two moments."""

    def __init__(self, warm_up_s: float, seconds: float) -> None:
        self.begin_s = time.monotonic() + warm_up_s
        self.end_s = self.begin_s + seconds
        self._seconds = seconds
        self._waiting = self._counted = 0

    @property
    def over(self) -> bool:
        return time.monotonic() >= self.end_s

    async def may_send(self, messages: int) -> None:
        """Producers stay at most so far ahead: an endless backlog would be another measurement."""
        while self._waiting >= AHEAD and not self.over:
            await asyncio.sleep(0.001)
        self._waiting += messages

    def took(self, messages: int) -> None:
        self._waiting -= messages
        if self.begin_s <= time.monotonic() < self.end_s:
            self._counted += messages

    @property
    def rate(self) -> float:
        return self._counted / self._seconds


Work = Callable[[Clock], Awaitable[None]]


async def _run(clock: Clock, *work: Work) -> float:
    """All of it until the time is over."""
    await asyncio.gather(*(one(clock) for one in work))
    return clock.rate


async def plain_loop(url: str, batch: int, pairs: int, seconds: float) -> float:
    """Messages per second through the plain loop, with a connection for each producer and consumer."""
    connections = [await asyncpg.connect(url, server_settings={"synchronous_commit": "on"}) for _ in range(2 * pairs)]
    await connections[0].execute(_TABLE)

    async def produce(connection: Any, clock: Clock) -> None:
        while not clock.over:
            await clock.may_send(batch)
            await connection.execute(_INSERT, [CONTENT] * batch)

    async def consume(connection: Any, clock: Clock) -> None:
        while not clock.over:
            found = len(await connection.fetch(_TAKE, batch))
            clock.took(found)
            if not found:
                await asyncio.sleep(0.001)

    try:
        return await _run(
            Clock(1.0, seconds),
            *(lambda clock, one=one: produce(one, clock) for one in connections[:pairs]),
            *(lambda clock, one=one: consume(one, clock) for one in connections[pairs:]),
        )
    finally:
        await connections[0].execute("DROP TABLE plain_queue")
        for connection in connections:
            await connection.close()


async def pgqueuer(url: str, batch: int, pairs: int, seconds: float) -> float:
    """Jobs per second through PgQueuer: each consumer is a worker with a connection of its own."""
    from pgqueuer import AsyncpgDriver, PgQueuer, Queries

    connections = [await asyncpg.connect(url, server_settings={"synchronous_commit": "on"}) for _ in range(2 * pairs)]
    queries = Queries(AsyncpgDriver(connections[0]))
    if await queries.schema_is_installed():
        await queries.uninstall()
    await queries.install()
    clock = Clock(2.0, seconds)
    workers = [PgQueuer(AsyncpgDriver(connection)) for connection in connections[pairs:]]
    for worker in workers:

        @worker.entrypoint("job")
        async def process(job: Any) -> None:
            clock.took(1)

    async def produce(connection: Any, clock: Clock) -> None:
        own = Queries(AsyncpgDriver(connection))
        while not clock.over:
            await clock.may_send(batch)
            if batch == 1:
                await own.enqueue("job", CONTENT)
            else:
                await own.enqueue(["job"] * batch, [CONTENT] * batch, [0] * batch)

    async def consume(worker: Any, clock: Clock) -> None:
        running = asyncio.ensure_future(worker.qm.run(batch_size=batch))
        await asyncio.sleep(max(clock.end_s - time.monotonic(), 0))
        worker.shutdown.set()
        await running

    try:
        return await _run(
            clock,
            *(lambda clock, one=one: produce(one, clock) for one in connections[:pairs]),
            *(lambda clock, one=one: consume(one, clock) for one in workers),
        )
    finally:
        await queries.uninstall()
        for connection in connections:
            await connection.close()


async def mlmq(address: str, batch: int, pairs: int, seconds: float) -> float:
    """Messages per second through one queue of a broker, one request in flight for each producer and consumer."""
    tag = f"{os.getpid()}-{time.monotonic_ns()}"
    names = [f"{side}-{at}-{tag}" for side in ("producer", "consumer") for at in range(pairs)]
    clients = [AsyncClient(name, [address], timeout_s=30.0, attempt_timeout_s=20.0) for name in names]
    for client in clients:
        await client.init()
        await client.register()
    queue = (await clients[0].create_queue(f"q-{tag}")).queue

    async def produce(client: AsyncClient, clock: Clock) -> None:
        while not clock.over:
            await clock.may_send(batch)
            if batch == 1:
                await client.send_message(queue, CONTENT)
            else:
                await client.send_messages(queue, [CONTENT] * batch)

    async def consume(client: AsyncClient, clock: Clock) -> None:
        while not clock.over:
            clock.took(len(await client.dequeue_messages(Query(queue), batch, wait_s=WAIT_S)))

    try:
        return await _run(
            Clock(1.0, seconds),
            *(lambda clock, one=one: produce(one, clock) for one in clients[:pairs]),
            *(lambda clock, one=one: consume(one, clock) for one in clients[pairs:]),
        )
    finally:
        await clients[0].delete_queue(queue)
        for client in clients:
            await client.deregister()
            await client.close()
