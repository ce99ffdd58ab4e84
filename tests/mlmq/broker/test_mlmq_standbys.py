"""What does a broker lose when its database is killed and a standby takes over?

Two real PostgreSQL servers with streaming replication. The broker reaches them through one address, which leads to the
standby after its promotion, as a virtual address or a proxy does.
"""

import asyncio
import contextlib
import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import psutil
import pytest

from crescendo.mlmq import postgres as embedded
from crescendo.mlmq.broker.server import Broker
from crescendo.mlmq.broker.settings import BrokerSettings
from crescendo.mlmq.broker.store import prepare
from crescendo.mlmq.client import Query
from crescendo.mlmq.postgres.cluster import USER
from crescendo.processes.child import end_child, launch_child
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.systems.unix_account import named_account
from mlmq_brokers import client, run_scenario, serving
from mlmq_faults import FAST, TIMEOUT, Network, Traffic, free_port, healthy, unhealthy

LATE = 20  # messages that the standby never hears of
ACCOUNT = named_account("nobody") if os.geteuid() == 0 else None  # PostgreSQL refuses to run as root


class Pair:
    """A primary and its standby."""

    def __init__(self, directory: Path) -> None:
        self.ports = free_port(), free_port()
        self._primary = embedded.start(port=self.ports[0], on_fork=die_with_parent())
        self.url = self._primary.url()
        self._programs, self._data = self._primary.binaries, directory / "standby"
        password = urlsplit(self.url).password
        assert password
        self._environment = {"PATH": os.defpath, "PGPASSWORD": password, "HOME": str(directory), "LANG": "C"}
        try:
            subprocess.run(
                [
                    self._programs / "pg_basebackup", "--host=127.0.0.1", f"--port={self.ports[0]}",
                    f"--username={USER}", f"--pgdata={self._data}", "--wal-method=stream",
                    "--checkpoint=fast", "--write-recovery-conf", "--no-sync",
                ],
                check=True, capture_output=True, env=self._environment, timeout=60,
                user=ACCOUNT.uid if ACCOUNT else None, group=ACCOUNT.gid if ACCOUNT else None,
                extra_groups=[] if ACCOUNT else None, umask=0o077,
            )  # fmt: skip
            self._standby = launch_child(
                [
                    str(self._programs / "postgres"), "-D", str(self._data), "-p", str(self.ports[1]),
                    "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
                ],
                on_fork=die_with_parent(), log=directory / "log", env=self._environment, cwd=directory,
                user=ACCOUNT.uid if ACCOUNT else None, group=ACCOUNT.gid if ACCOUNT else None, umask=0o077,
            )  # fmt: skip
        except BaseException:
            self._primary.stop()
            raise

    def url_of_standby(self) -> str:
        return self.url.replace(f":{self.ports[0]}/", f":{self.ports[1]}/")

    async def attached(self, state: str) -> None:
        """Wait until the standby streams with this state of synchronisation."""
        connection = await asyncpg.connect(self.url)
        async with asyncio.timeout(30):
            while not await connection.fetchval(
                "SELECT 1 FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = $1", state
            ):
                await asyncio.sleep(0.05)
        await connection.close()

    async def make_synchronous(self) -> None:
        connection = await asyncpg.connect(self.url)
        await connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        await connection.execute("SELECT pg_reload_conf()")
        await connection.close()
        await self.attached("sync")

    def deafen_standby(self) -> None:
        """Stop the process of the standby that receives: what is committed from now on never reaches it."""
        (receiver,) = (
            process
            for process in psutil.Process(self._standby.pid).children(recursive=True)
            if "walreceiver" in " ".join(process.cmdline())
        )
        receiver.suspend()

    def kill_primary(self) -> None:
        """kill -9 of the whole server at once: it closes no connection in order."""
        assert self._primary.pid is not None
        postmaster = psutil.Process(self._primary.pid)
        for process in (postmaster, *postmaster.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    async def promote(self) -> None:
        for process in psutil.Process(self._standby.pid).children(recursive=True):
            if process.status() == psutil.STATUS_STOPPED:
                process.kill()  # what it has not read is lost with the primary
        async with asyncio.timeout(30):
            while True:  # it restarts its processes after one was killed
                with contextlib.suppress(OSError, asyncpg.PostgresError):
                    connection = await asyncpg.connect(self.url_of_standby())
                    await connection.execute("SELECT pg_promote()")
                    await connection.close()
                    return
                await asyncio.sleep(0.1)

    def stop(self) -> None:
        end_child(self._standby, 5.0)
        self._primary.stop()


@pytest.fixture
def pair() -> Iterator[Pair]:
    directory = Path(tempfile.mkdtemp(prefix="crescendo-test-"))
    if ACCOUNT:
        os.chown(directory, ACCOUNT.uid, ACCOUNT.gid)
    made = None
    try:
        made = Pair(directory)
        yield made
    finally:
        if made is not None:
            made.stop()
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.asynccontextmanager
async def network_of(pair: Pair) -> AsyncIterator[tuple[Network, str]]:
    network = Network(pair.ports[0])
    listening = await asyncio.start_server(network.forward, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    try:
        yield network, pair.url.replace(f":{pair.ports[0]}/", f":{port}/")
    finally:
        listening.close()
        await network.close()


def test_a_promoted_synchronous_standby_has_everything_that_was_acknowledged(pair: Pair) -> None:
    async def scenario() -> None:
        await prepare(pair.url, BrokerSettings())
        await pair.make_synchronous()
        traffic = Traffic()
        async with network_of(pair) as (network, url), serving(url, database_timeout=TIMEOUT) as broker:

            async def fail_over() -> None:
                pair.kill_primary()
                await unhealthy(broker)
                network.port = pair.ports[1]
                await pair.promote()
                await healthy(broker)

            await traffic.run(broker, fail_over)
        traffic.check()

    run_scenario(scenario())


def test_a_promoted_asynchronous_standby_loses_the_last_commits_and_the_broker_had_warned(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        await prepare(pair.url, BrokerSettings())
        await pair.attached("async")
        with caplog.at_level(logging.WARNING):
            async with network_of(pair) as (network, url), serving(url, database_timeout=TIMEOUT) as broker:
                await lose_the_last(broker, network)
        assert "1 standbys are asynchronous: promoting one loses what was acknowledged last" in caplog.text

    async def lose_the_last(broker: Broker, network: Network) -> None:
        async with client("one", broker.address, timeout_s=60.0, attempt_timeout_s=2.0, backoff=FAST) as one:
            await one.send_message_to_client(one.id, b"early")
            await arrived()
            pair.deafen_standby()
            for number in range(LATE):
                await one.send_message_to_client(one.id, b"%d" % number)
            pair.kill_primary()
            await unhealthy(broker)
            network.port = pair.ports[1]
            await pair.promote()
            await healthy(broker)
            found = await one.dequeue_messages(Query(one.own_queue), LATE + 1)
            assert [message.content for message in found] == [b"early"]

    async def arrived() -> None:
        standby = await asyncpg.connect(pair.url_of_standby())
        found = 0
        async with asyncio.timeout(30):
            while not found:
                with contextlib.suppress(asyncpg.UndefinedTableError):  # it may not even have the schema yet
                    found = await standby.fetchval("SELECT count(*) FROM mlmq.message")
                await asyncio.sleep(0.05)
        await standby.close()

    run_scenario(scenario())
