"""One PostgreSQL for all tests of MLMQ, and a clean database for each: only its schema is re-created."""

import asyncio
from collections.abc import Iterator

import asyncpg
import pytest

from crescendo.mlmq import postgres as embedded
from crescendo.mlmq.storage import initialise
from crescendo.processes.die_with_parent import die_with_parent


@pytest.fixture(scope="session")
def postgres() -> Iterator[embedded.Server]:
    """A server with default settings. Do not stop it: other tests use it too."""
    server = embedded.start(max_connections=200, on_fork=die_with_parent())
    yield server
    server.stop()


@pytest.fixture
def empty_database(postgres: embedded.Server) -> str:
    """The URL of a database with nothing in it."""
    return asyncio.run(_clean_database(postgres, "empty", with_schema=False))


@pytest.fixture
def database_url(postgres: embedded.Server) -> str:
    """The URL of a database with MLMQ's schema and nothing in its tables."""
    return asyncio.run(_clean_database(postgres, "ready", with_schema=True))


async def _clean_database(server: embedded.Server, name: str, *, with_schema: bool) -> str:
    """Created once, because a database costs seconds on a busy disk. Connections that are still open are terminated."""
    connection = await asyncpg.connect(server.url())
    if not await connection.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", name):
        await connection.execute(f'CREATE DATABASE "{name}"')
    await connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)
    await connection.close()
    connection = await asyncpg.connect(server.url(name))
    await connection.execute("DROP SCHEMA IF EXISTS mlmq CASCADE")
    if with_schema:
        await initialise(connection)
    await connection.close()
    return server.url(name)
