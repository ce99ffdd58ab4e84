"""How many useful requests per second does MLMQ serve, how fast, and how does that scale?

The seed's mix of 61 clients without waits, beside what is wanted of it, on one broker and on the seed's six; on one and
two brokers with batching on and off; the rate of the database alone at the brokers' own mean batch; the response time
at the seed's own load, by tiers, beside a durable commit of the same minute; messages in batches and one by one, beside
PgQueuer and a plain loop on the same server; and tables and a plot over clients, workers, connections and brokers.
Useful: not an empty answer. All in one run, durable, on one machine for clients, brokers and database together. The
seed's figures: 1,673 requests per second, 24 ms median.

SECONDS in the environment sets how long each point is measured. `python -m bench.mlmq_bench PART…` measures only these
parts: aims, throughput, response, peers, growth.
"""

import asyncio
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg

from bench import mlmq_peers
from bench.mlmq_load import Result, brokers, measure, mix
from bench.results import compare, keep
from crescendo.mlmq import postgres
from crescendo.mlmq.broker.database_pool import open_pool
from crescendo.mlmq.broker.settings import BrokerSettings
from crescendo.mlmq.broker.store import prepare
from crescendo.mlmq.storage import Database
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.wire.mlmq.operations import Dequeue, Messages, Once, Query, Refused, Register, Registered, Send

SECONDS = float(os.environ.get("SECONDS", "8"))
POINT_SECONDS = min(SECONDS, 4.0)
SEED_REQUESTS_PER_S, SEED_MEDIAN_MS = 1673, 24.0
CONTENT = b"x" * 200
DEFAULTS = BrokerSettings()
CLIENTS, WORKERS, CONNECTIONS, BROKERS = (1, 15, 61, 150, 300), (1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4, 6)
PLOT = Path("mlmq-growth.html")
TRIALS = 3
PEER_LOADS = ((1, 30), (50, 4))  # messages a request, pairs of a producer and a consumer
PEERS_WANTED = {1: {"plain loop": 5.0, "PgQueuer": 5.0}, 50: {"plain loop": 0.7, "PgQueuer": None}}
BATCHED_WANTED = 60_000
COMMITS = 300


def show(name: str, result: Result) -> None:
    print(
        f"  {name:<28} {result.useful:>8,.0f} useful/s  {result.empty:>6,.0f} empty/s  {result.failed:>4} failed  "
        f"{result.batch:>5.1f} per statement  send median {result.send_ms:>6.2f} ms ({result.breakup})  "
        f"CPU µs per useful request: {result.costs}",
        flush=True,
    )


async def ceiling(url: str, batch: int, connections: int, seconds: float) -> float:
    """Requests per second without any broker: each connection sends to its own clients, which dequeue at once.

    Half of a batch are sends and half dequeues, in one statement, as brokers batch the mix.
    """
    pool = await open_pool(url, connections, 30, 30)
    database = Database(pool)
    counts = [0] * connections
    end_s = time.monotonic() + seconds

    async def drive(at: int) -> None:
        names = [Register(f"ceiling-{at}-{n}") for n in range(max(batch // 2, 1))]
        clients = [client for client in (await database.register(names)).answers if isinstance(client, Registered)]
        number = 0
        while time.monotonic() < end_s:
            number += 1
            sends = [
                Send(one.client, CONTENT, receiver=one.client, once=Once(one.session, 0, number)) for one in clients
            ]
            takes = [Dequeue(one.client, Query(queue=one.queue), once=Once(one.session, 1, number)) for one in clients]
            answers = (await database.serve([*sends, *takes])).answers
            assert not any(isinstance(answer, Refused) or answer == Messages() for answer in answers)
            counts[at] += len(answers)

    begun_s = time.monotonic()
    await asyncio.gather(*(drive(at) for at in range(connections)))
    rate = sum(counts) / (time.monotonic() - begun_s)
    await pool.close()
    return rate


def throughput(url: str) -> None:
    """Batching on and off, and the database's own ceiling."""
    print(f"61 clients without waits, {SECONDS:g} s each, durable; medians in ms")
    for count in (1, 2):
        batched = measure(url, mix(), SECONDS, count, batch=DEFAULTS.batch)
        single = measure(url, mix(), SECONDS, count, batch=1)
        show(f"{count} broker(s), batch ≤ {DEFAULTS.batch}", batched)
        show(f"{count} broker(s), batch 1", single)
        ratio, times = batched.useful / max(single.useful, 1e-9), batched.useful / SEED_REQUESTS_PER_S
        print(f"  batching on ÷ off = {ratio:.1f}×; ÷ seed = {times:.1f}×")
        connections, size = count * DEFAULTS.connections, max(1, round(batched.batch))
        alone = asyncio.run(ceiling(url, size, connections, SECONDS / 2))
        share = batched.useful / alone
        print(
            f"  the database alone, batches of {size} on {connections} connections: {alone:,.0f}/s; {share:.0%} of it"
        )


def aims(url: str) -> None:
    """The mix on one broker, with shared connections, with more clients, and on six brokers."""
    print(f"the aims: the mix without waits, {SECONDS:g} s each")
    one = measure(url, mix(), SECONDS)
    show("61 clients", one)
    show("16 clients a connection", measure(url, mix(per_connection=16), SECONDS))
    many = measure(url, mix(clients=300), SECONDS)
    show("300 clients", many)
    six = measure(url, mix(), SECONDS, 6)
    show("6 brokers", six)
    for found in (
        keep("mlmq", "61 clients, one broker", "useful requests/s", one.useful, least=18_000),
        keep("mlmq", "61 clients, one broker: CPU of all", "µs per useful request", one.cpu_total_us, most=95),
        keep("mlmq", "300 clients, one broker", "useful requests/s", many.useful, least=22_000),
        keep("mlmq", "61 clients: six brokers ÷ one", "", six.useful / one.useful, least=0.75),
    ):
        print(f"  {found.what}: {found.value:,.2f} {found.unit}, {'met' if found.is_met else 'NOT met'}", flush=True)


async def commit_ms(url: str) -> float:
    """The median time of a durable commit of one row, by one connection that does nothing else."""
    connection = await asyncpg.connect(url, server_settings={"synchronous_commit": "on"})
    try:
        await connection.execute("CREATE TABLE commit_probe (content bytea)")
        times = []
        for _ in range(COMMITS):
            begun_s = time.perf_counter()
            await connection.execute("INSERT INTO commit_probe VALUES ($1)", CONTENT)
            times.append((time.perf_counter() - begun_s) * 1e3)
        return statistics.median(times)
    finally:
        await connection.execute("DROP TABLE commit_probe")
        await connection.close()


def response(url: str) -> None:
    for count in (1, 2):
        _response(url, count)


def _response(url: str, count: int) -> None:
    """At about the seed's load: the pause is adjusted by what the previous try gave."""
    print(f"response time at the seed's {SEED_REQUESTS_PER_S:,} useful requests per second, {count} broker(s)")
    wait_ms = 61 / SEED_REQUESTS_PER_S * 1e3
    result = measure(url, mix(wait=f"{wait_ms:.3f}ms"), POINT_SECONDS, count)
    for _ in range(3):
        # Each client's cycle is its pause plus the request's time; only the pause can be set.
        cycle_ms = 1e3 / max(result.useful, 1.0)
        wait_ms = max(wait_ms + 61 * (1e3 / SEED_REQUESTS_PER_S - cycle_ms), 0.001)
        result = measure(url, mix(wait=f"{wait_ms:.3f}ms"), POINT_SECONDS, count)
        if abs(result.useful - SEED_REQUESTS_PER_S) < 0.05 * SEED_REQUESTS_PER_S:
            break
    show(f"pauses of {wait_ms:.1f} ms", result)
    if result.useful < 0.95 * SEED_REQUESTS_PER_S:
        print("  this machine does not reach the seed's load, so this is its response time at its limit")
    print(f"  median ÷ the seed's {SEED_MEDIAN_MS:g} ms = {result.send_ms / SEED_MEDIAN_MS:.2f}, wanted 0.20")
    commit = asyncio.run(commit_ms(url))
    found = keep("mlmq", f"median at the seed's load ÷ commit, {count} broker(s)", "", result.send_ms / commit, most=2)
    print(f"  median ÷ a durable commit of {commit:.2f} ms = {found.value:.2f}, wanted at most 2", flush=True)


def peers(url: str) -> None:
    """Messages per second that were sent and taken, one a request and 50, in turns with other queues."""
    asyncio.run(_peers(url))


async def _peers(url: str) -> None:
    for batch, pairs in PEER_LOADS:
        found: dict[str, list[float]] = {"MLMQ": [], "plain loop": [], "PgQueuer": []}
        for _ in range(TRIALS):
            with brokers(url, 1) as addresses:
                address = addresses[0]["url"].removeprefix("mlmq://")
                found["MLMQ"].append(await mlmq_peers.mlmq(address, batch, pairs, POINT_SECONDS))
            found["plain loop"].append(await mlmq_peers.plain_loop(url, batch, pairs, POINT_SECONDS))
            found["PgQueuer"].append(await mlmq_peers.pgqueuer(url, batch, pairs, POINT_SECONDS))
        print(f"messages per second, {batch} a request, {pairs} producers and {pairs} consumers")
        for peer, wanted in PEERS_WANTED[batch].items():
            what = f"MLMQ, {batch} messages a request"
            compared = compare(
                "mlmq", what, "messages/s", peer, list(zip(found["MLMQ"], found[peer], strict=True)),
                wanted=wanted, less_is_better=False,
            )  # fmt: skip
            print(
                f"  MLMQ {compared.ours:,.0f} ÷ {peer} {compared.theirs:,.0f} = {compared.ratio:.2f} "
                f"({min(compared.ratios):.2f} to {max(compared.ratios):.2f}), wanted {wanted}",
                flush=True,
            )
        if batch > 1:
            rate = statistics.median(found["MLMQ"])
            keep("mlmq", f"{batch} messages a request", "messages/s", rate, least=BATCHED_WANTED)
            print(f"  MLMQ ÷ {BATCHED_WANTED:,} wanted = {rate / BATCHED_WANTED:.2f}")


def growth(url: str) -> None:
    """One knob at a time, the others at their defaults."""
    alone = {"name": "simple", "kind": "simple-send", "count": 1, "messages": 1_000_000, "timeout": "1s"}
    clients: Callable[[int], Result] = lambda n: measure(  # noqa: E731
        url, mix(clients=n) if n > 1 else [alone], POINT_SECONDS
    )
    ways: dict[str, tuple[tuple[int, ...], Callable[[int], Result]]] = {
        "clients": (CLIENTS, clients),
        "workers": (WORKERS, lambda n: measure(url, mix(), POINT_SECONDS, workers=n, connections=max(n, 2))),
        "connections": (CONNECTIONS, lambda n: measure(url, mix(), POINT_SECONDS, workers=8, connections=n)),
        "brokers": (BROKERS, lambda n: measure(url, mix(), POINT_SECONDS, n)),
    }
    points: dict[str, list[tuple[int, Result]]] = {}
    for name, (values, run) in ways.items():
        print(f"useful requests per second over {name}")
        points[name] = []
        for value in values:
            points[name].append((value, run(value)))
            show(f"{value} {name}", points[name][-1][1])
    plot(points)


def plot(points: dict[str, list[tuple[int, Result]]]) -> None:
    from plotly.graph_objects import Scatter
    from plotly.subplots import make_subplots

    figure: Any = make_subplots(rows=2, cols=2, subplot_titles=list(points))
    for at, (name, found) in enumerate(points.items()):
        trace = Scatter(x=[value for value, _ in found], y=[result.useful for _, result in found], name=name)
        figure.add_trace(trace, row=at // 2 + 1, col=at % 2 + 1)
    figure.update_layout(title="MLMQ: useful requests per second", showlegend=False)
    figure.update_yaxes(rangemode="tozero")
    figure.write_html(PLOT, include_plotlyjs=True)
    print(f"plot  {PLOT}")


PARTS = {"aims": aims, "throughput": throughput, "response": response, "peers": peers, "growth": growth}


def main(names: tuple[str, ...] = tuple(PARTS)) -> None:
    server = postgres.start(max_connections=200, on_fork=die_with_parent())
    try:
        asyncio.run(prepare(server.url(), DEFAULTS))
        for name in names:
            PARTS[name](server.url())
    finally:
        server.stop()


if __name__ == "__main__":
    main(tuple(sys.argv[1:]) or tuple(PARTS))
