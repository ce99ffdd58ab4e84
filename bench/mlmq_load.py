"""How are MLMQ's workloads run against brokers for a measurement, and what throughput do they reach?

Brokers are processes of their own on one durable embedded PostgreSQL; clients are the workloads themselves, in this
process. Warm-up is not counted. Nothing is recorded: rows are discarded, requests are counted. CPU costs come from the
kernel's accounting of all three.
"""

import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import asyncpg
import psutil
import uvloop

from crescendo.mlmq.client import Exchange
from crescendo.mlmq.workloads.assignment import client_identities, workload_assignment
from crescendo.mlmq.workloads.client_group import ClientGroup
from crescendo.mlmq.workloads.message_content import MessageContent
from crescendo.mlmq.workloads.recording import EMPTY, OK, WorkloadRecording, classify
from crescendo.model.experiment_file import experiment_from
from crescendo.processes.die_with_parent import die_with_parent

WARM_UP_S = 2.0
DRAIN_S = 20
TIERS = ("network", "receive", "queue", "pool", "database", "send", "wait")
MIX = (("one-way", 30), ("paired", 16), ("consumer", 10), ("producer", 5))


class DiscardingSink:
    """A row sink that keeps nothing."""

    def append(self, table: str, rows: int, *columns: object) -> None:
        pass

    def append_one(self, table: str, *values: int) -> None:
        pass

    def tick(self, now_ns: int) -> None:
        pass


def cpu_seconds() -> dict[str, float]:
    """CPU seconds of this process, its brokers, and the processes of their database."""
    spent: Counter[str] = Counter()
    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            command = process.cmdline()
            name = "clients" if process == me else "brokers" if "broker" in command else "database"
            spent[name] += sum(process.cpu_times()[:2])
    return spent


class RequestCounter(WorkloadRecording):
    """Counts the answers since the end of the warm-up, and keeps the tiers of sends."""

    def __init__(self) -> None:
        super().__init__(DiscardingSink())
        self.counting = False
        self.cpu: list[dict[str, float]] = []  # when counting began, and when it ended
        self.counted: Counter[str] = Counter()
        self.sends: list[tuple[int, ...]] = []

    def count(self, counting: bool) -> None:
        if counting is not self.counting:
            self.cpu.append(cpu_seconds())
        self.counting = counting

    def record_sent(self, content: MessageContent, size: int, stored_ns: int | None) -> None:
        self.sent += 1

    def record_received(
        self, receiver: int, content: MessageContent | None, size: int, redelivered: bool, now_ns: int
    ) -> None:
        self.received += 1

    def record_request(self, source: str, exchange: Exchange, timeout_ns: int, breakup: bool) -> None:
        if not self.counting:
            return
        outcome, duration_ns = classify(exchange, timeout_ns)
        self.counted[outcome] += 1
        if outcome == OK and exchange.kind == "Send" and exchange.times is not None:
            self.sends.append((duration_ns, exchange.network_ns or 0, *exchange.times))


@dataclass(frozen=True)
class Result:
    """Requests per second, medians in milliseconds."""

    useful: float
    empty: float
    failed: int
    batch: float  # requests per statement
    send_ms: float
    tiers_ms: dict[str, float]
    cpu_us: dict[str, float]  # per useful request
    wal_bytes: float  # per request that was answered
    wal_syncs: float

    @property
    def breakup(self) -> str:
        return " ".join(f"{name} {value:.2f}" for name, value in self.tiers_ms.items())

    @property
    def costs(self) -> str:
        parts = ", ".join(f"{name} {value:.0f}" for name, value in self.cpu_us.items())
        return f"{self.cpu_total_us:.0f} = {parts}; WAL {self.wal_bytes:.0f} B, {self.wal_syncs:.3f} fsyncs a request"

    @property
    def cpu_total_us(self) -> float:
        return sum(self.cpu_us.values())


def mix(wait: str = "0s", clients: int = 61, per_connection: int = 1) -> list[dict[str, Any]]:
    """The seed's 61 clients, or another number in the same proportions."""
    counts = [(kind, max(2 * round(count * clients / 61 / 2), 2)) for kind, count in MIX] if clients != 61 else MIX
    common = {"wait": wait, "timeout": "1s", "per_connection": per_connection}
    return [{"name": kind, "kind": kind, "count": count, **common} for kind, count in counts]


@contextmanager
def brokers(url: str, count: int, **settings: int) -> Iterator[list[dict[str, str]]]:
    """Start brokers; yields their addresses and metrics pages."""
    with tempfile.TemporaryDirectory(prefix="crescendo-bench-") as scratch:
        config = Path(scratch) / "broker.yml"
        config.write_text(json.dumps({**settings, "database": url}))
        command = [sys.executable, "-m", "crescendo.cli.main", "broker", "--config", str(config)]
        command += ["--listen", "127.0.0.1:0", "--json"]
        started = [
            subprocess.Popen(die_with_parent().wrap(command), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            for _ in range(count)
        ]
        try:
            yield [json.loads(broker.stdout.readline()) for broker in started if broker.stdout]
        finally:
            for broker in started:
                broker.terminate()
                broker.wait()
                if broker.stdout:
                    broker.stdout.close()


def measure(url: str, clients: list[dict[str, Any]], seconds: float, count: int = 1, **settings: int) -> Result:
    """Run one load on `count` brokers."""
    wal_before = asyncio.run(_wal(url))
    with brokers(url, count, **settings) as addresses:
        counter = RequestCounter()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            took_s = runner.run(
                _run_workload(
                    [address["url"].removeprefix("mlmq://") for address in addresses], clients, seconds, counter
                )
            )
        requests, statements = map(sum, zip(*(_statements(address["http"]) for address in addresses), strict=True))
    wal_after = asyncio.run(_wal(url))
    sends = list(zip(*counter.sends, strict=True)) or [(0,)] * (1 + len(TIERS))
    medians = [median(column) / 1e6 for column in sends]
    begun, ended = counter.cpu
    return Result(
        counter.counted[OK] / took_s,
        counter.counted[EMPTY] / took_s,
        sum(n for outcome, n in counter.counted.items() if outcome not in {OK, EMPTY}),
        requests / max(statements, 1),
        medians[0],
        dict(zip(TIERS, medians[1:], strict=True)),
        {name: (spent - begun[name]) / max(counter.counted[OK], 1) * 1e6 for name, spent in ended.items()},
        *((after - before) / max(requests, 1) for before, after in zip(wal_before, wal_after, strict=True)),
    )


async def _run_workload(
    addresses: list[str], clients: list[dict[str, Any]], seconds: float, counter: RequestCounter
) -> float:
    document = {
        "name": "bench",
        "system": {"kind": "mlmq"},
        "clients": clients,
        "phases": {"warmup": f"{WARM_UP_S}s", "measure": f"{seconds}s", "drain": f"{DRAIN_S}s"},
    }
    experiment = experiment_from(document)
    assignment = workload_assignment(1, addresses, experiment, 0, (0, 0))
    client_group = ClientGroup(client_identities(assignment, experiment), addresses, 1, experiment, counter)
    await client_group.connect()
    t0_ns = time.monotonic_ns()
    begun_s = t0_ns / 1e9 + WARM_UP_S

    def count(now_ns: int) -> None:
        counter.count(begun_s <= now_ns / 1e9 < begun_s + seconds)

    await client_group.run(t0_ns, lambda: False, count)
    counter.count(False)
    await client_group.close()
    found = client_group.findings
    if found.violations or found.unresolved:
        raise SystemExit(f"messages are not conserved: {found.violation_texts} {found.unresolved_texts}")
    return seconds


async def _wal(url: str) -> tuple[int, int]:
    """Bytes of WAL and fsyncs of the server so far."""
    connection = await asyncpg.connect(url)
    try:
        written, synced = await connection.fetchrow("SELECT wal_bytes::bigint, wal_sync FROM pg_stat_wal")
        return written, synced
    finally:
        await connection.close()


def _statements(http: str) -> tuple[int, int]:
    """Requests and statements of a broker so far."""
    with urllib.request.urlopen(f"{http}/metrics", timeout=10) as page:  # noqa: S310 - our own, on loopback
        lines = page.read().decode().splitlines()

    def total(name: str) -> int:
        return sum(int(line.rpartition(" ")[2]) for line in lines if line.startswith(f"crescendo_mlmq_{name}_total"))

    return total("requests"), total("statements")
