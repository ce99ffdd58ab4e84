"""Do many clients on several brokers get every message once and without delay, and is overload reported?"""

import asyncio
import urllib.request
from collections import Counter
from time import monotonic

import asyncpg
import pytest

from crescendo.mlmq.broker.server import Broker
from crescendo.mlmq.client import AsyncClient, Query, RefusedError
from crescendo.wire.mlmq.operations import Refusal
from mlmq_brokers import client, run_scenario, serving


async def consume(name: str, broker: str, queue: int, seen: Counter[bytes], left: list[int]) -> None:
    async with client(name, broker) as one:
        while left[0] > 0:
            message = await one.dequeue_message(Query(queue=queue), wait_s=0.5)
            if message is not None:
                seen[message.content] += 1
                left[0] -= 1


async def every_message_once(url: str, messages: int) -> None:
    async with serving(url) as one, serving(url) as two:
        brokers = [one.address, two.address]
        async with client("producer", brokers[0]) as producer:
            queue = (await producer.create_queue("work")).queue
            seen: Counter[bytes] = Counter()
            left = [messages]
            consumers = [
                asyncio.create_task(consume(f"consumer {n}", brokers[n % 2], queue, seen, left)) for n in range(32)
            ]
            for start in range(0, messages, 200):
                await asyncio.gather(
                    *(producer.send_message(queue, b"%d" % n, n % 10 + 1) for n in range(start, start + 200))
                )
            await asyncio.gather(*consumers)
        assert seen == Counter({b"%d" % n: 1 for n in range(messages)})
        connection = await asyncpg.connect(url)
        assert await connection.fetchval("SELECT count(*) FROM mlmq.message") == 0
        await connection.close()
        assert one.metrics.requests["Dequeue", "ok"] + two.metrics.requests["Dequeue", "ok"] == messages


def test_32_consumers_on_2_brokers_get_each_of_10000_messages_once(database_url: str) -> None:
    run_scenario(every_message_once(database_url, 10_000))


def test_no_empty_answer_while_a_message_remains(database_url: str) -> None:
    async def scenario() -> None:
        async with serving(database_url) as one, serving(database_url) as two:
            async with client("filler", one.address) as filler:
                queue = (await filler.create_queue("full")).queue
                await asyncio.gather(*(filler.send_message(queue, b"%d" % n) for n in range(160)))
            clients = [AsyncClient(f"c{n}", [(one, two)[n % 2].address], timeout_s=30) for n in range(16)]
            await asyncio.gather(*(each.register() for each in clients))

            async def ten(each: AsyncClient) -> list[bool]:
                return [await each.dequeue_message(Query(queue=queue)) is not None for _ in range(10)]

            assert all(all(got) for got in await asyncio.gather(*map(ten, clients)))
            for each in clients:
                await each.close()

    run_scenario(scenario())


@pytest.mark.parametrize("same_broker", [True, False])
def test_a_waiting_dequeue_is_woken_and_holds_no_worker(database_url: str, same_broker: bool) -> None:
    async def scenario() -> None:
        # The poll is disabled: only a wake-up can be in time.
        never = 3600 * 10**9
        async with (
            serving(database_url, workers=1, poll=never) as one,
            serving(database_url, workers=1, poll=never) as two,
            client("sender", one.address) as sender,
            client("waiter", (one if same_broker else two).address) as waiter,
        ):
            queue = (await sender.create_queue("q")).queue
            for query in (
                Query(queue=queue),
                Query(queue=queue, sender=sender.id),
                Query(sender=sender.id),
                Query(queue=waiter.own_queue),
            ):
                started_s = monotonic()
                waiting = [asyncio.create_task(waiter.dequeue_message(query, wait_s=40)) for _ in range(2)]
                broker = one if same_broker else two
                while len(broker.workers.room) < 2:
                    await asyncio.sleep(0.005)
                assert broker.workers.busy == 0
                for n in range(2):
                    if query.queue == waiter.own_queue:
                        await sender.send_message_to_client(waiter.id, b"%d" % n)
                    else:
                        await sender.send_message(queue, b"%d" % n)
                got = await asyncio.gather(*waiting)
                assert sorted(message.content for message in got if message) == [b"0", b"1"]
                assert monotonic() - started_s < 35

    run_scenario(scenario())


def test_a_waiting_dequeue_ends_empty_at_its_deadline_and_is_removed_with_its_client(database_url: str) -> None:
    async def scenario() -> None:
        async with serving(database_url) as broker, client("keeper", broker.address) as keeper:
            queue = (await keeper.create_queue("q")).queue
            assert await keeper.dequeue_message(Query(queue=queue), wait_s=0.15) is None
            async with client("leaver", broker.address) as leaver:
                abandoned = asyncio.create_task(leaver.dequeue_message(Query(queue=queue), wait_s=30))
                while len(broker.workers.room) < 1:
                    await asyncio.sleep(0.005)
                abandoned.cancel()
            while len(broker.workers.room):
                await asyncio.sleep(0.005)
            await keeper.send_message(queue, b"for the keeper")
            message = await keeper.dequeue_message(Query(queue=queue))
            assert message is not None

    run_scenario(scenario())


def test_too_many_waiting_dequeues_are_refused(database_url: str) -> None:
    async def scenario() -> None:
        async with serving(database_url, waiting=2) as broker, client("c", broker.address, patient=False) as one:
            query = Query(queue=one.own_queue)
            waiting = [asyncio.create_task(one.dequeue_message(query, wait_s=2)) for _ in range(5)]
            ends = await asyncio.gather(*waiting, return_exceptions=True)
            assert sorted(isinstance(end, RefusedError) for end in ends) == [False, False, True, True, True]
            assert broker.metrics.shed == 3

    run_scenario(scenario())


def page(broker: Broker, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{broker.http.address}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as err:
        with err:
            return err.code, err.read().decode()


@pytest.mark.parametrize("room", [1, 7, 40])
def test_with_workers_blocked_exactly_q_requests_wait_and_the_rest_is_refused_as_overloaded(
    database_url: str, room: int
) -> None:
    async def scenario() -> None:
        workers, excess = 2, 25
        async with (
            serving(database_url, workers=workers, batch=1, request_queue=room, pipeline=200) as broker,
            client("c", broker.address, patient=False) as one,
        ):
            blocker = await asyncpg.connect(database_url)
            async with blocker.transaction():
                await blocker.execute("LOCK TABLE mlmq.client IN ACCESS EXCLUSIVE MODE")
                calls = []
                for n in range(workers + room + excess):
                    calls.append(asyncio.create_task(one.lookup_client("c")))
                    if n < workers:
                        while broker.workers.busy <= n:
                            await asyncio.sleep(0.005)
                pending = set(calls)
                while len(pending) > workers + room:
                    _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                assert len(broker.queue) == room
                status, metrics = await asyncio.to_thread(page, broker, "/metrics")
                assert status == 200
                assert f"crescendo_mlmq_shed_total {excess}" in metrics.splitlines()
                assert f"crescendo_mlmq_request_queue {room}" in metrics.splitlines()
                assert f"crescendo_mlmq_workers_busy {workers}" in metrics.splitlines()
                assert f"crescendo_mlmq_pool_in_use {workers}" in metrics.splitlines()
                labels = 'kind="LookupClient",outcome="overloaded"'
                assert f"crescendo_mlmq_requests_total{{{labels}}} {excess}" in metrics.splitlines()
            await blocker.close()
            ends = await asyncio.gather(*calls, return_exceptions=True)
            reasons = [end.reason for end in ends if isinstance(end, RefusedError)]
            assert reasons == [Refusal.OVERLOADED] * excess

    run_scenario(scenario())


def test_requests_that_wait_together_share_a_statement(database_url: str) -> None:
    async def scenario() -> None:
        async with (
            serving(database_url, workers=1, connections=1, pipeline=200) as broker,
            client("c", broker.address) as one,
        ):
            queue = (await one.create_queue("q")).queue
            async with broker.store.pool.acquire():
                first = asyncio.create_task(one.send_message(queue, b"first"))
                while broker.workers.busy < 1:
                    await asyncio.sleep(0.005)
                others = [asyncio.create_task(one.send_message(queue, b"%d" % n)) for n in range(60)]
                while len(broker.queue) < 60:
                    await asyncio.sleep(0.005)
            await asyncio.gather(first, *others)
            assert broker.metrics.statements["Send"] == 2
            assert broker.metrics.requests["Send", "ok"] == 61

    run_scenario(scenario())


def test_health_says_whether_it_serves(database_url: str) -> None:
    async def scenario() -> None:
        async with serving(database_url) as broker:
            status, text = await asyncio.to_thread(page, broker, "/health")
            assert status == 200
            assert broker.address in text
            assert (await asyncio.to_thread(page, broker, "/nothing"))[0] == 404
            assert await broker.drain()
            status, text = await asyncio.to_thread(page, broker, "/health")
            assert status == 503
            assert "draining" in text

    run_scenario(scenario())
