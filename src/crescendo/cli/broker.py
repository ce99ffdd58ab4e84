"""The verb `broker`: serve MLMQ.

It reads the configuration, starts an embedded PostgreSQL when no database is named, serves, prints its address, and
leaves no process behind when it ends. `--init` only prepares the database. Does not implement the broker itself.
"""

import json
import logging
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from crescendo.cli.options import Json

if TYPE_CHECKING:
    from crescendo.mlmq.broker.server import Broker


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
    from crescendo.mlmq.broker.database_pool import describe
    from crescendo.mlmq.broker.own_database import database_of, run_to_end
    from crescendo.mlmq.broker.settings import load_settings
    from crescendo.mlmq.broker.store import prepare
    from crescendo.mlmq.broker.supervision import supervise

    given = {
        **database_settings(database, database_file),
        "listen": listen,
        "data": None if data is None else str(data),
    }
    settings = load_settings(config, {key: value for key, value in given.items() if value is not None})
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    # Until the broker serves, and while the embedded server stops, SIGTERM too must shut everything down.
    signal.signal(signal.SIGTERM, _interrupt)
    with database_of(settings) as (url, is_alive):
        if init:
            applied = run_to_end(prepare(url, settings))
            print(f"{describe(url)} is ready, {f'{applied} migrations applied' if applied else 'already up to date'}")
            return 0

        def announce(started: "Broker") -> None:
            address, http = started.address, started.http.address
            document = {"url": f"mlmq://{address}", "http": f"http://{http}", "database": describe(url)}
            line = f"serving mlmq://{address}, health and metrics at http://{http}, database {describe(url)}"
            print(json.dumps(document) if as_json else line, flush=True)

        drained = run_to_end(supervise(settings, url, announce=announce, is_database_alive=is_alive))
        return 0 if drained else 1


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
