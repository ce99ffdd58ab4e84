"""How do searches at several levels of a factor become one page?

Capacity: the highest rate that each level sustains. Demand: the least level that sustains each rate. A function of the
result. Judges nothing.
"""

import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from crescendo.model.verdict import Outcome
from crescendo.record.capacity_result import CapacityLevel, CapacityResult, read_capacity
from crescendo.report import formats
from crescendo.report.document import render
from crescendo.report.page_file import write_page
from crescendo.report.plots.time_axis import Chart, line, plot_name
from crescendo.report.plots.value_axis import value_axis
from crescendo.report.search_page import SEARCH_PAGE
from crescendo.report.sections.headline import ICONS

CAPACITY_PAGE = "capacity.html"


def write_capacity_page(directory: str | os.PathLike[str]) -> Path:
    """Write the page next to its result, atomically, and return its path."""
    at = Path(directory)
    path = at / CAPACITY_PAGE
    write_page(path, render_capacity(read_capacity(at)))
    return path


def render_capacity(result: CapacityResult) -> str:
    """The page as one HTML document."""
    known = [level for level in result.levels if level.rate is not None]
    outcome = Outcome.PASS if known and all(level.complete for level in result.levels) else Outcome.INVALID
    return render(
        "capacity.html.j2",
        {"capacity": _capacity(result, known), "demand": _demand(result, known)},
        name=result.name,
        factor=result.factor,
        outcome=str(outcome),
        icon=ICONS[outcome],
        title=_title(known),
        sentence=_sentence(result, known),
        limits=", ".join(
            f"{metric.replace('_', ' ')} {formats.bound(limit)}" for metric, limit in result.limits.items()
        ),
        levels=[_row(level) for level in result.levels],
    )


def _title(known: list[CapacityLevel]) -> str:
    if not known:
        return "nothing is confirmed"
    best = max(known, key=lambda level: level.rate or 0.0)
    return f"{formats.rate(best.rate or 0.0)} msg/s at {best.level}"


def _sentence(result: CapacityResult, known: list[CapacityLevel]) -> str:
    if len(known) < 2:
        return "Fewer than two levels have an answer."
    first, last = known[0], known[-1]
    ratio = (last.rate or 0.0) / (first.rate or 1.0)
    return f"From {first.level} to {last.level}, {result.factor} changes what is sustained by × {ratio:.3g}."


def _row(level: CapacityLevel) -> dict[str, Any]:
    rates = [formats.NOTHING if rate is None else formats.rate(rate) for rate in (level.rate, level.above)]
    outcome = Outcome.PASS if level.complete and level.rate is not None else Outcome.INVALID
    return {
        "level": level.level, "rates": rates, "outcome": str(outcome), "icon": ICONS[outcome], "reason": level.reason,
        "link": f"{quote(level.search)}/{SEARCH_PAGE}",
    }  # fmt: skip


def _positions(levels: list[CapacityLevel]) -> tuple[list[float], dict[str, Any]]:
    """Where levels are on an axis: at their numbers, or one after the other."""
    if all(level.number is not None for level in levels):
        return [level.number or 0.0 for level in levels], {"fixedrange": True, "rangemode": "tozero"}
    at = [float(number) for number in range(len(levels))]
    names = [plot_name(level.level, 20) for level in levels]
    return at, {"tickvals": at, "ticktext": names, "fixedrange": True, "range": [-0.5, len(levels) - 0.5]}


def _capacity(result: CapacityResult, known: list[CapacityLevel]) -> Chart | None:
    if not known:
        return None
    x, x_axis = _positions(known)
    y = [level.rate or 0.0 for level in known]
    trace = line("sustained", x, y, "blue", hover="%{y:,.0f} msg/s", dash="solid") | {"mode": "lines+markers"}
    gaps = [(level.above or level.rate or 0.0) - (level.rate or 0.0) for level in known]
    trace["error_y"] = {"type": "data", "symmetric": False, "array": gaps, "arrayminus": [0.0] * len(gaps), "width": 6}
    top = max(rate + gap for rate, gap in zip(y, gaps, strict=True))
    layout = {
        "xaxis": x_axis | {"title": {"text": plot_name(result.factor)}},
        "yaxis": value_axis("rate", [0.0, top], title="highest sustainable rate") | {"range": [0, top * 1.1]},
        "hovermode": "closest",
    }
    described = "; ".join(f"{level.level}: {formats.rate(level.rate or 0.0)} msg/s" for level in known)
    notes = ["Bars reach up to the lowest rate that fails."]
    return Chart({"data": [trace], "layout": layout}, f"Capacity by {result.factor}: {described}.", notes)


def _demand(result: CapacityResult, known: list[CapacityLevel]) -> Chart | None:
    """Steps: up to each rate, the least level that sustains it. Only for levels that are numbers."""
    if len(known) < 2 or any(level.number is None for level in known):
        return None
    x, y, best = [0.0], [], 0.0
    for level in sorted(known, key=lambda each: each.number or 0.0):
        if (level.rate or 0.0) > best:
            best = level.rate or 0.0
            x.append(best)
            y.append(level.number or 0.0)
    y.append(y[-1])
    trace = line("least level", x, y, "orange", hover="up to %{x:,.0f} msg/s: %{y:~g}", dash="solid")
    trace["mode"] = "lines+markers"
    trace["line"]["shape"] = "hv"
    layout = {
        "xaxis": value_axis("rate", [0.0, best], title="rate") | {"range": [0, best * 1.05]},
        "yaxis": {"title": {"text": plot_name(result.factor)}, "rangemode": "tozero", "fixedrange": True},
        "hovermode": "closest",
    }
    steps = "; ".join(f"up to {formats.rate(rate)} msg/s {level:g}" for rate, level in zip(x[1:], y, strict=False))
    notes = ["Beyond the last step, no level that was tried sustains the rate."]
    return Chart({"data": [trace], "layout": layout}, f"Least {result.factor} by rate: {steps}.", notes)
