"""How does a history of runs become one page?

For each series of comparable runs: a strip of their verdicts, every metric over the runs with its change points and the
baseline, and the changes in a table. A function of the document. Judges nothing.
"""

import math
import os
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from crescendo.model.campaign import format_metric
from crescendo.model.verdict import Outcome
from crescendo.report import formats
from crescendo.report.data.history_document import HistoryChange, HistoryDocument, HistoryMetric, HistorySeries
from crescendo.report.document import render
from crescendo.report.page_file import write_page
from crescendo.report.plots.outcome_marks import outcome_marks
from crescendo.report.plots.time_axis import Chart, line, plot_name
from crescendo.report.plots.value_axis import value_axis
from crescendo.report.sections.headline import ICONS

MOST_CELLS = 400
"""Of a strip; the latest runs are shown."""
MOST_MARKS = 2_000
"""Of a chart; beyond, the line alone tells as much."""


def write_history_page(document: HistoryDocument, path: str | os.PathLike[str]) -> Path:
    """Write the page of a history, atomically, and return its path."""
    at = Path(path)
    write_page(at, render_history(document))
    return at


def render_history(document: HistoryDocument) -> str:
    """The page as one HTML document."""
    charts: dict[str, Chart | None] = {}
    sections = []
    for number, series in enumerate(document.series):
        drawn = []
        for position, metric in enumerate(series.metrics):
            charts[f"trend-{number}-{position}"] = _trend(series, metric)
            drawn.append((f"trend-{number}-{position}", formats.metric_title(metric.metric)))
        sections.append(_section(number, series, drawn))
    open_changes = [each for section in sections for each in section["changes"] if each["open"]]
    outcome = Outcome.FAIL if open_changes else Outcome.PASS
    runs = sum(len(series.runs) for series in document.series)
    return render(
        "history.html.j2",
        charts,
        name=document.place,
        outcome=str(outcome) if document.series else str(Outcome.INVALID),
        icon=ICONS[outcome] if document.series else ICONS[Outcome.INVALID],
        title=_title(document, len(open_changes)),
        sentence=f"{formats.plural(runs, 'run')}; {len(sections)} series of comparable ones.",
        sections=sections,
    )


def _title(document: HistoryDocument, found: int) -> str:
    if not document.series:
        return "no analysed runs"
    return f"{formats.plural(found, 'change')} for the worse" if found else "no change for the worse"


def _section(number: int, series: HistorySeries, drawn: list[tuple[str, str]]) -> dict[str, Any]:
    outcomes = Counter(run.outcome for run in series.runs)
    shown = series.runs[-MOST_CELLS:]
    counted = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(outcomes.items()))
    changes = [(metric, change) for metric in series.metrics for change in metric.changes]
    changes.sort(key=lambda each: -each[1].position)
    return {
        "id": f"series-{number}",
        "title": series.experiment or series.fingerprint,
        "machine": series.machine,
        "fingerprint": series.fingerprint,
        "counted": f"{formats.plural(len(series.runs), 'run')}: {counted}",
        "left_out": len(series.runs) - len(shown),
        "cells": [
            {
                "outcome": run.outcome, "icon": ICONS[Outcome(run.outcome)], "link": run.link,
                "title": f"{run.name}: {run.outcome}, {formats.moment(run.started_ns)}"
                + (", in the baseline" if run.in_baseline else ""),
                "baseline": run.in_baseline,
            }
            for run in shown
        ],
        "charts": drawn,
        "changes": [_change_row(metric, change) for metric, change in changes],
    }  # fmt: skip


def _change_row(metric: HistoryMetric, change: HistoryChange) -> dict[str, Any]:
    return {
        "metric": formats.metric_title(metric.metric),
        "run": change.run,
        "before": format_metric(metric.metric, change.before),
        "after": format_metric(metric.metric, change.after),
        "change": f"{change.change:+.1%}".replace("-", "−").replace("%", " %"),
        "outcome": "fail" if change.worse else "pass",
        "word": "worse" if change.worse else "better",
        "icon": ICONS[Outcome.FAIL if change.worse else Outcome.PASS],
        "state": change.state,
        "note": change.note,
        "open": change.worse and change.state != "dismissed",
    }


def _trend(series: HistorySeries, metric: HistoryMetric) -> Chart | None:
    """Every run that counts, and the level between two changes."""
    if not metric.values:
        return None
    traces = [_levels(metric)]
    names = [run.name for run in series.runs]
    for outcome in (Outcome.PASS, Outcome.FAIL):
        mine = [
            (at, value)
            for at, value in zip(metric.positions, metric.values, strict=True)
            if series.runs[at].outcome == outcome
        ]
        if mine:
            x, y = [float(at + 1) for at, _ in mine], [value for _, value in mine]
            marks = outcome_marks(outcome, x, y, hover="%{text}")
            marks["marker"]["size"] = 7 if len(metric.values) <= MOST_MARKS else 3
            marks["text"] = [f"{plot_name(names[at])}: {format_metric(metric.metric, value)}" for at, value in mine]
            traces.append(marks)
    count = len(series.runs)
    shapes = []
    if metric.baseline is not None:
        low, high = metric.baseline
        box = {"type": "rect", "xref": "paper", "yref": "y", "x0": 0, "x1": 1, "y0": low, "y1": high}
        shapes.append(box | {"name": "bracket"})
    for change in metric.changes:
        # Half a run wide, between the last good run and the first bad one.
        edge = {"type": "rect", "xref": "x", "yref": "paper", "y0": 0, "y1": 1}
        at = change.position + 1
        shapes.append(edge | {"x0": at - 1, "x1": at, "name": "outage" if change.worse else "gap"})
    drawn = [*metric.values, *(metric.baseline or ())]
    margin = (max(drawn) - min(drawn)) * 0.08 or abs(max(drawn)) * 0.05 or 1.0
    x_axis = {"title": {"text": "run, in the order of their starts"}, "range": [0.5, count + 0.5], "tickformat": "d"}
    layout = {
        "xaxis": x_axis | {"fixedrange": count < 50, "dtick": _whole_step(count)},
        "yaxis": value_axis(metric.metric, drawn) | {"range": [min(drawn) - margin, max(drawn) + margin]},
        "shapes": shapes,
        "hovermode": "closest",
    }
    described = "; ".join(f"{each.change:+.1%} at {each.run}" for each in metric.changes) or "no change"
    notes = ["The line is the mean between two changes."]
    if metric.changes:
        notes.append("Red: a change for the worse." if any(each.worse for each in metric.changes) else "")
    if metric.baseline is not None:
        notes.append("Tinted across: the values of the baseline.")
    return Chart(
        {"data": traces, "layout": layout}, f"{metric.metric} over {count} runs: {described}.", [*filter(None, notes)]
    )


def _levels(metric: HistoryMetric) -> dict[str, Any]:
    """The level of each segment, as steps."""
    x: list[float] = []
    y: list[float] = []
    starts = [0, *(metric.positions.index(each.position) for each in metric.changes), len(metric.positions)]
    for first, last in pairwise(starts):
        level = _mean(metric.values[first:last])
        x += [metric.positions[first] + 0.6, metric.positions[last - 1] + 1.4, math.nan]
        y += [level, level, math.nan]
    trace = line("level", x, y, "blue", hover="%{text}", dash="solid")
    trace["text"] = ["" if math.isnan(value) else format_metric(metric.metric, value) for value in y]
    return trace | {"mode": "lines"}


def _mean(values: Sequence[float]) -> float:
    """Geometric, as the changes are found on logarithms."""
    return math.exp(math.fsum(math.log(value) for value in values) / len(values))


def _whole_step(count: int) -> int:
    return max(10 ** int(math.log10(max(count, 1))) // (1 if count > 50 else 2), 1) if count > 12 else 1
