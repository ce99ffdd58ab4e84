"""Which database does a broker use, and how long does it run?

The one that its settings name, or an embedded PostgreSQL that runs for as long as the broker. An operator's work on the
same database needs no broker, and starts no server.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import uvloop

from crescendo.mlmq import postgres
from crescendo.mlmq.broker.database_pool import connect, database_url, retry_until_available
from crescendo.mlmq.broker.settings import BrokerSettings
from crescendo.mlmq.broker.store import prepare
from crescendo.mlmq.postgres.running_server import embedded_url
from crescendo.mlmq.storage import check_schema
from crescendo.model.errors import ConfigError
from crescendo.processes.die_with_parent import die_with_parent

_SPARE_CONNECTIONS = 16  # for LISTEN/NOTIFY, for schema migration, and for an operator with psql

R = TypeVar("R")


class BrokerDatabase(NamedTuple):
    url: str
    is_alive: Callable[[], bool]


@contextmanager
def database_of(settings: BrokerSettings) -> Iterator[BrokerDatabase]:
    """The database of these settings. An embedded one has its schema already, and is stopped at the end."""
    if url := database_url(settings):
        yield BrokerDatabase(url, lambda: True)
        return
    server = postgres.start(
        Path(settings.data) if settings.data else None,
        max_connections=settings.connections + _SPARE_CONNECTIONS,
        on_fork=die_with_parent(),
    )
    try:
        url = server.url()
        run_to_end(prepare(url, settings))
        yield BrokerDatabase(url, lambda: server.is_alive)
    finally:
        server.stop()


def work_on_database(settings: BrokerSettings, work: Callable[[Any], Awaitable[R]]) -> R:
    """Work on a connection to the database of these settings; an embedded one must be running."""
    url = database_url(settings)
    if not url and not settings.data:
        raise ConfigError("which database? Name it with --data, --config or --database-file")
    url = url or embedded_url(Path(settings.data))

    async def connected() -> R:
        connection = await retry_until_available(lambda: connect(url), url, 0.0)
        try:
            await check_schema(connection)
            return await work(connection)
        finally:
            await connection.close()

    return run_to_end(connected())


def run_to_end(coroutine: Coroutine[Any, Any, R]) -> R:
    """Run it on an event loop of its own."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(coroutine)
