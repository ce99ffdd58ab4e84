"""How does the result of a search become one page?

Rate against latency with the bracket between the highest rate that passes and the lowest that fails, the rates in the
order in which they were tried, and every try with its reasons. A function of the result; the only other thing that is
read is the manifest of the first try, for the sentence on what was measured. Judges nothing.
"""

import math
import os
from pathlib import Path
from statistics import median
from urllib.parse import quote

from crescendo.model.errors import ConfigError
from crescendo.model.metrics import find_metric
from crescendo.model.verdict import Bound, Outcome
from crescendo.record.manifest import read_manifest
from crescendo.record.recorded_experiment import experiment_of
from crescendo.record.search_result import SearchResult, Try, read_search_result
from crescendo.report import formats
from crescendo.report.document import render
from crescendo.report.page_file import write_page
from crescendo.report.plots.log_axis import log_axis, rate_axis
from crescendo.report.plots.outcome_marks import outcome_marks
from crescendo.report.plots.time_axis import Chart, band, line
from crescendo.report.sections.headline import ICONS, HeadlineTile
from crescendo.report.sections.subject import Subject, subject

SEARCH_PAGE = "search.html"
_TAIL = "p99"
_DRAWN = ((_TAIL, "orange", "solid"), ("p50", "blue", "7px,4px"))
_NS_PER_S = 1e9


def write_search_page(directory: str | os.PathLike[str]) -> Path:
    """Write the page of a search next to its result, atomically, and return its path."""
    at = Path(directory)
    result = read_search_result(at)
    path = at / SEARCH_PAGE
    write_page(path, render_search(result, _measured(at, result)))
    return path


def render_search(result: SearchResult, measured: Subject | None = None) -> str:
    """The page as one HTML document."""
    answer = result.answer
    outcome = Outcome.INVALID
    if answer is not None and answer.complete:
        outcome = Outcome.FAIL if answer.rate is None else Outcome.PASS
    return render(
        "search.html.j2",
        {"tradeoff": _tradeoff(result), "order": _order(result)},
        name=result.name,
        subject=measured,
        outcome=str(outcome),
        icon=ICONS[outcome],
        title=_title(result),
        sentence=_sentence(result),
        tiles_shown=_tiles(result),
        limits=[(metric.replace("_", " "), formats.bound(limit)) for metric, limit in result.limits.items()],
        tries=[_row(number, tried) for number, tried in enumerate(result.tries, 1)],
        kind=next((tried.latency_kind for tried in result.tries if tried.latency_kind), ""),
    )


def _measured(directory: Path, result: SearchResult) -> Subject | None:
    """What was measured, without the rate, which differs from try to try. None if no try can be read."""
    run = next((tried.run for tried in result.tries if tried.run), "")
    try:
        manifest = read_manifest(directory / Path(run).name) if run else None
        return None if manifest is None else subject(manifest, experiment_of(manifest), with_rate=False)
    except ConfigError:
        return None


def _title(result: SearchResult) -> str:
    answer = result.answer
    if answer is None or not answer.complete:
        return "unknown"
    if answer.rate is None:
        return f"under {formats.rate(answer.above or 0)} msg/s"
    return f"{'at least ' if answer.above is None else ''}{formats.rate(answer.rate)} msg/s"


def _sentence(result: SearchResult) -> str:
    answer = result.answer
    if answer is None:
        return "The search was still in progress."
    if not answer.complete:
        known = [
            f"{formats.rate(answer.rate)} msg/s passes" if answer.rate else "",
            f"{formats.rate(answer.above)} msg/s fails" if answer.above else "",
        ]
        return f"No answer: {answer.reason}. {', '.join(filter(None, known)) or 'Nothing is confirmed'}."
    if answer.rate is None or answer.above is None:
        return f"{answer.reason[:1].upper()}{answer.reason[1:]}; confirmed by {result.confirm} tries."
    gap = answer.above / answer.rate - 1
    return (
        f"The highest sustainable rate is between {formats.rate(answer.rate)} and {formats.rate(answer.above)} msg/s"
        f" ({formats.percent(gap)} apart); both ends are confirmed by {result.confirm} tries."
    )


def _tiles(result: SearchResult) -> list[HeadlineTile]:
    answer, tries = result.answer, result.tries
    tiles = []
    for label, rate in (
        ("Highest rate that passes", answer and answer.rate),
        ("Lowest rate that fails", answer and answer.above),
    ):
        at = [tried for tried in tries if tried.rate == rate]
        note = "1 try" if len(at) == 1 else f"{len(at)} tries"
        if rate:
            tiles.append(HeadlineTile(label, formats.rate(rate), "msg/s", f"{note} at this rate"))
        else:
            tiles.append(HeadlineTile(label, formats.NOTHING, note="none was confirmed"))
    invalid = sum(tried.outcome is Outcome.INVALID for tried in tries)
    tiles.append(HeadlineTile("Tries", formats.count(len(tries)), note=f"{invalid} of them invalid" if invalid else ""))
    best = [tried for tried in tries if answer and tried.rate == answer.rate and tried.percentiles_ns.get(_TAIL)]
    if best:
        worst_ns = max(tried.percentiles_ns[_TAIL] or 0 for tried in best)
        value, _, unit = formats.nanoseconds(worst_ns).partition(" ")
        tiles.append(HeadlineTile(f"{best[0].latency_kind.capitalize()} p99 there", value, unit, "in the slowest try"))
    return tiles


def _tradeoff(result: SearchResult) -> Chart | None:
    """Latency against the offered rate: lines through the medians of the valid tries, and a mark per try."""
    measured = [tried for tried in result.tries if (tried.percentiles_ns.get(_TAIL) or 0) > 0]
    if not measured:
        return None
    traces = []
    for name, tone, dash in _DRAWN:
        by_rate: dict[float, list[int]] = {}
        for tried in measured:
            if tried.outcome is not Outcome.INVALID and (value := tried.percentiles_ns.get(name) or 0) > 0:
                by_rate.setdefault(tried.rate, []).append(value)
        points = [(rate, median(values) / _NS_PER_S) for rate, values in sorted(by_rate.items())]
        if points:
            at, middle = zip(*points, strict=True)
            traces.append(line(name, at, middle, tone, hover="%{x:,.0f} msg/s: %{y:.3s}s", dash=dash))
    for outcome in Outcome:
        mine = [tried for tried in measured if tried.outcome is outcome]
        if mine:
            x = [tried.rate for tried in mine]
            y = [(tried.percentiles_ns[_TAIL] or 0) / _NS_PER_S for tried in mine]
            hover = "%{x:,.0f} msg/s: p99 %{y:.3s}s"
            traces.append(outcome_marks(outcome, x, y, hover=hover))
    rates = [tried.rate for tried in measured]
    for statistic, limit_s, text in _latency_limits(result, measured[0].latency_kind):
        bound = line(f"limit {statistic} {text}", [min(rates), max(rates)], [limit_s, limit_s], "fail",
                     hover="%{y:.3s}s", dash="9px,3px,2px,3px")  # fmt: skip
        traces.append(bound | {"mode": "lines"})
    layout = {
        "xaxis": rate_axis("offered rate", rates),
        "yaxis": log_axis(f"{measured[0].latency_kind} latency", traces, "y"),
        "shapes": _bracket(result),
        "hovermode": "closest",
    }
    notes = ["Each mark is the p99 of one try; the lines go through the medians of the valid tries at each rate."]
    if layout["shapes"]:
        notes.append("Shaded: between the highest rate that passes and the lowest that fails.")
    label = f"Latency against the offered rate, {formats.rate(min(rates))} to {formats.rate(max(rates))} msg/s. "
    return Chart({"data": traces, "layout": layout}, label + _sentence(result), notes)


def _order(result: SearchResult) -> Chart | None:
    """Which rate was tried when, and how it ended."""
    if not result.tries:
        return None
    numbers = list(range(1, len(result.tries) + 1))
    traces = [
        line("rate", numbers, [tried.rate for tried in result.tries], "muted", hover="%{y:,.0f} msg/s", dash="solid")
    ]
    traces[0] |= {"mode": "lines", "showlegend": False, "hoverinfo": "skip"}
    for outcome in Outcome:
        mine = [number for number in numbers if result.tries[number - 1].outcome is outcome]
        if mine:
            y = [result.tries[number - 1].rate for number in mine]
            traces.append(
                outcome_marks(outcome, [float(number) for number in mine], y, hover="try %{x}: %{y:,.0f} msg/s")
            )
    shapes = [shape | {"xref": "paper", "yref": "y", "x0": 0, "x1": 1, "y0": shape["x0"], "y1": shape["x1"]}
              for shape in _bracket(result)]  # fmt: skip
    x_axis = {
        "title": {"text": "try"},
        "tickformat": "d",
        "range": [0.5, len(numbers) + 0.5],
        "dtick": max(len(numbers) // 12, 1),
    }
    layout = {
        "xaxis": x_axis | {"fixedrange": True},
        "yaxis": rate_axis("offered rate", [tried.rate for tried in result.tries]),
        "shapes": shapes,
        "hovermode": "closest",
    }
    described = "; ".join(f"{formats.rate(tried.rate)} {tried.outcome}" for tried in result.tries)
    return Chart({"data": traces, "layout": layout}, f"Offered rates in the order of the tries: {described}.", [])


def _bracket(result: SearchResult) -> list[dict[str, object]]:
    answer = result.answer
    if answer is None or answer.rate is None or answer.above is None:
        return []
    return [band(answer.rate, answer.above) | {"name": "bracket"}]


def _latency_limits(result: SearchResult, kind: str) -> list[tuple[str, float, str]]:
    found = []
    for name, text in result.limits.items():
        metric = find_metric(name)
        if metric is None or metric.latency is None or metric.latency.kind != kind:
            continue
        limit_s = Bound(text).limit(0.0) / _NS_PER_S
        if limit_s > 0 and math.isfinite(limit_s):
            found.append((metric.latency.statistic, limit_s, formats.bound(text)))
    return found


def _row(number: int, tried: Try) -> dict[str, object]:
    growth = tried.backlog_growth
    cells = [
        formats.rate(tried.rate),
        formats.NOTHING if tried.sustained is None else formats.rate(tried.sustained),
        *(formats.nanoseconds(tried.percentiles_ns.get(name)) for name in ("p50", "p99")),
        formats.NOTHING if growth is None else f"{growth:+,.0f}/s".replace("-", "−"),
    ]
    link = f"{quote(tried.run)}/report.html" if tried.run else ""
    return {
        "number": number, "cells": cells, "outcome": str(tried.outcome), "icon": ICONS[tried.outcome],
        "reasons": tried.reasons, "link": link,
    }  # fmt: skip
