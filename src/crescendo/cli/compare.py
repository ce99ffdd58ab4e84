"""The verb `compare`: better, worse, or no difference, with the reason."""

import math
from pathlib import Path

import msgspec
from rich.console import Console
from rich.markup import escape

from crescendo.model.errors import ConfigError
from crescendo.model.units import format_ns
from crescendo.pipeline.compare.compare import Change, Compared, Comparison, Value
from crescendo.pipeline.compare.compare import compare as compared
from crescendo.pipeline.compare.runs import run_group

_COLOURS = {Change.BETTER: "green", Change.WORSE: "red", Change.SAME: "default", Change.UNCLEAR: "yellow"}
_EXIT_CODES = {Change.BETTER: 0, Change.SAME: 0, Change.WORSE: 1, Change.UNCLEAR: 3}


def compare(baseline: str, run: str, lake: Path, threshold_percent: float, as_json: bool) -> int:
    if not 0 <= threshold_percent < math.inf:
        raise ConfigError(f"--threshold {threshold_percent}: must be a percentage of 0 or more")
    answer = compared(run_group(baseline, lake), run_group(run, lake), threshold_percent / 100)
    if as_json:
        print(msgspec.json.encode(answer).decode())
    else:
        _print(answer)
    return _EXIT_CODES[answer.outcome]


def _print(answer: Comparison) -> None:
    console = Console(highlight=False, soft_wrap=True)
    for name, runs in (("baseline", answer.baseline), ("run", answer.run)):
        console.print(f"{name:9} {_runs(runs)}", markup=False)
    console.print(f"\n{'':14} {'baseline':>26} {'run':>26}", markup=False)
    for one in answer.metrics:
        values = f"{one.metric:14} {_format_side(one, one.baseline):>26} {_format_side(one, one.run):>26}"
        change = f"[{_COLOURS[one.outcome]}]{one.outcome.value:13}[/]"
        console.print(f"{values}  {change}  {escape(one.reason)}")
    console.print()
    for doubt in answer.doubts:
        console.print(f"doubt     {doubt}", markup=False)
    for note in answer.notes:
        console.print(f"note      {note}", markup=False)
    console.print(f"[bold]COMPARISON [{_COLOURS[answer.outcome]}]{answer.outcome.value}[/][/bold]")


def _runs(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} repeats: {', '.join(names[:4])}{' …' * (len(names) > 4)}"


def _format_side(one: Compared, side: Value) -> str:
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
