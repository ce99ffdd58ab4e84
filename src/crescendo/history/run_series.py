"""What happened to each series of comparable runs?

Groups runs by their fingerprint, in the order of their starts, and finds the change points of every metric, as a gate
does, over all of the history instead of the part since the baseline. Runs whose verdict is invalid are shown and never
used. Reads and writes no files.
"""

import math
import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from crescendo.history.baseline_file import Baselines
from crescendo.history.regression_gate import LEAST_SHARE, more_is_better
from crescendo.history.run_history import HistoricRun
from crescendo.model.verdict import Outcome
from crescendo.pipeline.change_points.e_divisive import change_points
from crescendo.report.data.history_document import (
    HistoryChange,
    HistoryDocument,
    HistoryMetric,
    HistoryRun,
    HistorySeries,
)
from crescendo.report.page import REPORT

LONGEST = 500
"""Change points are looked for in windows of this many runs: the method takes time by the square of the length."""


def history_of(
    runs: Sequence[HistoricRun], known: Baselines, threshold: float, *, place: str, beside: Path
) -> HistoryDocument:
    """The document of the page. Changes below half of the threshold, a fraction, are not listed."""
    grouped: defaultdict[str, list[HistoricRun]] = defaultdict(list)
    for run in sorted(runs, key=lambda each: (each.started_ns, each.name)):
        grouped[run.fingerprint].append(run)
    found = [_series(mine, known, threshold, beside) for mine in grouped.values()]
    return HistoryDocument(place, sorted(found, key=lambda each: (each.experiment, each.fingerprint)))


def _series(runs: list[HistoricRun], known: Baselines, threshold: float, beside: Path) -> HistorySeries:
    print_of = runs[0].fingerprint
    baseline = known.baselines.get(print_of)
    kept = {run.name for run in baseline.runs} if baseline is not None else set()
    names = dict.fromkeys(name for run in runs for name in run.values)
    return HistorySeries(
        print_of,
        runs[-1].experiment,
        runs[-1].machine,
        [
            HistoryRun(run.name, run.started_ns, str(run.outcome), _link(run, beside), run.name in kept)
            for run in runs
        ],
        [_metric(name, runs, known, threshold, kept) for name in names],
    )  # fmt: skip


def _link(run: HistoricRun, beside: Path) -> str:
    page = Path(run.path) / REPORT
    return quote(os.path.relpath(page, beside)) if run.path and page.exists() else ""


def _metric(name: str, runs: list[HistoricRun], known: Baselines, threshold: float, kept: set[str]) -> HistoryMetric:
    positions = [at for at, run in enumerate(runs) if run.outcome is not Outcome.INVALID and name in run.values]
    values = [runs[at].values[name] for at in positions]
    changes = []
    for index, before, after in _changes([math.log(value) for value in values]):
        moved = math.expm1(after - before)
        if abs(moved) < LEAST_SHARE * threshold:
            continue
        at = positions[index]
        state, note = known.review(runs[at].fingerprint, name, runs[at].name)
        worse = moved < 0 if more_is_better(name) else moved > 0
        changes.append(HistoryChange(runs[at].name, at, math.exp(before), math.exp(after), moved, worse, state, note))
    base = [runs[at].values[name] for at in positions if runs[at].name in kept]
    return HistoryMetric(name, positions, values, changes, (min(base), max(base)) if base else None)


def _changes(series: list[float]) -> list[tuple[int, float, float]]:
    """Index of the first value after each change, and the levels on both sides.

    A long series is searched in windows that overlap by half, and a change is taken from the window in whose middle it
    lies, so that each is seen with enough runs on both sides.
    """
    if len(series) <= LONGEST:
        return [(each.index, each.before, each.after) for each in change_points(series)]
    found: dict[int, tuple[int, float, float]] = {}
    step = LONGEST // 2
    starts = range(0, len(series) - step, step)
    for start in starts:
        first, last = start == 0, start + step >= len(series) - step
        for each in change_points(series[start : start + LONGEST]):
            inside = (first or each.index >= step // 2) and (last or each.index < LONGEST - step // 2)
            if inside:
                found[start + each.index] = (start + each.index, each.before, each.after)
    return [found[at] for at in sorted(found)]
