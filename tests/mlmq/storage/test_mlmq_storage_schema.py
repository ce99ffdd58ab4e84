"""Is a database with a wrong schema, or one that cannot be used, reported with a message the operator can act on?"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from crescendo.mlmq.storage import Database, StorageRejected, StorageUnavailable, check_schema, initialise
from crescendo.mlmq.storage.database import answer
from crescendo.mlmq.storage.failures import translated_errors
from crescendo.mlmq.storage.schema import migrations
from crescendo.model.errors import ConfigError
from crescendo.wire.mlmq.operations import Dequeue, Query, Register


def connected(url: str, work: Callable[[Any], Awaitable[None]]) -> None:
    async def run() -> None:
        connection = await asyncpg.connect(url)
        try:
            await work(connection)
        finally:
            await connection.close()

    asyncio.run(run())


def test_initialising_twice_or_concurrently_is_initialising_once(empty_database: str) -> None:
    async def run() -> None:
        async with asyncpg.create_pool(empty_database, min_size=6, max_size=6) as pool:

            async def initialise_here() -> int:
                async with pool.acquire() as connection:
                    return await initialise(connection)

            applied = await asyncio.gather(*(initialise_here() for _ in range(6)))
            assert sorted(applied) == [0] * 5 + [len(migrations())]
            assert await initialise_here() == 0
            async with pool.acquire() as connection:
                await check_schema(connection)

    asyncio.run(run())


def test_all_tables_survive_a_crash(database_url: str) -> None:
    """Unlogged or temporary tables would not."""

    async def work(connection: Any) -> None:
        kinds = await connection.fetch(
            "SELECT relname, relpersistence FROM pg_class WHERE relnamespace = 'mlmq'::regnamespace AND relkind = 'r'"
        )
        assert {row["relname"] for row in kinds} >= {"client", "queue", "message", "receipt_0", "receipt_1"}
        assert {row["relpersistence"] for row in kinds} == {b"p"}
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            assert await connection.fetchval(f"SHOW {setting}") == "on"

    connected(database_url, work)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("DELETE FROM mlmq.migration WHERE number = (SELECT max(number) FROM mlmq.migration)", "--init"),
        ("INSERT INTO mlmq.migration VALUES (900, 'x')", "version 900, .* use a newer crescendo"),
        ("UPDATE mlmq.migration SET sha256 = 'other' WHERE number = 1", "migration 1 .* is not the one"),
        ("DROP SCHEMA mlmq CASCADE", "no MLMQ schema: .* --init"),
    ],
)
def test_a_wrong_schema_is_explained(database_url: str, damage: str, message: str) -> None:
    async def work(connection: Any) -> None:
        await connection.execute(damage)
        with pytest.raises(ConfigError, match=message):
            await check_schema(connection)

    connected(database_url, work)


def test_an_uninitialised_database_is_a_configuration_error(empty_database: str) -> None:
    async def run() -> None:
        async with asyncpg.create_pool(empty_database, min_size=1, max_size=1) as pool:
            with pytest.raises(ConfigError, match="--init"):
                await Database(pool).register([Register("a")])

    asyncio.run(run())


def test_a_read_only_database_is_refused_and_stores_nothing(database_url: str) -> None:
    async def work(connection: Any) -> None:
        await connection.execute("SET default_transaction_read_only = on")
        with pytest.raises(ConfigError, match="read-only"):
            await initialise(connection)
        with pytest.raises(StorageRejected, match="read-only"):
            await answer(connection, [Register("a")])
        await connection.execute("SET default_transaction_read_only = off")
        assert await connection.fetchval("SELECT count(*) FROM mlmq.client") == 0

    connected(database_url, work)


def test_an_account_without_privileges_is_rejected(database_url: str) -> None:
    async def work(connection: Any) -> None:
        await connection.execute("CREATE ROLE unprivileged")
        try:
            await connection.execute("SET ROLE unprivileged")
            with pytest.raises(StorageRejected, match="grant"):
                await answer(connection, [Register("a")])
        finally:
            await connection.execute("RESET ROLE")
            await connection.execute("DROP ROLE unprivileged")

    connected(database_url, work)


def test_a_lost_connection_is_an_unavailable_database(database_url: str) -> None:
    async def run() -> None:
        async with asyncpg.create_pool(database_url, min_size=2, max_size=2) as pool:
            async with pool.acquire() as killer, pool.acquire() as victim:
                await killer.fetchval("SELECT pg_terminate_backend($1)", victim.get_server_pid())
                with pytest.raises(StorageUnavailable):
                    await answer(victim, [Dequeue(1, Query(1))])
            assert len((await Database(pool).register([Register("a")])).answers) == 1  # the pool has another connection

    asyncio.run(run())


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (asyncpg.DiskFullError("No space left on device"), StorageRejected),
        (asyncpg.CannotConnectNowError("starting up"), StorageUnavailable),
        (asyncpg.AdminShutdownError("terminating"), StorageUnavailable),
        (asyncpg.DeadlockDetectedError("deadlock"), StorageUnavailable),
        (ConnectionRefusedError(111, "Connection refused"), StorageUnavailable),
        (TimeoutError(), StorageUnavailable),
        (asyncpg.CheckViolationError("a bug of ours"), asyncpg.CheckViolationError),
    ],
)
def test_errors_that_cannot_be_provoked_here_are_translated_too(error: Exception, kind: type[Exception]) -> None:
    with pytest.raises(kind), translated_errors():
        raise error
