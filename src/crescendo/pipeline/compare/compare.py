"""Is a run better or worse than its baseline, or is the evidence inconclusive?

Compares rates, percentiles and losses of two sides. A difference counts if its 95 % interval excludes zero and it is
larger than a threshold. Both are required, because with enough messages every difference is significant. The interval
is based on repeats if there are any, else on segments of the single run, else on ranks. Reads no files: `runs` does.
docs/compare.md explains the method.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean

from msgspec import Struct

from crescendo.model.metrics import LATENCY_KINDS, SETTLE
from crescendo.model.units import format_ns
from crescendo.pipeline.compare.comparability import comparison_notes, doubts_of, slow_generators
from crescendo.pipeline.compare.intervals import Interval, difference, mean_interval
from crescendo.pipeline.compare.loss_test import loss_test
from crescendo.pipeline.compare.runs import Repeat, RunGroup

JUDGED = ("p50", "p90", "p99", "p99.9")
RATE, LOST = "rate", "lost"
_MAX_LOG = 700.0  # exp() of more overflows a float


class Change(StrEnum):
    """The outcome of a comparison, for one metric or overall."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "no difference"
    UNCLEAR = "cannot say"


class Value(Struct, frozen=True):
    """A value of one side and its 95 % interval; null if there is none."""

    value: float | None
    low: float | None = None
    high: float | None = None


class Compared(Struct, frozen=True):
    """One metric. `change` and its interval are relative to the baseline: 0.1 is 10 % more."""

    metric: str
    unit: str
    baseline: Value
    run: Value
    outcome: Change
    reason: str
    basis: str = ""  # repeats, segments or ranks: what the interval of the change is based on
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


@dataclass(frozen=True)
class _RelativeChange:
    ratio: Interval
    basis: str


def compare(baseline: RunGroup, run: RunGroup, threshold: float) -> Comparison:
    """Compare all metrics that both sides have. `threshold` is a fraction: 0.05 is 5 %."""
    doubts = [*doubts_of(baseline), *doubts_of(run)]
    slow = [*slow_generators(baseline), *slow_generators(run)]
    metrics = [_rate(baseline, run, threshold, doubts + slow)]
    metrics += _latencies(baseline, run, threshold, doubts + slow)
    metrics.append(_lost(baseline, run, threshold, doubts))
    return Comparison(
        baseline=[repeat.name for repeat in baseline.repeats],
        run=[repeat.name for repeat in run.repeats],
        threshold=threshold,
        outcome=_overall([metric.outcome for metric in metrics]),
        metrics=metrics,
        doubts=doubts + slow,
        notes=comparison_notes(baseline, run),
    )


def _overall(outcomes: list[Change]) -> Change:
    for outcome in (Change.WORSE, Change.UNCLEAR, Change.BETTER):
        if outcome in outcomes:
            return outcome
    return Change.SAME


def _rate(baseline: RunGroup, run: RunGroup, threshold: float, doubts: list[str]) -> Compared:
    def value(side: RunGroup) -> Value:
        rates = [repeat.summary.rate.sustained for repeat in side.repeats]
        spread = mean_interval(rates if len(rates) > 1 else side.repeats[0].rates())
        if not any(repeat.summary.rate.duration_ns for repeat in side.repeats):
            return Value(None)
        mean = sum(rates) / len(rates)
        # The segments of a single run omit partial seconds at its ends: centre the interval on the run's own rate.
        half_width = (spread.high - spread.low) / 2 if spread else None
        return Value(mean) if half_width is None else Value(mean, max(mean - half_width, 0.0), mean + half_width)

    before, after = value(baseline), value(run)
    if before.value is None or after.value is None:
        return Compared(RATE, "msg/s", before, after, Change.UNCLEAR, "no measure phase was recorded")
    change = _change(baseline, run, lambda repeat: repeat.summary.rate.sustained, Repeat.rates)
    return _judge(RATE, "msg/s", before, after, change, threshold, doubts, more_is_better=True)


def _latencies(baseline: RunGroup, run: RunGroup, threshold: float, doubts: list[str]) -> Iterator[Compared]:
    segments = [side.repeats[0].percentiles() if len(side.repeats) == 1 else {} for side in (baseline, run)]
    bound_ns = max(baseline.clock_bound_ns, run.clock_bound_ns)
    for kind in LATENCY_KINDS:
        for name in JUDGED:
            key = (kind, name)
            before, after = baseline.pooled.get(key), run.pooled.get(key)
            if before is None or after is None:
                continue  # withheld, or not measured

            def of_run(repeat: Repeat, kind: str = kind, name: str = name) -> float | None:
                row = repeat.summary.latency_of(kind)
                return None if row is None else row.percentiles_ns[name]

            def of_segments(repeat: Repeat, key: tuple[str, str] = key) -> list[float]:
                return segments[0 if repeat is baseline.repeats[0] else 1].get(key, [])

            change = _change(baseline, run, of_run, of_segments) or _by_ranks(before, after)
            gap_ns = abs(after.value - before.value)
            clock_limited = kind != SETTLE and gap_ns and bound_ns > gap_ns
            apart = f"the clocks may be {format_ns(bound_ns)} apart, more than the difference"
            clock = [apart] if clock_limited else []
            shown = Value(before.value, before.low, before.high), Value(after.value, after.low, after.high)
            yield _judge(f"{kind}_{name}", "ns", *shown, change, threshold, doubts + clock, more_is_better=False)


def _change(
    baseline: RunGroup,
    run: RunGroup,
    of_run: Callable[[Repeat], float | None],
    of_segments: Callable[[Repeat], list[float]],
) -> _RelativeChange | None:
    """The ratio of the two sides with its interval, on a logarithmic scale: doubling and halving are symmetric."""
    alone = len(baseline.repeats) == len(run.repeats) == 1
    sides: list[list[float]] = []
    for side in (baseline, run):
        values = of_segments(side.repeats[0]) if alone else [of_run(repeat) for repeat in side.repeats]
        sides.append([value for value in values if value is not None])
        if not values or len(sides[-1]) < len(values):
            return None
    ratio = _ratio(*sides)
    return None if ratio is None else _RelativeChange(ratio, "segments" if alone else "repeats")


def _ratio(before: list[float], after: list[float]) -> Interval | None:
    if min(before + after) > 0:
        found = difference([math.log(value) for value in before], [math.log(value) for value in after])
        return found and Interval(*(math.exp(min(end, _MAX_LOG)) for end in (found.value, found.low, found.high)))
    # Zero, or a negative time due to clock error, has no logarithm: use the plain difference instead.
    found, usual = difference(before, after), fmean(before)
    if found is None or usual <= 0:
        return None
    return Interval(*(1 + end / usual for end in (found.value, found.low, found.high)))


def _by_ranks(before: Interval, after: Interval) -> _RelativeChange | None:
    """From the intervals of both percentiles: wider than 95 %, and without the variation from run to run."""
    if before.low <= 0 or after.low <= 0:
        return None
    return _RelativeChange(
        Interval(after.value / before.value, after.low / before.high, after.high / before.low), "ranks"
    )  # fmt: skip


def _judge(
    metric: str,
    unit: str,
    before: Value,
    after: Value,
    change: _RelativeChange | None,
    threshold: float,
    doubts: list[str],
    *,
    more_is_better: bool,
) -> Compared:
    if change is None:
        reason = "; ".join(doubts) or "too few repeats, or too short a measure phase, to estimate the variation"
        if not doubts and before.value == after.value:
            return Compared(metric, unit, before, after, Change.SAME, "the same value")
        return Compared(metric, unit, before, after, Change.UNCLEAR, reason)
    low, high = change.ratio.low - 1, change.ratio.high - 1
    moved = change.ratio.value - 1
    outcome, reason = _classify(moved, low, high, threshold, more_is_better=more_is_better)
    if doubts:
        outcome, reason = Change.UNCLEAR, "; ".join(doubts)
    return Compared(metric, unit, before, after, outcome, reason, change.basis, moved, low, high)


def _classify(moved: float, low: float, high: float, threshold: float, *, more_is_better: bool) -> tuple[Change, str]:
    span = f"between {low:+.1%} and {high:+.1%}"
    proven, large = low > 0 or high < 0, abs(moved) > threshold
    toward = Change.BETTER if (moved > 0) == more_is_better else Change.WORSE
    if proven and large:
        return toward, f"{moved:+.1%}, {span}"
    if proven:
        return Change.SAME, f"{moved:+.1%}: it differs, but by no more than {threshold:.0%}"
    if large and toward is Change.WORSE:
        return Change.UNCLEAR, f"{moved:+.1%} looks worse, but may be chance: {span}"
    if low >= -threshold and high <= threshold:
        return Change.SAME, f"within {threshold:.0%}: {span}"
    return Change.SAME, f"not significant: {span}"


def _lost(baseline: RunGroup, run: RunGroup, threshold: float, doubts: list[str]) -> Compared:
    counts = []
    for side in (baseline, run):
        totals = [repeat.summary.total for repeat in side.repeats]
        counts.append((sum(each.lost for each in totals), sum(each.owed for each in totals)))
    (lost_before, owed_before), (lost_after, owed_after) = counts
    before, after = (Value(lost / owed if owed else None) for lost, owed in counts)
    if not owed_before or not owed_after:
        return Compared(LOST, "share", before, after, Change.UNCLEAR, "one of the sides sent no messages")
    worse, reason = loss_test(lost_before, owed_before, lost_after, owed_after, threshold)
    outcome = {True: Change.WORSE, False: Change.BETTER, None: Change.SAME}[worse]
    if doubts:
        outcome, reason = Change.UNCLEAR, "; ".join(doubts)
    moved = after.value / before.value - 1 if before.value and after.value is not None else None
    return Compared(LOST, "share", before, after, outcome, reason, change=moved)
