"""Does a broker process shut down cleanly, and does it explain problems of its database?"""

import asyncio
import resource
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import psutil
import pytest

from crescendo.mlmq import postgres as embedded
from crescendo.mlmq.broker.server import Broker
from crescendo.mlmq.broker.settings import BrokerSettings
from crescendo.mlmq.broker.store import prepare
from crescendo.mlmq.client import AsyncClient, Backoff, Client, Query, RefusedError
from crescendo.mlmq.storage.schema import migrations
from crescendo.model.errors import ConfigError
from crescendo.model.units import Duration
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.wire.mlmq.operations import Refusal
from mlmq_brokers import TIMEOUT_S, BrokerProcess, client, process, public_directory, run_scenario, serving

FAST = Backoff(first_s=0.02, most_s=0.3)


@pytest.fixture
def data() -> Iterator[Path]:
    """A data directory for a separate embedded server."""
    with public_directory() as directory:
        yield directory / "data"


def test_sigterm_finishes_accepted_requests_and_refuses_waiting_dequeues(database_url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        # No polling: it would find the table locked and keep the second worker busy.
        with process(database_url, tmp_path, drain_timeout="60s", poll="60s") as broker:
            async with (
                client("worker", broker.address, patient=False) as worker,
                client("waiter", broker.address, patient=False) as waiter,
            ):
                waiting = asyncio.create_task(waiter.dequeue_message(Query(queue=waiter.own_queue), wait_s=30))
                await until_metric(broker, "waiting", 1)
                blocker = await asyncpg.connect(database_url)
                async with blocker.transaction():
                    await blocker.execute("LOCK TABLE mlmq.message IN ACCESS EXCLUSIVE MODE")
                    sending = asyncio.create_task(worker.send_message_to_client(worker.id, b"taken"))
                    await until_metric(broker, "workers_busy", 1)
                    broker.process.send_signal(signal.SIGTERM)
                    with pytest.raises(RefusedError) as caught:
                        await waiting
                    assert caught.value.reason is Refusal.CLOSING
                    with pytest.raises(RefusedError) as caught:
                        await worker.lookup_client("waiter")  # nothing new is accepted
                    assert caught.value.reason is Refusal.CLOSING
                    assert broker.process.poll() is None
                await blocker.close()
                assert (await sending).messages
            assert await asyncio.to_thread(broker.end) == 0

    run_scenario(scenario())


def test_a_second_signal_stops_at_once(database_url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        with process(database_url, tmp_path, drain_timeout="1h") as broker:
            async with client("c", broker.address, patient=False, timeout_s=30.0) as one:
                blocker = await asyncpg.connect(database_url)
                async with blocker.transaction():
                    await blocker.execute("LOCK TABLE mlmq.message IN ACCESS EXCLUSIVE MODE")
                    sending = asyncio.create_task(one.send_message_to_client(one.id, b"stuck"))
                    await until_metric(broker, "workers_busy", 1)
                    broker.process.send_signal(signal.SIGTERM)
                    while "draining" not in broker.log:
                        await asyncio.sleep(0.02)
                    broker.process.send_signal(signal.SIGTERM)
                    assert await asyncio.to_thread(broker.end) == 1
                await blocker.close()
                sending.cancel()

    run_scenario(scenario())


async def until_metric(broker: BrokerProcess, name: str, wanted: int) -> None:
    """Wait until the metric of the broker has this value."""

    def read_metrics() -> str:
        with urllib.request.urlopen(f"{broker.http}/metrics", timeout=30) as page:  # noqa: S310 - our own
            return str(page.read().decode())

    while f"crescendo_mlmq_{name} {wanted}" not in (await asyncio.to_thread(read_metrics)).splitlines():
        await asyncio.sleep(0.02)


def test_commands_of_the_command_file_are_executed(database_url: str, tmp_path: Path) -> None:
    commands = tmp_path / "commando.txt"
    commands.write_text("shutdown")  # from before the start
    with process(database_url, tmp_path, command_file=str(commands), command_poll="20ms") as broker:
        for command, reply in (
            ("logmemory", "memory: resident"),
            ("logstacktrace", "thread MainThread"),
            ("make me a sandwich", "is not a command; known: shutdown, logstacktrace, logmemory"),
        ):
            commands.write_text(command)
            deadline_s = time.monotonic() + TIMEOUT_S
            while reply not in broker.log:
                assert time.monotonic() < deadline_s, broker.log
                time.sleep(0.02)
        assert broker.process.poll() is None
        commands.write_text("shutdown")
        assert broker.end() == 0


def test_an_embedded_database_starts_and_ends_with_its_broker_and_keeps_its_data(tmp_path: Path, data: Path) -> None:
    for round_ in range(2):
        with process("", tmp_path, data=str(data)) as broker:
            servers = psutil.Process(broker.process.pid).children(recursive=True)
            assert any("postgres" in server.name() for server in servers)
            with Client("keeper", [broker.address]) as keeper:
                keeper.register()
                if round_ == 0:
                    keeper.send_message_to_client(keeper.id, b"kept")
                    broker.process.terminate()
                    assert broker.end() == 0
                else:
                    message = keeper.dequeue_message(Query(queue=keeper.own_queue))
                    assert message is not None
                    assert message.content == b"kept"
                    broker.kill()
        _, alive = psutil.wait_procs(servers, timeout=TIMEOUT_S)
        assert not alive


def test_a_broker_waits_for_an_unavailable_database_at_startup_and_later(data: Path) -> None:
    def start() -> embedded.Server:
        return embedded.start(data, on_fork=die_with_parent())

    async def send_for_ever(one: AsyncClient) -> None:
        while True:
            await one.send_message_to_client(one.id, b"x")

    async def scenario() -> None:
        server = start()
        url = server.url()
        server.stop()
        try:
            preparing = asyncio.create_task(prepare(url, BrokerSettings(database_timeout=Duration(60 * 10**9))))
            await asyncio.sleep(0.3)
            assert not preparing.done()
            server = start()
            assert await preparing == len(migrations())
            async with (
                serving(url) as broker,
                client("patient", broker.address, backoff=FAST) as patient,
                client("hasty", broker.address, patient=False) as hasty,
            ):
                await patient.send_message_to_client(patient.id, b"before")
                psutil.Process(server.pid).kill()
                with pytest.raises(RefusedError) as caught:
                    await send_for_ever(hasty)
                assert caught.value.reason is Refusal.UNAVAILABLE
                assert await asyncio.to_thread(health, broker.http.address) == 503
                meanwhile = asyncio.create_task(patient.send_message_to_client(patient.id, b"meanwhile"))
                await asyncio.sleep(0.2)
                assert not meanwhile.done()
                server.stop()
                server = start()
                await meanwhile
                got = await patient.dequeue_messages(Query(queue=patient.own_queue), 10)
                assert [message.content for message in got] == [b"before", b"meanwhile"]
                await until_healthy(broker.http.address)
        finally:
            server.stop()

    run_scenario(scenario())


async def until_healthy(address: str) -> None:
    while await asyncio.to_thread(health, address) != 200:
        await asyncio.sleep(0.05)


def health(address: str) -> int:
    try:
        with urllib.request.urlopen(f"http://{address}/health", timeout=30) as page:
            return int(page.status)
    except urllib.error.HTTPError as err:
        with err:
            return err.code


def test_errors_that_waiting_cannot_cure_are_reported_at_once(
    database_url: str, empty_database: str, postgres: embedded.Server
) -> None:
    async def refused(url: str, text: str) -> None:
        with pytest.raises(ConfigError, match=text):
            async with serving(url, database_timeout=300 * 10**9):
                pass

    async def scenario() -> None:
        await refused(empty_database, "--init")
        await refused(postgres.url("no such database"), "create it first")
        password = urlsplit(database_url).password
        assert password
        with pytest.raises(ConfigError) as caught:
            async with serving(database_url.replace(password, "wrong-secret"), database_timeout=300 * 10**9):
                pass
        assert "password" in str(caught.value)
        assert "wrong-secret" not in str(caught.value)
        await refused("nonsense", "postgresql://")
        connection = await asyncpg.connect(database_url)
        await connection.execute("INSERT INTO mlmq.migration (number, sha256) VALUES (999, 'x')")
        await connection.close()
        await refused(database_url, "newer crescendo")
        with pytest.raises(ConfigError, match="is it running"):
            async with serving("postgresql://nobody@127.0.0.1:1/none", database_timeout=300_000_000):
                pass

    run_scenario(scenario())


def test_a_read_only_database_acknowledges_nothing(database_url: str) -> None:
    async def scenario() -> None:
        async with serving(database_url) as broker, client("c", broker.address, patient=False) as one:
            connection = await asyncpg.connect(database_url)
            name = await connection.fetchval("SELECT current_database()")
            await connection.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
            try:
                await connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
                error = ""
                while "read-only" not in error:  # before that it is briefly unavailable
                    with pytest.raises(RefusedError) as caught:
                        await one.send_message_to_client(one.id, b"x")
                    assert caught.value.reason is Refusal.UNAVAILABLE
                    error = str(caught.value)
                assert broker.metrics.database_failures >= 1
                assert await one.peek_message(Query(queue=one.own_queue)) is None  # reading is still allowed
                assert await connection.fetchval("SELECT count(*) FROM mlmq.message") == 0
            finally:
                await connection.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
                await connection.close()

    run_scenario(scenario())


async def send_until_refused(one: AsyncClient, queues: list[int], acknowledged: list[int]) -> None:
    while len(acknowledged) < 50_000:  # a hundred megabytes
        acknowledged += (await one.send_message(queues, b"x" * 2000)).messages


def test_a_full_disk_acknowledges_nothing_and_the_broker_recovers(data: Path) -> None:
    """Full for table files, which may not grow beyond a limit; write-ahead log files have a fixed size below it."""
    max_bytes = 17 * 2**20

    async def scenario() -> None:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (max_bytes, before[1]))  # inherited by the server
        try:
            server = embedded.start(data, on_fork=die_with_parent())
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        try:
            await prepare(server.url(), BrokerSettings())
            async with serving(server.url()) as broker, client("c", broker.address, patient=False) as one:
                queues = [(await one.create_queue(f"q{number}")).queue for number in range(100)]
                acknowledged: list[int] = []
                with pytest.raises(RefusedError) as caught:
                    await send_until_refused(one, queues, acknowledged)
                assert caught.value.reason is Refusal.UNAVAILABLE
                assert "disk is full" in str(caught.value)
                assert await asyncio.to_thread(health, broker.http.address) == 503
                await asyncio.sleep(2.5)  # long enough for a check, which has room for its row
                assert await asyncio.to_thread(health, broker.http.address) == 503
                connection = await asyncpg.connect(server.url())
                assert await connection.fetchval("SELECT count(*) FROM mlmq.message") == len(acknowledged) > 0
                await connection.execute("DELETE FROM mlmq.message")
                await connection.execute("VACUUM mlmq.message")
                await connection.close()
                assert len((await one.send_message(queues, b"x" * 2000)).messages) == 100
                await until_healthy(broker.http.address)
        finally:
            server.stop()

    run_scenario(scenario())


def test_a_port_in_use_is_a_configuration_error(database_url: str) -> None:
    async def scenario() -> None:
        async with serving(database_url) as broker:
            for field in ("listen", "http"):
                other = Broker(BrokerSettings(**{"listen": "127.0.0.1:0", field: broker.address}), database_url)
                with pytest.raises(ConfigError, match=f"{field}: .*choose another"):
                    await other.start()

    run_scenario(scenario())
