"""How do people ask what this machine can do, and let it serve?"""

from pathlib import Path
from typing import Annotated

import typer

from crescendo.cli.verbs.options import Json


def doctor(json: Json = False) -> None:
    """Say what is installed, what is missing, and how to get it."""
    from crescendo.cli.doctor import doctor as verb

    raise typer.Exit(verb(json))


def calibrate(
    protocols: Annotated[
        list[str] | None, typer.Argument(metavar="[PROTOCOL]...", help="amqp10, amqp091, stomp, mqtt. Default: all.")
    ] = None,
    sizes: Annotated[
        list[int] | None, typer.Option("--size", metavar="BYTES", help="A payload size. Repeatable. Default: three.")
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", help="How long each turn lasts.")] = 1.0,
    json: Json = False,
) -> None:
    """Find out how much load this machine can make, and remember it: verdicts then say how near a run came to it.

    Sends to and receives from null ends on this machine: processes that do a protocol's handshake and nothing else.
    Takes a minute and a half with its defaults; do it when the machine is quiet.
    """
    from crescendo.cli.calibrate import calibrate as verb

    raise typer.Exit(verb(list(protocols or ()), list(sizes or ()), seconds, json))


def broker(
    database: Annotated[
        str | None, typer.Option("--database", metavar="URL", help="A PostgreSQL of yours. Default: an embedded one.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Settings, as in docs/mlmq.md.")
    ] = None,
    init: Annotated[bool, typer.Option("--init", help="Only prepare the database or bring it up to date.")] = False,
    listen: Annotated[
        str | None, typer.Option("--listen", metavar="127.0.0.1:PORT", help="Where clients connect; 0 is a free port.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Where the embedded PostgreSQL keeps its data.")
    ] = None,
    json: Json = False,
) -> None:
    """Serve MLMQ, the message queue on PostgreSQL. Start as many as you like on one database.

    Prints its address when it serves. SIGTERM and Ctrl-C let it finish what it took.
    """
    from crescendo.cli.broker import broker as verb

    raise typer.Exit(verb(database, config, init, listen, data, json))
