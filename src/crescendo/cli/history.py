"""The verb `history`: every series of comparable runs in one place, and where they changed."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from crescendo.cli.baseline import DEFAULT_FILE, BaselineFile
from crescendo.cli.options import Json, check_directory_of
from crescendo.cli.written_page import Pdf, check_browser, show_page
from crescendo.model.errors import ConfigError

if TYPE_CHECKING:
    from crescendo.report.data.history_document import HistoryDocument

HISTORY_PAGE = "history.html"


def history(
    place: Annotated[
        str, typer.Argument(metavar="DIR", help="A directory of runs, or a lake; a lake may be at a URL.")
    ] = "runs",
    metric: Annotated[
        list[str] | None, typer.Option("--metric", metavar="METRIC", help="Only this metric; may be repeated.")
    ] = None,
    experiment: Annotated[
        str | None, typer.Option("--experiment", metavar="NAME", help="Only the runs of this experiment.")
    ] = None,
    threshold: Annotated[
        float, typer.Option("--threshold", metavar="PERCENT", help="Changes below half of this are not listed.")
    ] = 5.0,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help=f"The page. Default: DIR/{HISTORY_PAGE}."),
    ] = None,
    baselines: BaselineFile = DEFAULT_FILE,
    pdf: Pdf = False,
    as_json: Json = False,
) -> int:
    """Show how comparable runs changed over time: trends, change points, verdicts; write one page."""
    from crescendo.history.baseline_file import read_baselines
    from crescendo.history.run_history import all_runs, check_metrics
    from crescendo.history.run_series import history_of
    from crescendo.pipeline.storage.locations import is_url
    from crescendo.report.history_page import write_history_page

    check_browser(pdf)
    check_metrics(metric or ())
    remote = is_url(place)
    if not remote and not Path(place).is_dir():
        raise ConfigError(f"{place}: no such directory; name one that holds runs, or a lake")
    path = out or (Path(HISTORY_PAGE) if remote else Path(place) / HISTORY_PAGE)
    check_directory_of(path, "--out")
    runs = [run for run in all_runs(place, metric or ()) if experiment in {None, run.experiment}]
    if not runs:
        raise ConfigError(f"{place}: it holds no analysed run{f' of {experiment}' if experiment else ''}")
    shown = place if remote else Path(place).name or Path(place).resolve().name  # not `.`
    document = history_of(runs, read_baselines(baselines), threshold / 100, place=shown, beside=path.parent.resolve())
    write_history_page(document, path)
    if as_json:
        print(msgspec.json.encode(document).decode())
    else:
        _print(document)
    show_page(path, pdf=pdf, quiet=as_json)
    return 0


def _print(document: "HistoryDocument") -> None:
    from crescendo.model.campaign import format_metric
    from crescendo.pipeline.compare.outcomes import format_change

    for series in document.series:
        print(f"{series.experiment} · {len(series.runs)} runs · {series.machine} · {series.fingerprint}")
        for metric in series.metrics:
            if not metric.values:
                continue
            latest = format_metric(metric.metric, metric.values[-1])
            print(f"  {metric.metric}  {latest} in the last run" + ("" if metric.changes else "; no change"))
            for each in metric.changes:
                review = f", {each.state}" if each.state else ""
                direction = "worse" if each.worse else "better"
                print(f"    {format_change(each.change)} since {each.run}: {direction}{review}")
