"""Do delayed and dead messages reach clients that wait for them at a broker?"""

import asyncio

import asyncpg

from crescendo.mlmq.client import Query, RefusedError
from mlmq_brokers import client, run_scenario, serving


def test_waiting_dequeues_get_delayed_messages_dead_letters_and_batches(database_url: str) -> None:
    async def scenario() -> None:
        async with (
            serving(database_url) as broker,
            client("one", broker.address) as one,
            client("other", broker.address) as other,
        ):
            queue, dead = (await one.create_queue("q")).queue, (await one.create_queue("dead")).queue
            await one.configure_queue(queue, max_deliveries=1, dead_letters=dead, retention_s=3600)
            waiting = asyncio.create_task(other.dequeue_message(Query(queue), wait_s=30, lease_s=0.2))
            buried = asyncio.create_task(other.dequeue_message(Query(dead), wait_s=30))
            while len(broker.workers.room) < 2:
                await asyncio.sleep(0.01)
            await one.send_message(queue, b"delayed", delay_s=2)
            await asyncio.sleep(0.2)
            assert not waiting.done()
            got = await waiting  # nothing notified the broker: it polls
            assert got is not None
            assert got.content == b"delayed"
            found = await buried  # after its lease, which nobody acknowledged
            assert found is not None
            assert (found.id, found.redelivered) == (got.id, True)

            several = [asyncio.create_task(other.dequeue_message(Query(queue), wait_s=30)) for _ in range(3)]
            while len(broker.workers.room) < 3:
                await asyncio.sleep(0.01)
            await one.send_messages(queue, [b"0", b"1", b"2"])
            messages = await asyncio.gather(*several)
            assert sorted(message.content for message in messages if message) == [b"0", b"1", b"2"]
            await one.send_message(queue, b"soon gone", expires_s=0.05)
            await asyncio.sleep(0.2)
            assert await one.peek_message(Query(queue)) is None

    run_scenario(scenario())


def test_without_load_shedding_every_request_waits_its_turn(database_url: str) -> None:
    async def scenario(shedding: bool) -> int:
        async with (
            serving(database_url, workers=1, request_queue=4, batch=1, load_shedding=shedding) as broker,
            client("c", broker.address, patient=False) as one,
        ):
            sends = [one.send_message_to_client(one.id, b"x") for _ in range(60)]
            results = await asyncio.gather(*sends, return_exceptions=True)
            return sum(isinstance(result, RefusedError) for result in results)

    async def compare() -> None:
        assert await scenario(True) > 0
        assert await scenario(False) == 0

    run_scenario(compare())


def test_indices_are_dropped_for_an_experiment_and_restored_by_the_next_broker(database_url: str) -> None:
    names = "SELECT array_agg(indexname::text ORDER BY indexname) FROM pg_indexes WHERE tablename = 'message'"
    definitions = "SELECT array_agg(indexdef ORDER BY indexname) FROM pg_indexes WHERE tablename = 'message'"

    async def scenario() -> None:
        connection = await asyncpg.connect(database_url)
        before = await connection.fetchval(definitions)
        for _ in range(2):
            async with serving(database_url, indices=False) as broker, client("c", broker.address) as one:
                left = await connection.fetchval(names)
                assert left == ["message_by_expiry", "message_by_lease", "message_pkey"]
                for priority in (3, 9, 5):
                    await one.send_message(one.own_queue, b"%d" % priority, priority)
                found = await one.dequeue_messages(Query(one.own_queue), 3)
                assert [message.priority for message in found] == [9, 5, 3]
        async with serving(database_url):
            assert await connection.fetchval(definitions) == before
        await connection.close()

    run_scenario(scenario())
