"""The arguments of the verbs that analyse, compare, report, import and export recordings."""

from pathlib import Path
from typing import Annotated

import typer

from crescendo.cli.verbs.options import Json
from crescendo.exporters.registry import export_formats
from crescendo.importers.registry import import_formats


def analyze(
    runs: Annotated[
        list[str], typer.Argument(help="Recordings, directories of them, or URLs such as hdfs://host/runs/a.")
    ],
    master: Annotated[
        str | None, typer.Option("--master", help="A Spark master, e.g. spark://host:7077. Default: this machine.")
    ] = None,
    lake: Annotated[
        str | None,
        typer.Option(
            "--lake", metavar="DIR", help="Where the tables of several runs go. Default: lake, next to the runs."
        ),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Compute every table, including jitter and latencies per connection.")
    ] = False,
    json: Json = False,
) -> None:
    """Compute the tables and the verdict of recordings.

    Writes RUN/tables/ and RUN/summary.json. Given several recordings, it skips those that have not changed and collects
    the tables of all of them in a lake. The exit code is the worst verdict among them.
    """
    from crescendo.cli.analyze import analyze as verb

    raise typer.Exit(verb(runs, master, json, full, lake))


def compare(
    baseline: Annotated[
        str, typer.Argument(help="A run, a quoted pattern for several runs, or the name of an experiment.")
    ],
    run: Annotated[str, typer.Argument(help="The same, for the runs to compare with the baseline.")],
    lake: Annotated[Path, typer.Option("--lake", metavar="DIR", help="Where to look up experiments by name.")] = Path(
        "runs/lake"
    ),
    threshold: Annotated[
        float, typer.Option("--threshold", metavar="PERCENT", help="Changes up to this much count as no difference.")
    ] = 5.0,
    json: Json = False,
) -> None:
    """Say whether a run is better or worse than a baseline, and why.

    The runs must be analysed; several runs per side are repeats of one experiment. The exit code is 0 when nothing is
    worse, 1 when something is, 3 when the evidence is not sufficient.
    """
    from crescendo.cli.compare import compare as verb

    raise typer.Exit(verb(baseline, run, lake, threshold, json))


def report(runs: Annotated[list[Path], typer.Argument(help="Analysed recordings.")]) -> None:
    """Rewrite RUN/report.html: one self-contained page that needs no network."""
    from crescendo.cli.report import report as verb

    raise typer.Exit(verb(runs))


def export(
    form: Annotated[str, typer.Argument(metavar="FORMAT", help=f"{', '.join(export_formats())}.")],
    run: Annotated[Path, typer.Argument(help="An analysed recording.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="A new or empty directory.")],
) -> None:
    """Write a run in the format of another tool, such as Maestro's .dat, .hdr, CSV and properties files."""
    from crescendo.cli.export import export as verb

    raise typer.Exit(verb(form, run, out))


def import_(
    form: Annotated[str, typer.Argument(metavar="FORMAT", help=f"{', '.join(import_formats())}.")],
    paths: Annotated[list[Path], typer.Argument(help="Files or directories.")],
    out: Annotated[
        Path, typer.Option("--out", metavar="RUN", help="The recording to write; a new or empty directory.")
    ],
    period: Annotated[str, typer.Option("--period", help="Length of the periods to sum over (gftp only).")] = "60s",
    clock_bound: Annotated[
        str | None, typer.Option("--clock-bound", help="The largest possible difference between the clocks.")
    ] = None,
    master: Annotated[str | None, typer.Option("--master", help="A Spark master. Default: this machine.")] = None,
    json: Json = False,
) -> None:
    """Turn the files of another tool into a recording. Lines that cannot be parsed are set aside and counted."""
    from crescendo.cli.import_ import import_ as verb

    raise typer.Exit(verb(form, paths, out, period, clock_bound, master, json))


def logs(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Performance logs, at any depth, plain or compressed.")
    ],
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type", metavar="BEGINNING", help="Actions whose names begin with this, e.g. 'CSndReq#OK#'. Repeatable."
        ),
    ] = None,
    window: Annotated[str, typer.Option("--window", help="Length of a window, e.g. 60s or 500ms.")] = "60s",
    trim: Annotated[str, typer.Option("--trim", help="How much to leave out at the start and at the end.")] = "0s",
    form: Annotated[str, typer.Option("--format", help="csv, txt (one line per type), png or eps.")] = "csv",
    show: Annotated[str, typer.Option("--show", help="What a plot shows: response or throughput.")] = "response",
    centre: Annotated[str, typer.Option("--centre", help="The line of a plot: median or mean.")] = "median",
    bars: Annotated[
        str,
        typer.Option("--bars", help="The bars of a plot: percentile (2.5 % to 97.5 %) or stddev (plus and minus one)."),
    ] = "percentile",
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Default: standard output.")] = None,
) -> None:
    """Analyse performance logs of MLMQ: the duration and number of actions, window by window.

    Without --type it lists the actions in the logs. Then, for example:

    crescendo logs logs/run_56 --type 'CSndReq#OK#' --type BDb --trim 60s --format png --out plot.png

    Lines that cannot be parsed are counted and shown on stderr; the rest is still analysed.
    """
    from crescendo.cli.logs import logs as verb

    raise typer.Exit(verb(directory, list(types or ()), window, trim, form, show, centre, bars, out))
