"""Do waiting dequeues cost the database more, the more of them wait?"""

import asyncio
import contextlib
from collections.abc import Sequence
from time import monotonic

import asyncpg
import pytest

from crescendo.mlmq.broker.server import Broker
from crescendo.mlmq.client import Query
from mlmq_brokers import client, run_scenario, serving

CLIENTS = 10
QUEUES = 10
WATCHED_S = 1.0
WRITTEN = "SELECT txid_snapshot_xmax(txid_current_snapshot())"  # a transaction that writes takes a number


def test_500_waiting_dequeues_write_nothing_and_share_their_looks(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []  # for how many different wishes

    async def costs_of(broker: Broker, connection: asyncpg.Connection) -> tuple[float, int]:
        """Looks in the time of one poll, and transactions that wrote something."""
        written, began_s = await connection.fetchval(WRITTEN), monotonic()
        looks.clear()
        await asyncio.sleep(WATCHED_S)
        per_poll = len(looks) / (monotonic() - began_s) * broker.settings.poll / 1e9
        return per_poll, await connection.fetchval(WRITTEN) - written

    async def scenario() -> None:
        connection = await asyncpg.connect(database_url)
        async with serving(database_url) as broker, contextlib.AsyncExitStack() as stack:
            count = broker.store.count_available

            async def counted(wishes: Sequence[Query], most: int) -> list[int]:
                looks.append(len(wishes))
                return await count(wishes, most)

            monkeypatch.setattr(broker.store, "count_available", counted)
            clients = [await stack.enter_async_context(client(f"c{n}", broker.address)) for n in range(CLIENTS)]
            queues = [(await clients[0].create_queue(f"q{number}")).queue for number in range(QUEUES)]
            await asyncio.sleep(1.2)  # its first health check writes
            waiting = []
            found = {}
            for waiters in (50, 500):  # what one client may have in flight is limited, what waits here is not
                while len(waiting) < waiters:
                    who = clients[len(waiting) // 50]
                    waiting.append(
                        asyncio.create_task(who.dequeue_message(Query(queues[len(waiting) % QUEUES]), wait_s=50))
                    )
                while len(broker.workers.room) < waiters:
                    await asyncio.sleep(0.01)
                found[waiters] = await costs_of(broker, connection)
                assert max(looks) == QUEUES, "one wish for all who wait for the same queue"
            assert found[500][0] <= 1.2, found  # a look in each poll, for all of them together
            assert found[500][1] <= 5, found  # perhaps a health check, and vacuum
            # And they are woken, each by one message.
            for _ in range(3):
                await clients[0].send_message(queues[0], b"x")
            async with asyncio.timeout(30):
                while sum(task.done() for task in waiting) < 3:
                    await asyncio.sleep(0.01)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        await connection.close()

    run_scenario(scenario())
