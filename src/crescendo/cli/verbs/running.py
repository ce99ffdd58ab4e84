"""The arguments of the verbs that start a run, follow it, and take part in it."""

from pathlib import Path
from typing import Annotated

import typer

from crescendo.cli.verbs.options import Json, Out


def demo(out: Out = Path("runs"), json: Json = False) -> None:
    """Run the built-in experiment: load, recording, Spark tables, verdict, report. Nothing to install.

    Starts MLMQ, the message queue on an embedded PostgreSQL, with two senders and two receivers on this machine, and
    stops them all at the end.
    """
    from crescendo.cli.run import demo as verb

    raise typer.Exit(verb(out, json))


def run(
    experiment: Annotated[Path, typer.Argument(help="An experiment file, such as experiments/quick/amqp10.yml.")],
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Change a key, e.g. --set workload.rate=5000. Repeatable."),
    ] = None,
    out: Out = Path("runs"),
    control: Annotated[
        str | None,
        typer.Option("--control", metavar="URL", help="Use this MQTT broker for control instead of the embedded one."),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Show live tables: rates and percentiles of each second, by Spark.")
    ] = False,
    master: Annotated[
        str | None, typer.Option("--master", help="A Spark master for the analysis. Default: this machine.")
    ] = None,
    json: Json = False,
) -> None:
    """Run one experiment, analyse it, write the report, print the verdict.

    The exit code is the verdict: 0 pass, 1 fail, 3 invalid (the evidence is not sound); 2 means that the file or the
    system needs your attention first. Ctrl-C stops everything and keeps the partial recording.
    """
    from crescendo.cli.run import run as verb

    raise typer.Exit(verb(experiment, tuple(overrides or ()), out, control, json, live, master))


def watch(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="The recording of a run in progress; - reads its path from stdin.")
    ],
    period: Annotated[str, typer.Option("--period", help="The period of a row, e.g. 1s or 10s.")] = "1s",
    late_after: Annotated[
        str, typer.Option("--late-after", help="How far a part may lag behind the latest message and still count.")
    ] = "15s",
    json: Annotated[bool, typer.Option("--json", help="Print every update as a line of JSON.")] = False,
) -> None:
    """Follow a run in progress: messages sent, received and settled in each second, and their latencies.

    Start it in another terminal, or use `crescendo run --live`. A second is closed about 20 s later, when no part of
    the recording can add to it any more; messages after that count as late. Ends with the run, or on Ctrl-C. A run that
    is watched on its own machine is marked as observed, because the watcher uses a core.
    """
    from crescendo.cli.watch import watch as verb

    raise typer.Exit(verb(run, period, late_after, json))


def peer(
    role: Annotated[str, typer.Argument(help="sender, receiver, inspector or client.")],
    control: Annotated[str, typer.Option("--control", metavar="URL", help="The MQTT broker of the run.")],
    id: Annotated[str, typer.Option("--id", help="The name that the conductor planned for this peer.")],
) -> None:
    """Take part in a run as one process. `crescendo run` starts these itself."""
    from crescendo.cli.peer import peer as verb

    raise typer.Exit(verb(role, control, id))
