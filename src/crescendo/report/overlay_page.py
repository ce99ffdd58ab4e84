"""How do up to five runs look on the same axes?

Rate, p50 and p99 over time, aligned at the start of the measure phase, and the percentiles of each run, one line per
run; all charts over time zoom together. A table has the numbers of their summaries. Compares nothing: whether a
difference is more than chance is the question of `compare`.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from crescendo.model.errors import ConfigError
from crescendo.model.metrics import LATENCY_KINDS
from crescendo.record.manifest import Manifest, read_manifest
from crescendo.record.stand_in import stand_in_remarks, stand_ins_of
from crescendo.record.summary import Summary, read_summary
from crescendo.record.timeline import MEASURE, RunTimeline
from crescendo.report import formats
from crescendo.report.data.chart_tables import Tables, read_tables
from crescendo.report.document import render
from crescendo.report.page import REPORT
from crescendo.report.page_file import write_page
from crescendo.report.plots import series
from crescendo.report.plots.charts import judged_kind, nines_axis
from crescendo.report.plots.line_styles import LINE_STYLES
from crescendo.report.plots.log_axis import log_axis
from crescendo.report.plots.time_axis import Chart, line, plot_name
from crescendo.report.sections.headline import ICONS

MOST_RUNS = 5


@dataclass(frozen=True)
class OverlaidRun:
    """One run and its letter on the page."""

    letter: str
    name: str
    link: str
    manifest: Manifest
    summary: Summary
    tables: Tables

    @property
    def start_s(self) -> float:
        """When the measure phase begins, in seconds from the start of the first phase."""
        timeline = RunTimeline.of(self.manifest.phases)
        found = [phase for phase in timeline.phases if phase.name == MEASURE]
        return timeline.seconds_since_start(found[0].start_ns) if found else 0.0


def write_overlay(runs: Sequence[str | os.PathLike[str]], path: str | os.PathLike[str]) -> Path:
    """Write one page with two to five analysed runs, atomically, and return its path."""
    if not 2 <= len(runs) <= MOST_RUNS:
        raise ConfigError(f"an overlay has 2 to {MOST_RUNS} runs, and {len(runs)} are named; leave some out")
    at = Path(path)
    write_page(at, render_overlay([Path(run) for run in runs], at.parent))
    return at


def render_overlay(run_dirs: Sequence[Path], beside: Path) -> str:
    """The page as one HTML document. Links to reports are relative to the directory `beside`."""
    runs = [_read(letter, run_dir, beside) for letter, run_dir in zip("ABCDE", run_dirs, strict=False)]
    kind = _shared_kind(runs)
    charts = {
        "time-rate": _rate_chart(runs),
        "time-p50": _latency_chart(runs, kind, "p50"),
        "time-p99": _latency_chart(runs, kind, "p99"),
        "percentiles": _spectrum_chart(runs, kind),
    }
    return render(
        "overlay.html.j2",
        charts,
        kind=kind or "latency",
        runs=[_row(run, kind) for run in runs],
        names=" · ".join(f"{run.letter} {run.name}" for run in runs),
        remarks=stand_in_remarks([stand_ins_of(run.manifest.system) for run in runs]),
    )


def _shared_kind(runs: Sequence[OverlaidRun]) -> str | None:
    """A latency that every run has, because other lines would not be comparable; otherwise that of the first."""
    shared = [kind for kind in LATENCY_KINDS if all(kind in run.tables.over_time for run in runs)]
    return next(iter(shared), None) or next((kind for run in runs if (kind := judged_kind(run.tables))), None)


def _read(letter: str, run_dir: Path, beside: Path) -> OverlaidRun:
    manifest, summary = read_manifest(run_dir), read_summary(run_dir)
    report = run_dir / REPORT
    link = quote(os.path.relpath(report, beside)) if report.exists() else ""
    return OverlaidRun(letter, run_dir.resolve().name, link, manifest, summary, read_tables(run_dir))


def _row(run: OverlaidRun, kind: str | None) -> dict[str, Any]:
    summary = run.summary
    latency = next((each for each in summary.latency if (each.phase, each.kind) == (MEASURE, kind)), None)
    absent = formats.NOTHING if latency is None else formats.WITHHELD
    known = {} if latency is None else latency.percentiles_ns
    values = [known.get(name) for name in ("p50", "p90", "p99", "p99.9")]
    cells = [
        formats.rate(summary.rate.sustained),
        *(absent if value is None else formats.nanoseconds(value) for value in values),
        formats.nanoseconds(None if latency is None else latency.max_ns),
        formats.count(summary.total.lost),
    ]
    outcome = summary.verdict.outcome
    return {
        "letter": run.letter, "name": run.name, "link": run.link, "started": formats.moment(run.manifest.started_ns),
        "outcome": str(outcome), "icon": ICONS[outcome], "cells": cells,
    }  # fmt: skip


def _rate_chart(runs: Sequence[OverlaidRun]) -> Chart | None:
    traces, parts = [], []
    for run, (tone, dash) in zip(runs, LINE_STYLES, strict=False):
        by_role = run.tables.messages
        messages = next((by_role[role] for role in ("receiver", "sender") if role in by_role), None)
        if run.tables.time_bins is None or messages is None:
            continue
        y = series.rates(messages, run.tables.time_bins)
        traces.append(_line(run, y, tone, dash, "%{y:,.0f} msg/s"))
        traces[-1]["line"]["shape"] = "hvh"
        parts.append(f"{run.letter} up to {formats.rate(float(y.max()))}")
    if not traces:
        return None
    top = max(value for trace in traces for value in trace["y"] if value is not None)
    y_axis = {"title": {"text": "messages per second"}, "range": [0, max(top, 1.0) * 1.1], "tickformat": "~s"}
    layout = _time_layout(runs, y_axis | {"fixedrange": True})
    return Chart({"data": traces, "layout": layout}, f"Messages received per second: {'; '.join(parts)}.", [])


def _latency_chart(runs: Sequence[OverlaidRun], kind: str | None, statistic: str) -> Chart | None:
    traces = []
    for run, (tone, dash) in zip(runs, LINE_STYLES, strict=False):
        if run.tables.time_bins is None or kind not in run.tables.over_time:
            continue
        lines = series.latency_lines(run.tables.over_time[kind], run.tables.time_bins)
        y = lines.p50_s if statistic == "p50" else lines.p99_s
        if np.isfinite(y).any():
            traces.append(_line(run, np.where(y > 0, y, np.nan), tone, dash, "%{y:.3s}s"))
    if not traces:
        return None
    layout = _time_layout(runs, log_axis(f"{kind} {statistic}", traces, "y"))
    label = f"{statistic} of {kind} latency per second, one line for each of {len(traces)} runs."
    return Chart({"data": traces, "layout": layout}, label, [])


def _spectrum_chart(runs: Sequence[OverlaidRun], kind: str | None) -> Chart | None:
    traces, furthest = [], 0.0
    for run, (tone, dash) in zip(runs, LINE_STYLES, strict=False):
        if kind not in run.tables.measured:
            continue
        points = series.spectrum(run.tables.measured[kind])
        if points.nines.size:
            y = np.where(points.latency_s > 0, points.latency_s, np.nan)
            traces.append(
                line(run.letter, points.nines, y, tone, hover="%{customdata:.5~f} %: %{y:.3s}s", dash=dash)
                | {"customdata": [round(float(percent), 7) for percent in points.percent]}
            )
            furthest = max(furthest, float(points.nines[-1]))
    if not traces:
        return None
    layout = {"xaxis": nines_axis(furthest), "yaxis": log_axis(f"{kind} latency", traces, "y"), "hovermode": "closest"}
    notes = ["Measure phase. Each line ends where fewer than 10 samples are left beyond it."]
    return Chart({"data": traces, "layout": layout}, f"Percentiles of {kind} latency of each run.", notes)


def _line(run: OverlaidRun, y: Any, tone: str, dash: str, hover: str) -> dict[str, Any]:
    bins = run.tables.time_bins
    x = np.zeros(0) if bins is None else series.bin_centres(bins) - run.start_s
    return line(plot_name(run.letter), x, y, tone, hover=hover, dash=dash)


def _time_layout(runs: Sequence[OverlaidRun], y_axis: dict[str, Any]) -> dict[str, Any]:
    ends = []
    for run in runs:
        if (bins := run.tables.time_bins) is not None:
            first = bins.first_second - run.start_s
            ends += [first, first + bins.bins * bins.bin_seconds]
    x_axis = {"title": {"text": "time since the start of the measure phase"}, "ticksuffix": " s"}
    return {"xaxis": x_axis | {"range": [min(ends), max(ends)]}, "yaxis": y_axis, "hovermode": "x unified"}
