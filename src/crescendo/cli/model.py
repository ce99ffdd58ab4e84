"""The verb `model`: queueing models next to measured runs, and what a change would do."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from crescendo.cli.options import Json, check_directory_of
from crescendo.cli.written_page import Pdf, check_browser, show_page

if TYPE_CHECKING:
    from crescendo.report.data.model_document import ModelDocument

MODEL_PAGE = "model.html"


def model(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN…", help="Analysed runs with clients, or directories of campaigns.")
    ],
    what_if: Annotated[
        list[str] | None,
        typer.Option("--what-if", metavar="KEY=N", help="Predict a change: database.servers=16. Repeatable."),
    ] = None,
    station: Annotated[
        list[str] | None,
        typer.Option("--station", metavar="KEY=N", help="Correct the model itself: database.servers=2. Repeatable."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help=f"The page. Default: RUN/{MODEL_PAGE}.")
    ] = None,
    pdf: Pdf = False,
    as_json: Json = False,
) -> int:
    """Put a closed queueing network, fed from the measured tiers, next to the measurement, with its error.

    The demands are those of the run with the fewest clients; the number of servers comes from the experiment.
    """
    from crescendo.campaigns.queueing_model import model_of
    from crescendo.report.model_page import write_model_page

    check_browser(pdf)
    if out is not None:
        check_directory_of(out, "--out")
    path = out or runs[0] / MODEL_PAGE  # model_of says what is wrong with the runs
    document = model_of(runs, station or (), what_if or ())
    write_model_page(document, path)
    if as_json:
        print(msgspec.json.encode(document).decode())
    else:
        _print(document)
    show_page(path, pdf=pdf, quiet=as_json)
    return 0


def _print(document: "ModelDocument") -> None:
    from crescendo.model.units import format_ns, format_rate
    from crescendo.report.model_page import error

    for each in document.stations:
        servers = "a delay" if each.servers is None else f"{each.servers} servers"
        print(f"{each.name}: {format_ns(each.demand_ns)} per request, {servers}")
    for row in document.rows:
        print(
            f"{row.clients} clients: {format_rate(row.throughput)} requests/s, model "
            f"{format_rate(row.predicted_throughput)} ({error(row.predicted_throughput, row.throughput)}); response "
            f"{format_ns(row.response_ns)}, model {format_ns(row.predicted_response_ns)} "
            f"({error(row.predicted_response_ns, row.response_ns)}); bottleneck {row.bottleneck}"
        )
        if row.changed_throughput is not None and row.changed_response_ns is not None:
            print(
                f"  with {', '.join(document.changes)}: {format_rate(row.changed_throughput)} requests/s, response "
                f"{format_ns(row.changed_response_ns)}"
            )
