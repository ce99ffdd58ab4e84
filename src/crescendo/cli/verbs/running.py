"""How do people start a run, follow it, and take part in it?"""

from pathlib import Path
from typing import Annotated

import typer

from crescendo.cli.verbs.options import Json, Out


def demo(out: Out = Path("runs"), json: Json = False) -> None:
    """Run the built-in experiment: load, recording, Spark tables, verdict, report. Nothing to install.

    Starts a small AMQP relay, two senders and two receivers on this machine, and stops all of it again.
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
        str | None, typer.Option("--control", metavar="URL", help="An MQTT broker for control, instead of our own.")
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Show live tables: each second's rates and percentiles, by Spark.")
    ] = False,
    master: Annotated[
        str | None, typer.Option("--master", help="A Spark master for the analysis. Default: this machine.")
    ] = None,
    json: Json = False,
) -> None:
    """Run one experiment, analyse it, write the report, print the verdict.

    The exit code is the verdict: 0 pass, 1 fail, 3 invalid (we cannot say); 2 means the file or the system needs
    your attention first. Ctrl-C stops everything and keeps what was recorded.
    """
    from crescendo.cli.run import run as verb

    raise typer.Exit(verb(experiment, tuple(overrides or ()), out, control, json, live, master))


def watch(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A recording that grows; - reads its path from stdin.")],
    period: Annotated[str, typer.Option("--period", help="What a row is about, e.g. 1s or 10s.")] = "1s",
    late_after: Annotated[
        str, typer.Option("--late-after", help="How far a part may lag behind the latest message and still count.")
    ] = "15s",
    json: Annotated[bool, typer.Option("--json", help="Print every change as a line of JSON.")] = False,
) -> None:
    """Follow a run while it goes on: messages sent, received and settled in each second, and how long they took.

    Start it in another terminal, or let `crescendo run --live` do it. A second is closed when no part of the recording
    can add to it any more, some 20 s later; what comes even later is counted as late. Ends with the run, or at Ctrl-C.
    A run that is watched on its own machine is marked as observed: the watcher takes a core.
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
