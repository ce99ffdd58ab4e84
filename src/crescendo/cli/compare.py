"""The verb `compare`: better, worse, or no difference, with the reason."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from crescendo.cli.options import Json, check_directory_of
from crescendo.cli.written_page import Pdf, check_browser, show_page
from crescendo.model.errors import ConfigError
from crescendo.model.units import format_count, format_ns

if TYPE_CHECKING:
    from crescendo.pipeline.compare.compare import Compared, Comparison, Value


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
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric", metavar="METRIC", help="Compare this metric only; may be repeated. rate, orders.lost …"
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Also write a self-contained page to this file.")
    ] = None,
    pdf: Pdf = False,
    as_json: Json = False,
) -> int:
    """Say whether a run is better or worse than a baseline, and why.

    The runs must be analysed; several runs per side are repeats of one experiment. The exit code is 0 when every
    metric is better or no different, 1 when one is worse, and otherwise 3: the evidence is not sufficient.
    """
    from crescendo.api import compare as compared
    from crescendo.pipeline.compare.outcomes import Change

    if not 0 <= threshold < math.inf:
        raise ConfigError(f"--threshold {threshold}: must be a percentage of 0 or more")
    if pdf and html is None:
        raise ConfigError("--pdf prints the page of --html; give both")
    check_directory_of(html, "--html")
    check_browser(pdf)
    answer = compared(baseline, run, threshold=threshold / 100, metrics=metric or (), lake=lake)
    if html is not None:
        from crescendo.report.comparison_page import write_comparison

        write_comparison(answer, html)
    if as_json:
        print(msgspec.json.encode(answer).decode())
    else:
        _print(answer)
    if html is not None:
        show_page(html, pdf=pdf, quiet=as_json)
    return {Change.BETTER: 0, Change.SAME: 0, Change.WORSE: 1, Change.UNCLEAR: 3}[answer.outcome]


def _print(answer: "Comparison") -> None:
    from rich.console import Console
    from rich.markup import escape

    from crescendo.pipeline.compare.outcomes import Change

    colours = {Change.BETTER: "green", Change.WORSE: "red", Change.SAME: "default", Change.UNCLEAR: "yellow"}
    console = Console(highlight=False, soft_wrap=True)
    for name, runs in (("baseline", answer.baseline), ("run", answer.run)):
        console.print(f"{name:9} {_runs(runs)}", markup=False)
    console.print()
    rows = [("", "baseline", "run", "change"), *(_cells(one) for one in answer.metrics)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows]
    console.print(lines[0], markup=False)
    for line, one in zip(lines[1:], answer.metrics, strict=True):
        console.print(f"{escape(line)}  [{colours[one.outcome]}]{one.outcome.value:13}[/]  {escape(one.reason)}")
    console.print(f"\n{_legend(answer)}", markup=False)
    for doubt in answer.doubts:
        console.print(f"doubt     {doubt}", markup=False)
    for note in answer.notes:
        console.print(f"note      {note}", markup=False)
    console.print(f"[bold]COMPARISON [{colours[answer.outcome]}]{answer.outcome.value}[/][/bold]")


def _runs(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} repeats: {', '.join(names[:4])}{' …' * (len(names) > 4)}"


def _cells(one: "Compared") -> tuple[str, str, str, str]:
    from crescendo.pipeline.compare.outcomes import format_change

    moved = "–" if one.change is None else format_change(one.change)
    return one.metric, _format_side(one, one.baseline), _format_side(one, one.run), moved


def _legend(answer: "Comparison") -> str:
    kinds = {len(side) > 1 for side in (answer.baseline, answer.run)}
    brackets = " or ".join(
        text
        for repeated, text in ((False, "95 % interval of a run"), (True, "lowest – highest of the repeats"))
        if repeated in kinds
    )
    every = f"{answer.confidence:.1%} each" if len(answer.metrics) > 1 else "95 %"
    return f"(in brackets: {brackets}; changes: the intervals of all metrics hold at once with 95 %, {every})"


def _format_side(one: "Compared", side: "Value") -> str:
    if side.value is None:
        return "–"
    if one.unit == "share":
        return f"{side.value:.4%}" if side.value else "none"
    text = format_ns if one.unit == "ns" else format_count
    low, high = (min(side.runs), max(side.runs)) if len(side.runs) > 1 else (side.low, side.high)
    if low is None or high is None:
        return text(side.value)
    return f"{text(side.value)} ({text(low)} – {text(high)})"
