"""How many useful requests a second does MLMQ serve, and what is batching worth?

The seed's mix of 61 clients (30 OneWay, 16 Paired, 10 consumers, 5 producers) without waits, on one and on two broker
processes over one durable embedded PostgreSQL, with batching on and off, in one run. Useful: not an empty answer.
The seed's own figure for this mix is 1,673 requests a second on six brokers. Beside it stands what the database alone
gives: the same statements, half sends and half dequeues, driven directly at the broker's own mean batch.
"""

import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

import uvloop

from crescendo.mlmq import postgres
from crescendo.mlmq.broker.database_pool import open_pool
from crescendo.mlmq.broker.settings import Settings
from crescendo.mlmq.broker.store import prepare
from crescendo.mlmq.client import AsyncClient, Exchange, Query
from crescendo.mlmq.operations import Dequeue, Messages, Once, Refused, Register, Registered, Send
from crescendo.mlmq.storage import Database
from crescendo.run.processes import die_with_parent

SECONDS = 8.0
WARM_UP_S = 2.0
ONE_WAY, PAIRED, CONSUMERS, PRODUCERS = 30, 16, 10, 5
CONTENT = b"x" * 200
WAIT_S = 1.0
SEED_REQUESTS_PER_S = 1673
BATCH = Settings().batch
TIERS = ("network", "receive", "queue", "pool", "database", "send", "wait")


class Tally:
    """What was answered since the warm-up was over."""

    def __init__(self) -> None:
        self.counting = False
        self.outcomes: Counter[str] = Counter()
        self.durations_ns: list[int] = []
        self.tiers_ns: list[tuple[int, ...]] = []

    def see(self, exchange: Exchange) -> None:
        if self.counting:
            self.outcomes[exchange.outcome] += 1
            if exchange.outcome == "ok" and exchange.kind == "Send" and exchange.times is not None:
                self.durations_ns.append(exchange.duration_ns)
                self.tiers_ns.append((exchange.network_ns or 0, *exchange.times))


async def one_way(me: AsyncClient, others: list[int]) -> None:
    """Relay whatever arrives; the counter rises by one a hop."""
    await me.send_message_to_client(random.choice(others), (1).to_bytes(8) + CONTENT)
    while True:
        message = await me.dequeue_message(Query(queue=me.own_queue), wait_s=WAIT_S)
        if message is not None:
            hops = int.from_bytes(message.content[:8]) + 1
            await me.send_message_to_client(random.choice(others), hops.to_bytes(8) + CONTENT)


async def requester(me: AsyncClient, partner: int) -> None:
    while True:
        context = await me.send_request_to_client(partner, CONTENT)
        while await me.dequeue_message(Query(queue=me.own_queue, context=context), wait_s=WAIT_S) is None:
            pass


async def responder(me: AsyncClient) -> None:
    while True:
        request = await me.dequeue_message(Query(queue=me.own_queue), wait_s=WAIT_S)
        if request is not None and request.context is not None:
            await me.send_response_to_client(request.sender, request.context, CONTENT)


async def produce(me: AsyncClient, queue: int) -> None:
    while True:
        await me.send_message(queue, CONTENT)


async def consume(me: AsyncClient, queue: int) -> None:
    while True:
        await me.dequeue_message(Query(queue=queue), wait_s=WAIT_S)


async def mix(brokers: list[str], tally: Tally) -> float:
    """Seconds that were counted."""
    total = ONE_WAY + PAIRED + CONSUMERS + PRODUCERS
    clients = [AsyncClient(f"bench-{n}", brokers, first_broker=n, observer=tally.see) for n in range(total)]
    for client in clients:
        await client.init()
        await client.register()
    queue = (await clients[0].create_queue("bench")).queue
    ids = [client.id for client in clients[:ONE_WAY]]
    actions: list[Callable[[], Awaitable[None]]] = []
    for client in clients[:ONE_WAY]:
        actions.append(lambda client=client: one_way(client, [other for other in ids if other != client.id]))
    paired = clients[ONE_WAY : ONE_WAY + PAIRED]
    for left, right in zip(paired[::2], paired[1::2], strict=True):
        actions += [lambda left=left, right=right: requester(left, right.id), lambda right=right: responder(right)]
    rest = clients[ONE_WAY + PAIRED :]
    actions += [lambda client=client: consume(client, queue) for client in rest[:CONSUMERS]]
    actions += [lambda client=client: produce(client, queue) for client in rest[CONSUMERS:]]
    tasks = [asyncio.ensure_future(action()) for action in actions]
    await asyncio.sleep(WARM_UP_S)
    tally.counting, begun_s = True, time.monotonic()
    done, _ = await asyncio.wait(tasks, timeout=SECONDS, return_when=asyncio.FIRST_EXCEPTION)
    tally.counting, seconds = False, time.monotonic() - begun_s
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for client in clients:
        await client.close()
    for task in done:
        task.result()  # a client that failed fails the measurement
    return seconds


def statements_of(http: str) -> tuple[int, int]:
    """Requests and statements of a broker so far."""
    with urllib.request.urlopen(f"{http}/metrics", timeout=10) as page:  # noqa: S310 - our own, on loopback
        lines = page.read().decode().splitlines()

    def total(name: str) -> int:
        return sum(int(line.rpartition(" ")[2]) for line in lines if line.startswith(f"crescendo_mlmq_{name}_total"))

    return total("requests"), total("statements")


async def ceiling(url: str, batch: int, connections: int) -> float:
    """Requests a second without any broker: each connection sends a batch to queues of its own and dequeues it."""
    pool = await open_pool(url, connections, 30, 30)
    database = Database(pool)
    counts = [0] * connections
    end_s = time.monotonic() + SECONDS / 2

    async def drive(at: int) -> None:
        names = [Register(f"ceiling-{at}-{n}") for n in range(batch)]
        clients = [client for client in (await database.register(names)).answers if isinstance(client, Registered)]
        number = 0
        while time.monotonic() < end_s:
            number += 1
            slots = [Once(client.session, 0, 2 * number) for client in clients]
            sends = [
                Send(client.client, CONTENT, receiver=client.client, once=once)
                for client, once in zip(clients, slots, strict=True)
            ]
            takes = [
                Dequeue(client.client, Query(queue=client.queue), once=Once(client.session, 0, 2 * number + 1))
                for client in clients
            ]
            for served in (await database.send(sends), await database.dequeue(takes)):
                assert not any(isinstance(answer, Refused) or answer == Messages() for answer in served.answers)
                counts[at] += len(served.answers)

    begun_s = time.monotonic()
    await asyncio.gather(*(drive(at) for at in range(connections)))
    rate = sum(counts) / (time.monotonic() - begun_s)
    await pool.close()
    return rate


def measure(url: str, count: int, batch: int, scratch: Path) -> tuple[float, float]:
    """Useful requests a second, and requests a statement."""
    config = scratch / f"broker-{batch}.yml"
    config.write_text(f"batch: {batch}\n")
    command = [sys.executable, "-m", "crescendo.cli.main", "broker", "--database", url, "--config", str(config)]
    command += ["--listen", "127.0.0.1:0", "--json"]
    brokers = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, preexec_fn=die_with_parent())  # noqa: PLW1509
        for _ in range(count)
    ]
    try:
        places = [json.loads(broker.stdout.readline()) for broker in brokers if broker.stdout]
        tally = Tally()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            seconds = runner.run(mix([place["url"].removeprefix("mlmq://") for place in places], tally))
        requests, statements = map(sum, zip(*(statements_of(place["http"]) for place in places), strict=True))
    finally:
        for broker in brokers:
            broker.terminate()
            broker.wait()
            if broker.stdout:
                broker.stdout.close()
    useful = tally.outcomes["ok"] / seconds
    failed = sum(n for outcome, n in tally.outcomes.items() if outcome not in {"ok", "empty"})
    columns = zip(*tally.tiers_ns, strict=True)
    tiers = " ".join(f"{name} {median(column) / 1e6:.2f}" for name, column in zip(TIERS, columns, strict=True))
    print(
        f"  {count} broker{'s' if count > 1 else ' '}  batch ≤ {batch:>3}  {useful:>9,.0f} useful/s  "
        f"{tally.outcomes['empty'] / seconds:>7,.0f} empty/s  {failed:>4} failed  "
        f"{requests / max(statements, 1):>5.1f} requests a statement  "
        f"send median {median(tally.durations_ns) / 1e6:>6.2f} ms ({tiers})",
        flush=True,
    )
    return useful, requests / max(statements, 1)


def main() -> None:
    print(f"61 clients without waits, {SECONDS:g} s each, durable; medians in ms")
    server = postgres.start(on_fork=die_with_parent())
    try:
        asyncio.run(prepare(server.url(), Settings()))
        with tempfile.TemporaryDirectory(prefix="crescendo-bench-") as scratch:
            for count in (1, 2):
                batched, mean = measure(server.url(), count, BATCH, Path(scratch))
                single, _ = measure(server.url(), count, 1, Path(scratch))
                print(f"  batching on ÷ off = {batched / single:.1f}×; ÷ seed = {batched / SEED_REQUESTS_PER_S:.1f}×")
                connections = count * Settings().connections
                alone = asyncio.run(ceiling(server.url(), max(1, round(mean)), connections))
                print(
                    f"  the database alone, batches of {round(mean)} on {connections} connections: {alone:,.0f}/s; "
                    f"with brokers and clients {batched / alone:.0%} of it",
                    flush=True,
                )
    finally:
        server.stop()


if __name__ == "__main__":
    main()
