"""Is anything lost or duplicated when the database stalls, its clock jumps, or the network to it fails silently?"""

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import psutil
import pytest

from crescendo.faults.clock import clock_environment, library
from crescendo.mlmq import postgres as embedded
from crescendo.mlmq.broker.server import Broker
from crescendo.mlmq.broker.settings import BrokerSettings
from crescendo.mlmq.broker.store import prepare
from crescendo.mlmq.client import Query
from crescendo.mlmq.postgres.cluster import UNPRIVILEGED, Cluster
from crescendo.model.units import Duration
from crescendo.processes.child import end_child, launch_child
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.systems.unix_account import named_account
from mlmq_brokers import client, run_scenario, serving
from mlmq_faults import TIMEOUT, Network, Traffic, free_port, healthy, unhealthy

STALL_S = 2.5  # beyond the lease, and beyond the timeout of a statement


def test_a_database_that_is_stopped_beyond_the_lease_loses_and_duplicates_nothing() -> None:
    server = embedded.start(on_fork=die_with_parent())
    assert server.pid is not None
    postmaster = psutil.Process(server.pid)

    async def stall(broker: Broker) -> None:
        stopped = [postmaster, *postmaster.children(recursive=True)]
        for process in stopped:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()
        try:
            await asyncio.sleep(STALL_S)
            await unhealthy(broker)
        finally:
            for process in stopped:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.resume()
        await healthy(broker)

    async def scenario() -> None:
        await prepare(server.url(), BrokerSettings())
        traffic = Traffic()
        async with serving(server.url(), database_timeout=TIMEOUT) as broker:
            await traffic.run(broker, lambda: stall(broker))
        traffic.check()

    try:
        run_scenario(scenario())
    finally:
        server.stop()


def test_half_open_connections_to_the_database_lose_and_duplicate_nothing() -> None:
    port = free_port()
    server = embedded.start(port=port, on_fork=die_with_parent())

    async def scenario() -> None:
        network = Network(port)
        listening = await asyncio.start_server(network.forward, "127.0.0.1", 0)
        parts = urlsplit(server.url())
        assert parts.port == port
        url = server.url().replace(f":{port}/", f":{listening.sockets[0].getsockname()[1]}/")
        await prepare(url, BrokerSettings())
        traffic = Traffic()

        async def fail(broker: Broker) -> None:
            network.freeze()
            await unhealthy(broker)
            await healthy(broker)
            await hears_of_messages(broker)

        async def hears_of_messages(broker: Broker) -> None:
            """Its connection for notices is new, too: a message that another broker stored wakes a dequeue here."""
            async with client("w", broker.address) as waiting, client("s", other.address) as sender:
                task = asyncio.create_task(waiting.dequeue_message(Query(waiting.own_queue), wait_s=50))
                async with asyncio.timeout(20):
                    while not task.done():
                        await sender.send_message_to_client(waiting.id, b"")
                        await asyncio.sleep(0.1)

        # Nothing but a notice wakes a dequeue of this broker: it does not look by itself.
        silent = {"database_timeout": TIMEOUT, "poll": Duration(3600 * 10**9)}
        async with serving(server.url()) as other, serving(url, **silent) as broker:
            await traffic.run(broker, lambda: fail(broker))
        await network.close()
        listening.close()
        traffic.check()

    try:
        run_scenario(scenario())
    finally:
        server.stop()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, reachable_dir: Path) -> Iterator[Path]:
    """A file that says by how much the wall clock of a PostgreSQL differs which is started from now on."""
    if library() is None:
        pytest.skip("libfaketime is not installed: apt-get install faketime")
    file = reachable_dir / "clock"
    file.write_text("+0")
    file.chmod(0o644)
    faked = dict(clock_environment(file))
    # libfaketime keeps a semaphore, which must belong to PostgreSQL's account: a process of that account makes it.
    account = named_account(UNPRIVILEGED) if os.geteuid() == 0 else None
    keeper = launch_child(
        ["/bin/sh", "-c", "echo $FAKETIME_SHARED; read _"],
        on_fork=None, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=faked, cwd="/",
        user=account.uid if account else None, group=account.gid if account else None,
    )  # fmt: skip
    assert keeper.stdout is not None
    faked["FAKETIME_SHARED"] = shared = keeper.stdout.readline().decode().strip()
    real = Cluster.environment
    monkeypatch.setattr(Cluster, "environment", lambda cluster: {**real(cluster), **faked})
    yield file
    end_child(keeper, 5.0)
    semaphore, memory = (name.removeprefix("/") for name in shared.split())
    for left in (f"sem.{semaphore}", memory):
        Path("/dev/shm", left).unlink(missing_ok=True)  # noqa: S108 - names that libfaketime chose


@pytest.mark.parametrize("jump", ["+3600", "-3600"])
def test_a_wall_clock_that_jumps_loses_and_duplicates_nothing(jump: str, clock: Path) -> None:
    """Forward, leases end early and their messages come again, marked; backward, they last longer."""
    server = embedded.start(on_fork=die_with_parent())

    async def jumped() -> None:
        asked = "SELECT extract(epoch FROM clock_timestamp())::float8"
        connection = await asyncpg.connect(server.url())
        before_s = await connection.fetchval(asked)
        clock.write_text(jump)
        assert await connection.fetchval(asked) - before_s == pytest.approx(int(jump), abs=60), "it has jumped"
        await connection.close()

    async def scenario() -> None:
        await prepare(server.url(), BrokerSettings())
        traffic = Traffic()
        async with serving(server.url(), database_timeout=TIMEOUT) as broker:
            await traffic.run(broker, jumped)
        traffic.check()

    try:
        run_scenario(scenario())
    finally:
        server.stop()
