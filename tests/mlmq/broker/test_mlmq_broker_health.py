"""Does a broker notice when its database stores nothing, or would lose what it stores?"""

import asyncio
import contextlib
import json
import logging
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import asyncpg
import pytest

from crescendo.mlmq import postgres as embedded
from crescendo.mlmq.broker.background_tasks import BackgroundTasks
from crescendo.mlmq.broker.server import Broker
from crescendo.mlmq.broker.settings import BrokerSettings
from crescendo.mlmq.broker.store import prepare
from crescendo.mlmq.client import Query, RefusedError
from crescendo.model.errors import ConfigError
from crescendo.processes.die_with_parent import die_with_parent
from mlmq_brokers import client, run_scenario, serving
from mlmq_faults import Traffic

WAIT_S = 60.0


def page(broker: Broker) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"http://{broker.http.address}/health", timeout=30) as answer:
            return int(answer.status), json.loads(answer.read())
    except urllib.error.HTTPError as err:
        with err:
            return err.code, json.loads(err.read())


async def health_is(broker: Broker, status: int, text: str = "") -> None:
    """Wait until it is."""
    async with asyncio.timeout(WAIT_S):
        while True:
            found = await asyncio.to_thread(page, broker)
            if found[0] == status and text in json.dumps(found[1]):
                return
            await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def altered(url: str, change: str, undo: str) -> AsyncIterator[None]:
    """Change the database for new connections, and end the existing ones; when it is undone, they stay."""
    name = urlsplit(url).path[1:]
    admin = await asyncpg.connect(url, server_settings={"default_transaction_read_only": "off"})
    end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1 AND pid <> pg_backend_pid()"
    try:
        await admin.execute(change)
        await admin.execute(end, name)
        yield
    finally:
        await admin.execute(undo)
        await admin.close()


def test_a_read_only_database_is_unhealthy_until_it_stores_again_and_then_everything_arrives(database_url: str) -> None:
    traffic = Traffic()

    async def read_only(broker: Broker) -> None:
        change, undo = (
            "ALTER DATABASE ready SET default_transaction_read_only = on",
            "ALTER DATABASE ready RESET default_transaction_read_only",
        )
        async with client("impatient", broker.address, patient=False) as one:
            async with altered(database_url, change, undo):
                await health_is(broker, 503, "read-only")
                await one.peek_message(Query(one.own_queue))  # reading works, and proves nothing
                with pytest.raises(RefusedError, match="read-only"):
                    await one.send_message_to_client(one.id, b"")
                assert (await asyncio.to_thread(page, broker))[0] == 503
            await health_is(broker, 200)
            await one.send_message_to_client(one.id, b"")

    async def scenario() -> None:
        async with serving(database_url) as broker:
            await health_is(broker, 200)
            await traffic.run(broker, lambda: read_only(broker))
        traffic.check()

    run_scenario(scenario())


def test_a_rotated_password_is_unhealthy_until_it_fits_again(database_url: str) -> None:
    async def scenario() -> None:
        password = urlsplit(database_url).password
        async with serving(database_url) as broker:
            change = "ALTER ROLE mlmq PASSWORD 'another'"
            async with altered(database_url, change, f"ALTER ROLE mlmq PASSWORD '{password}'"):
                await health_is(broker, 503, "refuses the account")
            await health_is(broker, 200)
            async with client("c", broker.address) as one:
                await one.send_message_to_client(one.id, b"")

    run_scenario(scenario())


def test_a_new_password_in_its_file_is_used_without_a_restart_and_nothing_is_lost(
    database_url: str, tmp_path: Path
) -> None:
    password, new = str(urlsplit(database_url).password), "a/new p%ssword"
    file = tmp_path / "database.url"
    file.write_text(f"{database_url}\n")
    traffic = Traffic()

    async def rotated(broker: Broker) -> None:
        change, undo = (f"ALTER ROLE mlmq PASSWORD '{each}'" for each in (new, password))
        async with altered(database_url, change, undo):
            await health_is(broker, 503, "refuses the account")
            file.write_text(database_url.replace(password, quote(new, safe="")))
            await health_is(broker, 200)
        file.write_text(f"{database_url}\n")

    async def scenario() -> None:
        async with serving(database_url, database_file=str(file)) as broker:
            await traffic.run(broker, lambda: rotated(broker))
        traffic.check()

    run_scenario(scenario())


def test_every_session_asks_for_durability_whatever_the_default(database_url: str) -> None:
    async def scenario() -> None:
        change, undo = (
            "ALTER DATABASE ready SET synchronous_commit = off",
            "ALTER DATABASE ready RESET synchronous_commit",
        )
        async with altered(database_url, change, undo):
            plain = await asyncpg.connect(database_url)
            assert await plain.fetchval("SHOW synchronous_commit") == "off"
            await plain.close()
            async with serving(database_url) as broker:
                assert await broker.store.pool.fetchval("SHOW synchronous_commit") == "on"
                assert await broker.store.pool.fetchval("SHOW jit") == "off"
                await health_is(broker, 200)

    run_scenario(scenario())


def test_a_database_that_would_lose_messages_is_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An embedded one never is such a database, so this one is started with other options."""
    options = embedded.Server._options
    risky = ["-c", "fsync=off", "-c", "full_page_writes=off"]
    monkeypatch.setattr(embedded.Server, "_options", lambda server: options(server) + risky)

    async def scenario() -> None:
        await prepare(server.url(), BrokerSettings())
        connection = await asyncpg.connect(server.url())
        await connection.execute("ALTER TABLE mlmq.message SET UNLOGGED")
        await connection.close()
        with pytest.raises(ConfigError, match=r"fsync is off; full_page_writes is off; .*mlmq.message is not.*require"):
            async with serving(server.url()):
                pass
        with caplog.at_level(logging.WARNING):
            async with serving(server.url(), require_durable=False) as broker:
                await health_is(broker, 200)
        assert "fsync is off" in caplog.text

    server = embedded.start(on_fork=die_with_parent())
    try:
        run_scenario(scenario())
    finally:
        server.stop()


def test_a_table_that_stops_being_logged_is_noticed(database_url: str) -> None:
    async def scenario() -> None:
        async with serving(database_url) as broker:
            connection = await asyncpg.connect(database_url)
            await connection.execute("ALTER TABLE mlmq.message SET UNLOGGED")
            await health_is(broker, 503, "mlmq.message is not logged")
            await connection.execute("ALTER TABLE mlmq.message SET LOGGED")
            await health_is(broker, 200)
            await connection.close()

    run_scenario(scenario())


def test_a_background_task_that_ends_is_started_again(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        tasks, starts = BackgroundTasks(), []

        async def work() -> None:
            starts.append(tasks.down)
            if len(starts) == 1:
                raise RuntimeError("by accident")
            if len(starts) == 2:
                return
            await asyncio.sleep(WAIT_S)

        tasks.start("task", work)
        while not tasks.down:
            await asyncio.sleep(0.01)
        assert tasks.down == ["task"]
        while len(starts) < 3:
            await asyncio.sleep(0.01)
        assert (tasks.down, tasks.restarts) == ([], 2)
        await tasks.close()

    run_scenario(scenario())
    assert "task failed" in caplog.text
    assert "task ended" in caplog.text
