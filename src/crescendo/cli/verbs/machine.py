"""The arguments of the verbs that check this machine, calibrate it, and serve MLMQ on it."""

from pathlib import Path
from typing import Annotated

import typer

from crescendo.cli.verbs.options import Json
from crescendo.model.protocols import OWN

CALIBRATED = ", ".join(name for name, protocol in OWN.items() if protocol.null_server is not None)


def doctor(json: Json = False) -> None:
    """Show what is installed, what is missing, and how to get it."""
    from crescendo.cli.doctor import doctor as verb

    raise typer.Exit(verb(json))


def calibrate(
    protocols: Annotated[
        list[str] | None, typer.Argument(metavar="[PROTOCOL]...", help=f"{CALIBRATED}. Default: all.")
    ] = None,
    sizes: Annotated[
        list[int] | None,
        typer.Option("--size", metavar="BYTES", help="A payload size. Repeatable. Default: three sizes."),
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", help="How long each trial lasts.")] = 1.0,
    json: Json = False,
) -> None:
    """Measure how much load this machine can generate, and save it: verdicts then say how close a run came to that.

    Sends to and receives from null servers on this machine: processes that do a protocol's handshake and nothing else.
    Takes a minute and a half by default; run it while the machine is idle.
    """
    from crescendo.cli.calibrate import calibrate as verb

    raise typer.Exit(verb(list(protocols or ()), list(sizes or ()), seconds, json))


def broker(
    database: Annotated[
        str | None, typer.Option("--database", metavar="URL", help="Your own PostgreSQL. Default: an embedded one.")
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
    json: Json = False,
) -> None:
    """Serve MLMQ, the message queue on PostgreSQL. Any number of brokers can share one database.

    Prints its address when it is ready. On SIGTERM or Ctrl-C it finishes the requests it has accepted.
    """
    from crescendo.cli.broker import broker as verb

    raise typer.Exit(verb(database, config, init, listen, data, json))
