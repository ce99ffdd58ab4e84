"""Did a change make the system worse?

Two questions per metric: do the runs differ from the baseline by more than the threshold, and did the series of all
runs since the baseline change? The answer names the first bad run. Runs whose verdict is invalid are never used. The
outcomes are those of a comparison: better, worse, no difference, cannot say. Reads no files.
"""

import math
from collections.abc import Sequence
from statistics import median

from msgspec import Struct

from crescendo.history.baseline_file import DISMISSED, Baseline, BaselineRun, Baselines
from crescendo.history.run_history import HistoricRun
from crescendo.model.errors import ConfigError
from crescendo.model.metrics import RATE, format_value, split_metric
from crescendo.model.verdict import Outcome
from crescendo.pipeline.change_points.e_divisive import change_points
from crescendo.pipeline.compare.changes import LEAST_REPEATS, MeasuredValue, relative_change
from crescendo.pipeline.compare.intervals import each_confidence
from crescendo.pipeline.compare.outcomes import Change, format_change, format_span, outcome_of, overall

LEAST_SHARE = 0.5
"""A change of the series counts from this share of the threshold: it rests on more runs than a comparison does."""


class GateMetric(Struct, frozen=True):
    """One metric: both medians, the change with its interval, and since when it is bad."""

    metric: str
    outcome: Change
    reason: str
    baseline: float | None = None
    run: float | None = None
    change: float | None = None
    change_low: float | None = None
    change_high: float | None = None
    first_bad: str = ""
    dismissed: bool = False
    series: list[tuple[str, float]] = []


class GateResult(Struct, frozen=True):
    """The answer of a gate."""

    fingerprint: str
    baseline: list[str]
    runs: list[str]
    threshold: float
    outcome: Change
    metrics: list[GateMetric]
    notes: list[str]


def judge_runs(
    runs: Sequence[HistoricRun], earlier: Sequence[HistoricRun], known: Baselines, threshold: float
) -> GateResult:
    """Judge runs of one fingerprint. threshold: a fraction, 0.05 is 5 %."""
    baseline = known.baselines.get(runs[0].fingerprint)
    if baseline is None:
        raise ConfigError(
            f"{runs[0].name}: there is no baseline with the fingerprint {runs[0].fingerprint}, which stands for this "
            "experiment on this class of machine; set one: crescendo baseline set RUN…"
        )
    sound = [run for run in runs if run.outcome is not Outcome.INVALID]
    notes = [f"{run.name} is invalid and was not used" for run in runs if run.outcome is Outcome.INVALID]
    confidence = each_confidence(len(baseline.metrics))
    judged = [_judged(name, sound, earlier, baseline, known, threshold, confidence) for name in baseline.metrics]
    failed = [run.name for run in sound if run.outcome is Outcome.FAIL]
    outcomes = [each.outcome for each in judged] or [Change.UNCLEAR]
    if failed:
        notes.append(f"{', '.join(failed)} failed their checks")
        outcomes.append(Change.WORSE)
    return GateResult(
        runs[0].fingerprint, [run.name for run in baseline.runs], [run.name for run in sound], threshold,
        overall(outcomes), judged, notes,
    )  # fmt: skip


def baseline_of(runs: Sequence[HistoricRun], note: str) -> Baseline:
    """A baseline from these runs. Refuses fewer than three sound ones."""
    sound = [run for run in runs if run.outcome is not Outcome.INVALID]
    if len(sound) < LEAST_REPEATS:
        raise ConfigError(
            f"a baseline needs {LEAST_REPEATS} or more runs that are not invalid, and there are {len(sound)}"
        )
    kept = [BaselineRun(run.name, run.started_ns, run.values) for run in sound]
    return Baseline(runs[0].fingerprint, runs[0].experiment, kept, note)


def _judged(
    metric: str,
    runs: Sequence[HistoricRun],
    earlier: Sequence[HistoricRun],
    baseline: Baseline,
    known: Baselines,
    threshold: float,
    confidence: float,
) -> GateMetric:
    before = [run.values[metric] for run in baseline.runs if metric in run.values]
    after = [run.values[metric] for run in runs if metric in run.values]
    compared = _compared(metric, before, after, threshold, confidence)
    series = _series(metric, runs, earlier, baseline)
    first_bad, moved = _first_bad(metric, series, threshold)
    if not first_bad:
        return _with_series(compared, series)
    state, note = known.review(baseline.fingerprint, metric, first_bad)
    dismissed = state == DISMISSED
    outcome = compared.outcome if dismissed else Change.WORSE
    review_note = f", which was {state}{f' ({note})' if note else ''}" if state else ""
    reason = f"{compared.reason}; {format_change(moved)} since {first_bad}{review_note}"
    return _with_series(compared, series, outcome, reason, first_bad, dismissed)


def _compared(metric: str, before: list[float], after: list[float], threshold: float, confidence: float) -> GateMetric:
    if min(len(before), len(after)) < LEAST_REPEATS:
        reason = f"{LEAST_REPEATS} or more runs per side are needed, and there are {len(before)} and {len(after)}"
        return GateMetric(metric, Change.UNCLEAR, reason, _median(before), _median(after))
    found = relative_change(
        [MeasuredValue(each) for each in before], [MeasuredValue(each) for each in after], confidence
    )
    if found is None:
        return GateMetric(metric, Change.UNCLEAR, "the change has no interval", _median(before), _median(after))
    low, high = found.ratio.low - 1, found.ratio.high - 1
    outcome = outcome_of(low, high, threshold, more_is_better=more_is_better(metric))
    return GateMetric(
        metric, outcome, format_span(low, high), _median(before), _median(after), found.ratio.value - 1, low, high
    )


def _with_series(
    compared: GateMetric,
    series: list[tuple[str, float]],
    outcome: Change | None = None,
    reason: str = "",
    first_bad: str = "",
    dismissed: bool = False,
) -> GateMetric:
    return GateMetric(
        compared.metric, outcome or compared.outcome, reason or compared.reason, compared.baseline, compared.run,
        compared.change, compared.change_low, compared.change_high, first_bad, dismissed, series,
    )  # fmt: skip


def _series(
    metric: str, runs: Sequence[HistoricRun], earlier: Sequence[HistoricRun], baseline: Baseline
) -> list[tuple[str, float]]:
    """The runs of the baseline and all since then, each once, by the time of their start."""
    begin_ns = min(run.started_ns for run in baseline.runs)
    points = {run.name: (run.started_ns, run.values.get(metric)) for run in baseline.runs}
    for run in (*earlier, *runs):
        if run.outcome is not Outcome.INVALID and run.started_ns >= begin_ns:
            points[run.name] = (run.started_ns, run.values.get(metric))
    last_ns = max((run.started_ns for run in runs), default=begin_ns)
    ordered = sorted((started, name, value) for name, (started, value) in points.items() if value is not None)
    return [(name, value) for started, name, value in ordered if started <= last_ns]


def _first_bad(metric: str, series: list[tuple[str, float]], threshold: float) -> tuple[str, float]:
    """The first run after the last change, if that was for the worse; empty otherwise."""
    found = change_points([math.log(value) for _, value in series])
    if not found:
        return "", 0.0
    last = found[-1]
    moved = math.expm1(last.after - last.before)
    worse = moved < 0 if more_is_better(metric) else moved > 0
    return (series[last.index][0], moved) if worse and abs(moved) >= LEAST_SHARE * threshold else ("", 0.0)


def more_is_better(metric: str) -> bool:
    return split_metric(metric)[1] == RATE


def _median(values: list[float]) -> float | None:
    return median(values) if values else None


def format_gate_value(metric: str, value: float | None) -> str:
    return "–" if value is None else format_value(metric, value)
