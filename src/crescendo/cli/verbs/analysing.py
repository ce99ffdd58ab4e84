"""How do people ask what recordings mean, and turn them into other forms?"""

from pathlib import Path
from typing import Annotated

import typer

from crescendo.cli.verbs.options import Json


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


def report(runs: Annotated[list[Path], typer.Argument(help="Analysed recordings.")]) -> None:
    """Write RUN/report.html anew: one self-contained page, no network needed to read it."""
    from crescendo.cli.report import report as verb

    raise typer.Exit(verb(runs))


def export(
    form: Annotated[str, typer.Argument(metavar="FORMAT", help="maestro.")],
    run: Annotated[Path, typer.Argument(help="An analysed recording.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="A directory that is empty or not there yet.")],
) -> None:
    """Write a run in the form of another tool: Maestro's .dat, .hdr, CSV and properties files."""
    from crescendo.cli.export import export as verb

    raise typer.Exit(verb(form, run, out))


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
