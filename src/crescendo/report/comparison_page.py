"""How does a comparison become one page?

The outcome, every change with its interval in one chart, and a table with both sides and the reasons. A function of the
comparison's document. Judges nothing: outcomes, reasons and doubts are shown as they are.
"""

import math
import os
from pathlib import Path
from typing import Any

from crescendo.report import formats
from crescendo.report.data.comparison_document import ComparedMetric, ComparisonDocument, SideValue, comparison_document
from crescendo.report.document import render
from crescendo.report.page_file import write_page
from crescendo.report.plots.time_axis import Chart, band, plot_name

_LOOKS = {"better": ("pass", "✓"), "no difference": ("same", "="), "worse": ("fail", "✕")}
_DOUBTFUL = ("invalid", "?")
_SYMBOLS = {"pass": "circle", "same": "square", "fail": "x", "invalid": "diamond-open"}
_TONES = {"same": "muted"}
_MAX_NAMED = 3
_WIDEST, _NARROWEST = 1.0, 0.1
"""The chart reaches at most to twice as much, and at least to a tenth more."""


def write_comparison(result: Any, path: str | os.PathLike[str]) -> Path:
    """Write the page of a comparison, atomically, and return its path."""
    at = Path(path)
    write_page(at, render_comparison(comparison_document(result)))
    return at


def render_comparison(compared: ComparisonDocument) -> str:
    """The page as one HTML document."""
    outcome, icon = _LOOKS.get(compared.outcome, _DOUBTFUL)
    chart = _changes(compared)
    return render(
        "comparison.html.j2",
        {"changes": chart},
        outcome=outcome,
        icon=icon,
        title=compared.outcome,
        sentence=_sentence(compared),
        baseline=compared.baseline,
        run=compared.run,
        threshold=f"{compared.threshold * 100:g} %",
        doubts=list(dict.fromkeys(compared.doubts)),
        notes=compared.notes,
        rows=[_row(one) for one in compared.metrics],
        chart_height=120 + 30 * sum(one.change is not None for one in compared.metrics),
    )


def _sentence(compared: ComparisonDocument) -> str:
    of = f"of {formats.plural(len(compared.metrics), 'metric')}"
    for outcome, verb in (("worse", "worse"), ("cannot say", "in doubt"), ("better", "better")):
        found = [one for one in compared.metrics if one.outcome == outcome]
        if found and compared.outcome == outcome:
            named = ", ".join(_named(one) for one in found[:_MAX_NAMED])
            more = f" and {len(found) - _MAX_NAMED} more" if len(found) > _MAX_NAMED else ""
            return f"{len(found)} {of} {'is' if len(found) == 1 else 'are'} {verb}: {named}{more}."
    return f"None {of} differs by more than {compared.threshold * 100:g} % beyond chance."


def _named(one: ComparedMetric) -> str:
    change = "" if one.change is None else f" ({_percent(one.change)})"
    return f"{one.metric.replace('_', ' ')}{change}"


def _changes(compared: ComparisonDocument) -> Chart | None:
    """One mark per metric with the interval of its change, zero in the middle, changes below the threshold shaded."""
    drawn = [one for one in compared.metrics if one.change is not None and math.isfinite(one.change)][::-1]
    if not drawn:
        return None
    ends = [abs(end) for one in drawn for end in (one.change, one.change_low, one.change_high) if end is not None]
    reach = min(max([_NARROWEST, 2 * compared.threshold, *ends]) * 1.1, _WIDEST)
    cut = any(end > reach for end in ends)
    traces = []
    for outcome in dict.fromkeys(one.outcome for one in reversed(drawn)):
        look, _ = _LOOKS.get(outcome, _DOUBTFUL)
        mine = [(index, one) for index, one in enumerate(drawn) if one.outcome == outcome]
        x = [_within(one.change, reach) or 0.0 for _, one in mine]
        lows = [_distance(at, _within(one.change_low, reach)) for at, (_, one) in zip(x, mine, strict=True)]
        highs = [_distance(at, _within(one.change_high, reach)) for at, (_, one) in zip(x, mine, strict=True)]
        bars = {"type": "data", "symmetric": False, "array": highs, "arrayminus": lows, "thickness": 1.5, "width": 5}
        traces.append({
            "type": "scatter", "mode": "markers", "name": outcome, "x": x, "y": [index for index, _ in mine],
            "error_x": bars,
            "line": {}, "marker": {"size": 9, "symbol": _SYMBOLS[look]}, "meta": {"tone": _TONES.get(look, look)},
            "text": [plot_name(f"{one.metric} {_percent(one.change or 0.0)}{_interval(one)}", 80) for _, one in mine],
            "hovertemplate": "%{text}<extra></extra>",
        })  # fmt: skip
    names = [plot_name(one.metric.replace("_", " "), 26) for one in drawn]
    layout = {
        "xaxis": {
            "title": {"text": "change against the baseline"}, "tickformat": "+~%", "range": [-reach, reach],
            "fixedrange": True, "zeroline": True, "zerolinewidth": 2, "nticks": 7, "tickangle": 0,
        },
        "yaxis": {
            "title": {"text": ""}, "tickvals": list(range(len(drawn))), "ticktext": names, "fixedrange": True,
            "range": [-0.7, len(drawn) - 0.3], "zeroline": False,
        },
        "shapes": [band(-compared.threshold, compared.threshold)],
        "hovermode": "closest",
    }  # fmt: skip
    bars_are = f"Bars are {compared.confidence * 100:.3g} % intervals."
    notes = [f"{bars_are} Shaded: up to {compared.threshold * 100:g} %, which does not count."]
    if cut:
        notes.append("Bars that would leave the chart are cut off; the table has their ends.")
    label = "; ".join(f"{one.metric} {_percent(one.change or 0.0)}: {one.outcome}" for one in reversed(drawn))
    return Chart({"data": traces, "layout": layout}, f"Changes against the baseline: {label}.", notes)


def _within(value: float | None, reach: float) -> float | None:
    return None if value is None else float(f"{min(max(value, -reach), reach):.6g}")


def _distance(at: float, end: float | None) -> float | None:
    """How long a bar is; None without an interval, for no bar at all."""
    return None if end is None else abs(end - at)


def _row(one: ComparedMetric) -> dict[str, object]:
    look, icon = _LOOKS.get(one.outcome, _DOUBTFUL)
    return {
        "metric": one.metric.replace("_", " "),
        "baseline": _side(one.unit, one.baseline),
        "run": _side(one.unit, one.run),
        "change": formats.NOTHING if one.change is None else _percent(one.change),
        "interval": _interval(one).removeprefix(", "),
        "outcome": one.outcome,
        "look": look,
        "icon": icon,
        "reason": one.reason,
        "basis": one.basis,
    }


def _side(unit: str, side: SideValue) -> tuple[str, str]:
    """The value, and its interval."""
    if side.value is None:
        return formats.NOTHING, ""
    value = _value(unit, side.value)
    if side.low is None or side.high is None:
        if len(side.runs) < 2:
            return value, ""
        return value, f"{_value(unit, min(side.runs))} to {_value(unit, max(side.runs))} in {len(side.runs)} runs"
    return value, f"{_value(unit, side.low)} to {_value(unit, side.high)}"


def _value(unit: str, value: float) -> str:
    if unit == "ns":
        return formats.nanoseconds(value)
    if unit == "share":
        return f"{value * 100:.4g} %" if value else "none"
    return formats.rate(value)


def _interval(one: ComparedMetric) -> str:
    if one.change_low is None or one.change_high is None:
        return ""
    return f", {_percent(one.change_low)} to {_percent(one.change_high)}"


def _percent(change: float) -> str:
    """With a sign; as a factor where a percentage would be hard to read."""
    if change > 9:
        return f"×{min(change + 1, 1e6):,.0f}" + (" or more" if change >= 1e6 else "")
    return f"{change * 100:+.1f} %".replace("-", "−")
