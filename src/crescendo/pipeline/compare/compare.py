"""Is a run better or worse than its baseline, or is the evidence inconclusive?

Compares rates, percentiles and losses of two sides. The interval of each change decides, against the threshold; all
intervals hold at once with 95 %, however many metrics are compared. Evidence that is doubtful, or that own delay could
explain, decides nothing. Reads no files: `runs` does. docs/compare.md explains the method.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import Struct

from crescendo.model.errors import ConfigError
from crescendo.model.metrics import (
    LATENCY_KINDS,
    LOST,
    RATE,
    SETTLE,
    LatencyStatistic,
    Metric,
    latency_metric,
    metric_of,
    split_metric,
)
from crescendo.model.units import format_ns
from crescendo.pipeline.compare.changes import (
    LEAST_REPEATS,
    MOST_REPEATS,
    REPEATS,
    MeasuredValue,
    RelativeChange,
    may_be_order,
    relative_change,
    typical,
)
from crescendo.pipeline.compare.comparability import comparison_notes, doubts_of, slow_generators
from crescendo.pipeline.compare.explained_changes import explained, latency_without, quotient, rate_without
from crescendo.pipeline.compare.intervals import each_confidence
from crescendo.pipeline.compare.loss_test import loss_test
from crescendo.pipeline.compare.outcomes import Change, format_change, format_span, outcome_of, overall
from crescendo.pipeline.compare.runs import RunGroup
from crescendo.pipeline.compare.side_results import RunResults, measured_percentiles, measured_rates, results_of

__all__ = ["JUDGED", "Change", "Compared", "Comparison", "Value", "compare"]

JUDGED = ("p50", "p90", "p99", "p99.9")
"""The percentiles that are compared unless others are asked for."""


class Value(Struct, frozen=True):
    """The value of one side. A single run has a 95 % interval, or a reason why not; repeats have one value each."""

    value: float | None
    low: float | None = None
    high: float | None = None
    no_interval: str = ""
    runs: list[float] = []


class Compared(Struct, frozen=True):
    """One metric. `change` and its interval are relative to the baseline: 0.1 is 10 % more."""

    metric: str
    unit: str
    baseline: Value
    run: Value
    outcome: Change
    reason: str
    basis: str = ""  # repeats or runs: what the interval of the change is based on
    change: float | None = None
    change_low: float | None = None
    change_high: float | None = None


class Comparison(Struct, frozen=True):
    """The result: every metric, the overall outcome, doubts and notes."""

    baseline: list[str]
    run: list[str]
    threshold: float
    outcome: Change
    metrics: list[Compared]
    doubts: list[str]
    notes: list[str]
    confidence: float = 0.95  # of each interval of a change, so that all of them hold at once with 95 %


@dataclass(frozen=True)
class _Sides:
    """Both sides of one metric, and by what they are judged."""

    metric: str
    before: list[RunResults]
    after: list[RunResults]
    threshold: float
    confidence: float
    doubts: list[str]  # about every number
    slow: list[str]  # generators, which do not lose messages
    clock_bound_ns: int


def compare(baseline: RunGroup, run: RunGroup, threshold: float, metrics: Sequence[str] = ()) -> Comparison:
    """Compare these metrics, or all that both sides have. `threshold` is a fraction: 0.05 is 5 %."""
    doubts = [*doubts_of(baseline), *doubts_of(run)]
    slow = [*slow_generators(baseline), *slow_generators(run)]
    names = list(dict.fromkeys(metrics)) or _common_metrics(results_of(baseline), results_of(run))
    confidence = each_confidence(len(names))
    compared = []
    for name in names:
        slice_name, metric = split_metric(name)[0], _comparable(name)
        sides = _Sides(
            metric=name,
            before=results_of(baseline, slice_name),
            after=results_of(run, slice_name),
            threshold=threshold,
            confidence=confidence,
            doubts=doubts,
            slow=slow,
            clock_bound_ns=max(baseline.clock_bound_ns, run.clock_bound_ns),
        )
        compared.append(_compared(metric, sides))
    return Comparison(
        baseline=[repeat.name for repeat in baseline.repeats],
        run=[repeat.name for repeat in run.repeats],
        threshold=threshold,
        outcome=overall([metric.outcome for metric in compared]),
        metrics=compared,
        doubts=doubts + slow,
        notes=comparison_notes(baseline, run),
        confidence=confidence,
    )


def _common_metrics(before: list[RunResults], after: list[RunResults]) -> list[str]:
    """A percentile that one of the runs withholds, or did not measure, is left out."""
    latencies = [
        latency_metric(kind, name).name
        for kind in LATENCY_KINDS
        for name in JUDGED
        if measured_percentiles(before, kind, name) and measured_percentiles(after, kind, name)
    ]
    return [RATE, *latencies, LOST]


def _comparable(name: str) -> Metric:
    """Refuses what is not compared: counts other than losses, means and extremes."""
    try:
        metric = metric_of(name)
    except ValueError as err:
        raise ConfigError(f"--metric {name}: {err}") from None
    percentile = metric.latency is not None and metric.latency.percent is not None
    if metric.name not in {RATE, LOST} and not percentile:
        raise ConfigError(f"--metric {name}: only {RATE}, {LOST} and percentiles such as response_p99 are compared")
    return metric


def _compared(metric: Metric, sides: _Sides) -> Compared:
    if metric.latency is not None:
        return _latency(metric.latency, sides)
    return _rate(sides) if metric.name == RATE else _lost(sides)


def _rate(sides: _Sides) -> Compared:
    before, after = measured_rates(sides.before), measured_rates(sides.after)
    if before is None or after is None:
        return Compared(
            sides.metric, "msg/s", Value(None), Value(None), Change.UNCLEAR, "no measure phase was recorded"
        )
    factor = quotient(rate_without(sides.after), rate_without(sides.before))
    return _judged(sides, "msg/s", before, after, [*sides.doubts, *sides.slow], factor, more_is_better=True)


def _latency(of: LatencyStatistic, sides: _Sides) -> Compared:
    before, after = (measured_percentiles(side, of.kind, of.statistic) for side in (sides.before, sides.after))
    if before is None or after is None:
        reason = "not measured, or withheld for lack of samples, in at least one run"
        return Compared(sides.metric, "ns", Value(None), Value(None), Change.UNCLEAR, reason)
    one, other = typical(before, after)
    doubts = [*sides.doubts, *sides.slow]
    if of.kind != SETTLE and one != other and sides.clock_bound_ns > abs(other - one):
        doubts.append(f"the clocks may be {format_ns(sides.clock_bound_ns)} apart, more than the difference")
    without = [latency_without(side, of.kind, of.statistic) for side in (sides.before, sides.after)]
    return _judged(sides, "ns", before, after, doubts, quotient(without[1], without[0]), more_is_better=False)


def _judged(
    sides: _Sides,
    unit: str,
    before: list[MeasuredValue],
    after: list[MeasuredValue],
    doubts: list[str],
    factor: float,
    *,
    more_is_better: bool,
) -> Compared:
    """`factor` is how the change would be scaled without own delay."""
    values = typical(before, after)
    one, other = _shown(values[0], before), _shown(values[1], after)
    change = relative_change(before, after, sides.confidence)
    if change is None:
        why = before[0].no_interval or after[0].no_interval
        reason = "; ".join(doubts) or f"no interval: {why or 'the runs do not show how much it varies'}"
        moved = values[1] / values[0] - 1 if values[0] > 0 else None
        return Compared(sides.metric, unit, one, other, Change.UNCLEAR, reason, change=moved)
    low, high = change.ratio.low - 1, change.ratio.high - 1
    outcome = outcome_of(low, high, sides.threshold, more_is_better=more_is_better)
    reason = _reason(change, outcome, sides.threshold)
    if outcome in {Change.BETTER, Change.WORSE} and may_be_order(before, after):
        outcome = Change.UNCLEAR
        reason = (
            f"{reason}; but {len(before)} and {len(after)} runs may be in such an order by chance: {LEAST_REPEATS} "
            "repeats per side are needed for a claim"
        )
    if outcome is not Change.UNCLEAR and (
        ours := explained(change.ratio, factor, sides.threshold, more_is_better=more_is_better)
    ):
        doubts = [*doubts, ours]
    if doubts:
        outcome, reason = Change.UNCLEAR, "; ".join(doubts)
    return Compared(sides.metric, unit, one, other, outcome, reason, change.basis, change.ratio.value - 1, low, high)


def _shown(value: float, side: list[MeasuredValue]) -> Value:
    if len(side) > 1:
        return Value(value, runs=[each.value for each in side])
    return Value(value, side[0].low, side[0].high, side[0].no_interval, runs=[value])


def _reason(change: RelativeChange, outcome: Change, threshold: float) -> str:
    low, high = change.ratio.low - 1, change.ratio.high - 1
    span = format_span(low, high)
    if outcome is Change.SAME:
        return f"within {threshold:.0%}: {span}"
    if outcome is not Change.UNCLEAR:
        return f"{format_change(change.ratio.value - 1)}, {span}"
    return f"{span}: too wide for a threshold of {threshold:.0%}; {_cure(change, threshold)}"


def _cure(change: RelativeChange, threshold: float) -> str:
    if change.basis != REPEATS:
        return "repeat both sides"
    needed = change.repeats_needed(threshold)
    if needed is None:
        return f"more than {MOST_REPEATS} repeats per side would be needed"
    return f"about {needed} repeats per side would be needed"


def _lost(sides: _Sides) -> Compared:
    counts = [
        (sum(each.total.lost for each in side), sum(each.total.owed for each in side))
        for side in (sides.before, sides.after)
    ]
    (lost_before, owed_before), (lost_after, owed_after) = counts
    before, after = (Value(lost / owed if owed else None) for lost, owed in counts)
    if not owed_before or not owed_after:
        return Compared(sides.metric, "share", before, after, Change.UNCLEAR, "one of the sides sent no messages")
    outcome, reason = loss_test(lost_before, owed_before, lost_after, owed_after, sides.threshold, sides.confidence)
    arriving = sum(each.total.undelivered for side in (sides.before, sides.after) for each in side)
    doubts = sides.doubts
    if arriving:
        doubts = [*doubts, f"{arriving:,} messages were still arriving when the drain ended; make phases.drain longer"]
    if doubts:
        outcome, reason = Change.UNCLEAR, "; ".join(doubts)
    moved = after.value / before.value - 1 if before.value and after.value is not None else None
    return Compared(sides.metric, "share", before, after, outcome, reason, change=moved)
