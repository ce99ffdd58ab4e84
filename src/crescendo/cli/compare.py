"""The verb `compare`: better, worse, or no difference, with the reason."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from crescendo.cli.options import Json
from crescendo.model.errors import ConfigError
from crescendo.model.units import format_ns

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
    as_json: Json = False,
) -> int:
    """Say whether a run is better or worse than a baseline, and why.

    The runs must be analysed; several runs per side are repeats of one experiment. The exit code is 0 when nothing is
    worse, 1 when something is, 3 when the evidence is not sufficient.
    """
    from crescendo.api import compare as compared
    from crescendo.pipeline.compare.compare import Change

    if not 0 <= threshold < math.inf:
        raise ConfigError(f"--threshold {threshold}: must be a percentage of 0 or more")
    answer = compared(baseline, run, threshold=threshold / 100, lake=lake)
    if as_json:
        print(msgspec.json.encode(answer).decode())
    else:
        _print(answer)
    return {Change.BETTER: 0, Change.SAME: 0, Change.WORSE: 1, Change.UNCLEAR: 3}[answer.outcome]


def _print(answer: "Comparison") -> None:
    from rich.console import Console
    from rich.markup import escape

    from crescendo.pipeline.compare.compare import Change

    colours = {Change.BETTER: "green", Change.WORSE: "red", Change.SAME: "default", Change.UNCLEAR: "yellow"}
    console = Console(highlight=False, soft_wrap=True)
    for name, runs in (("baseline", answer.baseline), ("run", answer.run)):
        console.print(f"{name:9} {_runs(runs)}", markup=False)
    console.print(f"\n{'':14} {'baseline':>26} {'run':>26}", markup=False)
    for one in answer.metrics:
        values = f"{one.metric:14} {_format_side(one, one.baseline):>26} {_format_side(one, one.run):>26}"
        change = f"[{colours[one.outcome]}]{one.outcome.value:13}[/]"
        console.print(f"{values}  {change}  {escape(one.reason)}")
    console.print()
    for doubt in answer.doubts:
        console.print(f"doubt     {doubt}", markup=False)
    for note in answer.notes:
        console.print(f"note      {note}", markup=False)
    console.print(f"[bold]COMPARISON [{colours[answer.outcome]}]{answer.outcome.value}[/][/bold]")


def _runs(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} repeats: {', '.join(names[:4])}{' …' * (len(names) > 4)}"


def _format_side(one: "Compared", side: "Value") -> str:
    if side.value is None:
        return "–"
    if one.unit == "share":
        return f"{side.value:.4%}" if side.value else "none"
    format_one = format_ns if one.unit == "ns" else _rate
    if side.low is None or side.high is None:
        return format_one(side.value)
    return f"{format_one(side.value)} ({format_one(side.low)} – {format_one(side.high)})"


def _rate(value: float) -> str:
    return f"{value:,.0f}"
