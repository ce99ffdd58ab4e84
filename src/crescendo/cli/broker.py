"""The verb `broker`: serve MLMQ.

It reads the configuration, starts an embedded PostgreSQL when no database is named, serves, prints its address, and
leaves no process behind when it ends. `--init` only prepares the database. Does not implement the broker itself.
"""

import json
import logging
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from crescendo.cli.options import Json
from crescendo.processes.die_with_parent import die_with_parent

if TYPE_CHECKING:
    from crescendo.mlmq.broker.server import Broker
    from crescendo.mlmq.broker.settings import BrokerSettings

R = TypeVar("R")
_SPARE_CONNECTIONS = 16  # for LISTEN/NOTIFY, for schema migration, and for an operator with psql


def broker(
    database: Annotated[
        str | None, typer.Option("--database", metavar="URL", help="Your own PostgreSQL. Default: an embedded one.")
    ] = None,
    database_file: Annotated[
        str | None,
        typer.Option(
            "--database-file",
            metavar="FILE",
            help="Read that URL from a file, and its password again whenever it connects; - is standard input. "
            "Or set CRESCENDO_DATABASE.",
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="A settings file, see docs/mlmq.md.")
    ] = None,
    init: Annotated[
        bool, typer.Option("--init", help="Only create or migrate the database schema, then exit.")
    ] = False,
    listen: Annotated[
        str | None, typer.Option("--listen", metavar="127.0.0.1:PORT", help="Where clients connect; 0 is a free port.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Where the embedded PostgreSQL keeps its data.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Serve MLMQ, the message queue on PostgreSQL. Any number of brokers can share one database.

    Prints its address when it is ready. On SIGTERM or Ctrl-C it finishes the requests it has accepted.
    """
    from crescendo.cli.secret_options import database_settings
    from crescendo.mlmq import postgres
    from crescendo.mlmq.broker.database_pool import database_url
    from crescendo.mlmq.broker.settings import load_settings
    from crescendo.mlmq.broker.store import prepare

    given = {
        **database_settings(database, database_file),
        "listen": listen,
        "data": None if data is None else str(data),
    }
    settings = load_settings(config, {key: value for key, value in given.items() if value is not None})
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    # Until the broker serves, and while the embedded server stops, SIGTERM too must shut everything down.
    signal.signal(signal.SIGTERM, _interrupt)
    if url := database_url(settings):
        return _with_database(settings, url, init, as_json, lambda: True)
    server = postgres.start(
        Path(settings.data) if settings.data else None,
        max_connections=settings.connections + _SPARE_CONNECTIONS,
        on_fork=die_with_parent(),
    )
    try:
        url = server.url()
        _run(prepare(url, settings))
        return _with_database(settings, url, init, as_json, lambda: server.is_alive)
    finally:
        server.stop()


def _with_database(
    settings: "BrokerSettings", url: str, init: bool, as_json: bool, is_alive: Callable[[], bool]
) -> int:
    from crescendo.mlmq.broker.database_pool import describe
    from crescendo.mlmq.broker.store import prepare
    from crescendo.mlmq.broker.supervision import supervise

    if init:
        applied = _run(prepare(url, settings))
        print(f"{describe(url)} is ready, {f'{applied} migrations applied' if applied else 'already up to date'}")
        return 0

    def announce(started: "Broker") -> None:
        address, http = started.address, started.http.address
        document = {"url": f"mlmq://{address}", "http": f"http://{http}", "database": describe(url)}
        line = f"serving mlmq://{address}, health and metrics at http://{http}, database {describe(url)}"
        print(json.dumps(document) if as_json else line, flush=True)

    drained = _run(supervise(settings, url, announce=announce, is_database_alive=is_alive))
    return 0 if drained else 1


def _run(coroutine: Coroutine[Any, Any, R]) -> R:
    import asyncio

    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(coroutine)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
