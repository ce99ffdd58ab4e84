"""Do waiting dequeues cost the database more, the more of them wait?"""

import asyncio
import contextlib
from typing import Any

import asyncpg
import pytest

from crescendo.mlmq.client import Query
from mlmq_brokers import client, run_scenario, serving

WAITERS = 500
WATCHED_S = 1.5
COUNTS = """
SELECT xact_commit + xact_rollback AS transactions, tup_inserted + tup_updated + tup_deleted AS written
FROM pg_stat_database WHERE datname = current_database()
"""


@pytest.mark.soak  # it counts what a whole database does, so nothing else may delay it
def test_500_waiting_dequeues_write_nothing_and_share_their_looks(database_url: str) -> None:
    async def scenario() -> None:
        connection = await asyncpg.connect(database_url)

        async def counts() -> Any:
            await asyncio.sleep(1.2)  # sessions report their counts once a second
            return await connection.fetchrow(COUNTS)

        async def measure() -> tuple[int, int]:
            before = await counts()
            await asyncio.sleep(WATCHED_S)
            after = await counts()
            return after["transactions"] - before["transactions"], after["written"] - before["written"]

        async with (
            serving(database_url) as broker,
            client("c", broker.address) as one,
            client("other", broker.address) as other,
            contextlib.AsyncExitStack() as more,
        ):
            await asyncio.sleep(1.5)  # its first health check writes
            queues = [(await one.create_queue(f"q{number}")).queue for number in range(10)]
            waiting = [
                asyncio.create_task(who.dequeue_message(Query(queues[number % 10]), wait_s=50))
                for number in range(50)
                for who in (one, other)
            ]
            while len(broker.workers.room) < len(waiting):
                await asyncio.sleep(0.01)
            few = await measure()
            # The same again, many times over: what a client may have in flight is limited, what waits here is not.
            for number in range(8):
                who = await more.enter_async_context(client(f"more-{number}", broker.address))
                waiting += [
                    asyncio.create_task(who.dequeue_message(Query(queues[at % 10]), wait_s=50)) for at in range(50)
                ]
            while len(broker.workers.room) < WAITERS:
                await asyncio.sleep(0.01)
            many = await measure()
            assert many[1] <= 3, (few, many)  # a health check
            assert many[0] <= 1.5 * few[0] + 10, (few, many)
            # And they are woken, each by one message.
            for _ in range(3):
                await one.send_message(queues[0], b"x")
            async with asyncio.timeout(30):
                while sum(task.done() for task in waiting) < 3:
                    await asyncio.sleep(0.01)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        await connection.close()

    run_scenario(scenario())
