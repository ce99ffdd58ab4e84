"""The verbs of `mlmq`: what an operator sees and changes in the queues of a database.

They need no broker. The password comes from the embedded database's own directory, from a configuration file, from a
file or variable with the URL, or as every PostgreSQL program gets it (PGPASSWORD, ~/.pgpass).
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer

from crescendo.cli.options import Json

MLMQ_HELP = (
    "Look into the queues of an MLMQ database, and move or delete messages.\n\n"
    "Name the database with [bold]--data[/bold], [bold]--config[/bold] or [bold]--database-file[/bold]."
)

Database = Annotated[
    str | None,
    typer.Option("--database", metavar="URL", help="A PostgreSQL; the password from PGPASSWORD or ~/.pgpass."),
]
DatabaseFile = Annotated[
    str | None,
    typer.Option(
        "--database-file",
        metavar="FILE",
        help="Read that URL from a file, - is standard input. Or set CRESCENDO_DATABASE.",
    ),
]
Data = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="The directory of an embedded one, whose broker runs.")
]
Config = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="The broker's configuration file.")]
Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="The name of a queue.")]
R = TypeVar("R")

_SHOWN_BYTES = 60


def queues(
    database: Database = None,
    database_file: DatabaseFile = None,
    data: Data = None,
    config: Config = None,
    most: Annotated[int, typer.Option("--most", min=1, max=100_000, help="How many queues, the longest first.")] = 100,
    as_json: Json = False,
) -> int:
    """Show the queues: messages that wait, are leased or delayed, their age, and the queue's limits."""
    from crescendo.mlmq.storage.administration import queue_statistics

    found = _with_database(
        (database, database_file), data, config, lambda connection: queue_statistics(connection, most)
    )
    if as_json:
        _print_json([queue._asdict() for queue in found])
        return 0
    print(f"{'queue':32} {'waiting':>9} {'leased':>9} {'delayed':>9} {'dead':>9} {'oldest':>10}  limits")
    for queue in found:
        limits = [] if queue.kind == "public" else ["client"]
        if queue.max_deliveries is not None and queue.dead_letters is not None:
            limits.append(f"{queue.max_deliveries} deliveries, then {queue.dead_letters}")
        if queue.retention_s is not None:
            limits.append(f"kept {queue.retention_s:g} s")
        counts = " ".join(f"{count:9,}" for count in (queue.waiting, queue.leased, queue.delayed, queue.dead))
        print(f"{queue.name:32} {counts} {queue.oldest_s:8,.0f} s  {', '.join(limits)}".rstrip())
    return 0


def peek(
    queue: Queue,
    database: Database = None,
    database_file: DatabaseFile = None,
    data: Data = None,
    config: Config = None,
    count: Annotated[int, typer.Option("--count", min=1, max=10_000, help="How many messages.")] = 10,
    as_json: Json = False,
) -> int:
    """Show the first messages of a queue without taking them."""
    from crescendo.mlmq.storage.administration import stored_messages

    found = _with_database(
        (database, database_file), data, config, lambda connection: stored_messages(connection, queue, count)
    )
    if as_json:
        _print_json([message._asdict() for message in found])  # contents in Base64
        return 0
    for message in found:
        more = f"  dead letter of {message.dead_from}" if message.dead_from else ""
        shown = repr(message.content[:_SHOWN_BYTES])[2:-1] + ("…" if len(message.content) > _SHOWN_BYTES else "")
        print(
            f"{message.id}  priority {message.priority}  {message.age_s:,.1f} s old  {message.state}  "
            f"delivered {message.delivery}×  from {message.sender or 'a client that is gone'}{more}  {shown}"
        )
    return 0


def move(
    queue: Queue,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The queue to move them to.")],
    database: Database = None,
    database_file: DatabaseFile = None,
    data: Data = None,
    config: Config = None,
    count: Annotated[int | None, typer.Option("--count", min=1, help="How many messages. Default: all.")] = None,
    as_json: Json = False,
) -> int:
    """Move waiting messages to another queue: dead letters back to where they came from, for example."""
    from crescendo.mlmq.storage.administration import move_messages

    moved = _with_database(
        (database, database_file), data, config, lambda connection: move_messages(connection, queue, target, count)
    )
    _print_json({"moved": moved}) if as_json else print(f"{moved} messages moved from {queue} to {target}")
    return 0


def purge(
    queue: Queue,
    database: Database = None,
    database_file: DatabaseFile = None,
    data: Data = None,
    config: Config = None,
    as_json: Json = False,
) -> int:
    """Delete all messages of a queue, except those that a client holds on a lease."""
    from crescendo.mlmq.storage.administration import purge_queue

    deleted = _with_database((database, database_file), data, config, lambda connection: purge_queue(connection, queue))
    _print_json({"deleted": deleted}) if as_json else print(f"{deleted} messages deleted from {queue}")
    return 0


def _with_database(
    database: tuple[str | None, str | None], data: Path | None, config: Path | None, work: Callable[[Any], Awaitable[R]]
) -> R:
    """Work on a connection to the database that the options name."""
    from crescendo.cli.secret_options import database_settings
    from crescendo.mlmq.broker.own_database import work_on_database
    from crescendo.mlmq.broker.settings import load_settings

    given = {**database_settings(*database), "data": None if data is None else str(data)}
    settings = load_settings(config, {key: value for key, value in given.items() if value is not None})
    return work_on_database(settings, work)


def _print_json(document: Any) -> None:
    print(msgspec.json.encode(document).decode())


MLMQ_VERBS: dict[str, Callable[..., int]] = {"queues": queues, "peek": peek, "move": move, "purge": purge}
"""In the order of the help."""
