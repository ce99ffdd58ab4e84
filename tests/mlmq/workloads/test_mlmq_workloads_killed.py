"""Is any message lost or duplicated when brokers and PostgreSQL are killed under the load of all workloads?

Two brokers in separate processes, on a PostgreSQL of their own. All of them are killed without warning, repeatedly,
while every kind of client runs. At the end the clients' own accounts, the recording and the database must agree.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import psutil
import pytest

from crescendo.mlmq import postgres as embedded
from crescendo.mlmq.broker.settings import BrokerSettings
from crescendo.mlmq.broker.store import prepare
from crescendo.processes.die_with_parent import die_with_parent
from mlmq_brokers import TIMEOUT_S, BrokerProcess, process, public_directory
from mlmq_client_groups import ClientGroupRun, experiment_of

ALL_KINDS: list[dict[str, Any]] = [
    {"name": "relay", "kind": "one-way", "count": 8},
    {"name": "pairs", "kind": "paired", "count": 6},
    {"name": "fill", "kind": "producer", "count": 3, "wait": "5ms"},
    {"name": "empty", "kind": "consumer", "count": 5},
    {"name": "alone", "kind": "simple-send", "count": 2, "messages": 100_000, "wait": "20ms"},
]
MESSAGES_BETWEEN = 40


@pytest.fixture
def data() -> Iterator[Path]:
    with public_directory() as directory:
        yield directory / "data"


class Killer:
    """Kills under load: between two kills, messages must have been stored again."""

    def __init__(
        self, group_run: ClientGroupRun, brokers: list[BrokerProcess], data: Path, server: embedded.Server
    ) -> None:
        self._group_run = group_run
        self._brokers = brokers
        self._data = data
        self.server = server

    async def kill(self, of_brokers: int, of_databases: int) -> None:
        for number in range(of_brokers):
            await self._until_more_stored()
            victim = self._brokers[number % 2]
            victim.kill()
            victim.launch()
            await asyncio.to_thread(victim.await_service)
            if number % (of_brokers // of_databases) == 0:
                await self._until_more_stored()
                psutil.Process(self.server.pid).kill()
                self.server.stop()
                self.server = embedded.start(self._data, on_fork=die_with_parent())  # blocks the loop
        await self._until_more_stored()
        self._group_run.end_now()

    async def _until_more_stored(self) -> None:
        wanted = self._group_run.recording.stored + MESSAGES_BETWEEN
        while self._group_run.recording.stored < wanted:
            await asyncio.sleep(0.01)


async def killed_under_load(tmp_path: Path, data: Path, of_brokers: int, of_databases: int) -> None:
    server = embedded.start(data, on_fork=die_with_parent())
    killer: Killer | None = None
    try:
        await prepare(server.url(), BrokerSettings())
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
        with process(server.url(), tmp_path / "one") as one, process(server.url(), tmp_path / "two") as two:
            group_run = ClientGroupRun(
                [one.address, two.address], tmp_path / "run", experiment_of(ALL_KINDS, measure="1h")
            )
            killer = Killer(group_run, [one, two], data, server)
            await group_run.run(lambda: killer.kill(of_brokers, of_databases))
            group_run.assert_conserved()
            assert group_run.recording.outcomes["error"] == 0
            # Clients reconnected by themselves: each kill disconnected about half of them.
            assert group_run.group.connects >= len(group_run.group.actors) + 5 * of_brokers
        connection = await asyncpg.connect(killer.server.url())
        assert await connection.fetchval("SELECT count(*) FROM mlmq.message") == 0
        await connection.close()
    finally:
        (killer.server if killer else server).stop()


def test_ten_killed_brokers_and_two_killed_databases_lose_and_duplicate_nothing(tmp_path: Path, data: Path) -> None:
    async def limited() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await killed_under_load(tmp_path, data, 10, 2)

    asyncio.run(limited())


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_hundred_killed_brokers_and_ten_killed_databases_lose_and_duplicate_nothing(
    tmp_path: Path, data: Path
) -> None:
    asyncio.run(killed_under_load(tmp_path, data, 100, 10))
