"""Do throughput, latency and the size of the tables stay as they are for half an hour, whatever somebody else reads?"""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import monotonic

import asyncpg
import pytest

from crescendo.mlmq import postgres as embedded
from crescendo.mlmq.broker.settings import BrokerSettings
from crescendo.mlmq.broker.store import prepare
from crescendo.processes.die_with_parent import die_with_parent
from mlmq_brokers import process
from mlmq_client_groups import ClientGroupRun, experiment_of

MIX = [
    {"name": kind, "kind": kind, "count": count, "timeout": "1s", "breakup": False}
    for kind, count in (("one-way", 30), ("paired", 16), ("consumer", 10), ("producer", 5))
]
SIZES = """
SELECT pg_table_size('mlmq.message'), pg_indexes_size('mlmq.message'),
       pg_total_relation_size('mlmq.receipt_0') + pg_total_relation_size('mlmq.receipt_1')
"""
MIB = 2**20
SAMPLE_S = 5.0


@dataclass
class Sample:
    """What was seen between two moments."""

    at_s: float
    messages_per_s: float
    median_ms: float
    sizes: tuple[int, ...]


class Observer:
    """Samples of the whole run, and an old snapshot in its middle."""

    def __init__(self, url: str, run: ClientGroupRun, third_s: float) -> None:
        self._url = url
        self._run = run
        self._third_s = third_s
        self.parts: list[list[Sample]] = []

    async def watch(self) -> None:
        connection, other = await asyncpg.connect(self._url), await asyncpg.connect(self._url)
        for part in range(3):
            snapshot = other.transaction(isolation="repeatable_read")
            if part == 1:
                await snapshot.start()
                await other.fetchval("SELECT count(*) FROM pg_class")
            self.parts.append(await self._samples(connection))
            if part == 1:
                await snapshot.rollback()
        await connection.close()
        await other.close()
        self._run.end_now()

    async def _samples(self, connection: asyncpg.Connection) -> list[Sample]:
        samples, began_s = [], monotonic()
        while monotonic() - began_s < self._third_s:
            recording, from_s = self._run.recording, monotonic()
            before = recording.received
            await asyncio.sleep(SAMPLE_S)
            rate = (recording.received - before) / (monotonic() - from_s)
            median_ms = (recording.durations.fold(50) or 0) / 1e6  # since the last sample
            sizes = tuple(await connection.fetchrow(SIZES))
            samples.append(Sample(monotonic() - began_s, rate, median_ms, sizes))
        return samples


async def steady(directory: Path, third_s: float) -> Observer:
    """Three parts of this length: alone, beside an old snapshot, alone again."""
    server = embedded.start(on_fork=die_with_parent())
    try:
        await prepare(server.url(), BrokerSettings())
        with process(server.url(), directory) as broker:
            run = ClientGroupRun([broker.address], directory / "run", experiment_of(MIX, measure="2h", drain="2m"))
            observer = Observer(server.url(), run, third_s)
            await run.run(observer.watch)
            run.assert_conserved()
    finally:
        server.stop()
    return observer


def check(parts: list[list[Sample]], recovery_s: float) -> None:
    settled = parts[0][len(parts[0]) // 2 :]
    recovered = [sample for sample in parts[2] if sample.at_s > recovery_s]
    rate, held, after = (
        median(sample.messages_per_s for sample in samples) for samples in (settled, parts[1], recovered)
    )
    assert held > 0.85 * rate, (held, rate)
    assert after > 0.9 * rate, (after, rate)
    waited, waited_after = (median(sample.median_ms for sample in samples) for samples in (settled, recovered))
    assert waited_after < 1.25 * waited, (waited_after, waited)
    # Flat: no size grows by more than what gathers between two runs of vacuum or two rotations.
    for kind in range(3):
        first, last = (max(sample.sizes[kind] for sample in samples) for samples in (settled, recovered))
        assert last < 1.5 * first + 16 * MIB, (kind, first, last)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_half_an_hour_of_the_mix_is_steady_beside_an_old_snapshot(tmp_path: Path) -> None:
    observer = asyncio.run(steady(tmp_path, 600.0))
    check(observer.parts, 60.0)
