"""Is this run better or worse than that one, or can nobody tell?

Rates, percentiles and losses of two sides. A difference counts when its 95 % interval excludes "none" and it is larger
than a threshold; both, because with enough messages everything is significant. The interval rests on repeats where
there are any, else on segments of the one run, else on ranks. Judges what `repeats` has read; docs/compare.md says why.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean

from msgspec import Struct

from crescendo.model.units import format_ns
from crescendo.model.verdict import LATENCY_KINDS
from crescendo.pipeline.compare.comparability import doubts_of, notes_on, slow_generators
from crescendo.pipeline.compare.intervals import Interval, difference, mean_interval
from crescendo.pipeline.compare.loss_test import loss_test
from crescendo.pipeline.compare.runs import Repeat, RunGroup
from crescendo.pipeline.latency.histogram import SETTLE

JUDGED = ("p50", "p90", "p99", "p99.9")
RATE, LOST = "rate", "lost"
_MOST = 700.0  # of a logarithm whose power a float can hold


class Change(StrEnum):
    """What may be said of a metric, or of all of them."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "no difference"
    UNCLEAR = "cannot say"


class Value(Struct, frozen=True):
    """A value of one side and the ends of its 95 % interval, null where there is none."""

    value: float | None
    low: float | None = None
    high: float | None = None


class Compared(Struct, frozen=True):
    """One metric. `change` is relative to the baseline, as are its ends: 0.1 is a tenth more."""

    metric: str
    unit: str
    baseline: Value
    run: Value
    outcome: Change
    reason: str
    basis: str = ""  # repeats, segments or ranks: what the interval of the change rests on
    change: float | None = None
    change_low: float | None = None
    change_high: float | None = None


class Comparison(Struct, frozen=True):
    """The whole answer."""

    baseline: list[str]
    run: list[str]
    threshold: float
    outcome: Change
    metrics: list[Compared]
    doubts: list[str]
    notes: list[str]


@dataclass(frozen=True)
class _Change:
    ratio: Interval
    basis: str


def compare(baseline: RunGroup, run: RunGroup, threshold: float) -> Comparison:
    """All metrics that both sides have. `threshold` is a share: 0.05 is five per cent."""
    doubts = [*doubts_of(baseline), *doubts_of(run)]
    slow = [*slow_generators(baseline), *slow_generators(run)]
    metrics = [_rate(baseline, run, threshold, doubts + slow)]
    metrics += _latencies(baseline, run, threshold, doubts + slow)
    metrics.append(_lost(baseline, run, threshold, doubts))
    return Comparison(
        baseline=[one.name for one in baseline.repeats],
        run=[one.name for one in run.repeats],
        threshold=threshold,
        outcome=_overall([one.outcome for one in metrics]),
        metrics=metrics,
        doubts=doubts + slow,
        notes=notes_on(baseline, run),
    )


def _overall(outcomes: list[Change]) -> Change:
    for word in (Change.WORSE, Change.UNCLEAR, Change.BETTER):
        if word in outcomes:
            return word
    return Change.SAME


def _rate(baseline: RunGroup, run: RunGroup, threshold: float, doubts: list[str]) -> Compared:
    def value(side: RunGroup) -> Value:
        rates = [one.summary.rate.sustained for one in side.repeats]
        spread = mean_interval(rates if len(rates) > 1 else side.repeats[0].rates())
        if not any(one.summary.rate.duration_ns for one in side.repeats):
            return Value(None)
        mean = sum(rates) / len(rates)
        # Of one run the segments leave out the broken seconds at its ends: the interval is put around its own rate.
        reach = (spread.high - spread.low) / 2 if spread else None
        return Value(mean) if reach is None else Value(mean, max(mean - reach, 0.0), mean + reach)

    before, after = value(baseline), value(run)
    if before.value is None or after.value is None:
        return Compared(RATE, "msg/s", before, after, Change.UNCLEAR, "no measure phase was recorded")
    change = _change(baseline, run, lambda one: one.summary.rate.sustained, Repeat.rates)
    return _judged(RATE, "msg/s", before, after, change, threshold, doubts, more_is_better=True)


def _latencies(baseline: RunGroup, run: RunGroup, threshold: float, doubts: list[str]) -> Iterator[Compared]:
    segments = [side.repeats[0].percentiles() if len(side.repeats) == 1 else {} for side in (baseline, run)]
    bound_ns = max(baseline.clock_bound_ns, run.clock_bound_ns)
    for kind in LATENCY_KINDS:
        for name in JUDGED:
            key = (kind, name)
            before, after = baseline.pooled.get(key), run.pooled.get(key)
            if before is None or after is None:
                continue  # withheld, or nothing of the kind was measured: nothing to compare

            def of_run(one: Repeat, kind: str = kind, name: str = name) -> float | None:
                row = one.summary.latency_of(kind)
                return None if row is None else row.percentiles_ns[name]

            def of_segments(one: Repeat, key: tuple[str, str] = key) -> list[float]:
                return segments[0 if one is baseline.repeats[0] else 1].get(key, [])

            change = _change(baseline, run, of_run, of_segments) or _by_ranks(before, after)
            gap_ns = abs(after.value - before.value)
            blind = kind != SETTLE and gap_ns and bound_ns > gap_ns
            clock = [f"the clocks may be {format_ns(bound_ns)} apart, more than the difference"] if blind else []
            shown = Value(before.value, before.low, before.high), Value(after.value, after.low, after.high)
            yield _judged(f"{kind}_{name}", "ns", *shown, change, threshold, doubts + clock, more_is_better=False)


def _change(
    baseline: RunGroup,
    run: RunGroup,
    of_run: Callable[[Repeat], float | None],
    of_segments: Callable[[Repeat], list[float]],
) -> _Change | None:
    """The ratio of the two sides with its interval; on a logarithmic scale, where twice and half are as far away."""
    alone = len(baseline.repeats) == len(run.repeats) == 1
    sides: list[list[float]] = []
    for side in (baseline, run):
        values = of_segments(side.repeats[0]) if alone else [of_run(one) for one in side.repeats]
        sides.append([value for value in values if value is not None])
        if not values or len(sides[-1]) < len(values):
            return None
    ratio = _ratio(*sides)
    return None if ratio is None else _Change(ratio, "segments" if alone else "repeats")


def _ratio(before: list[float], after: list[float]) -> Interval | None:
    if min(before + after) > 0:
        found = difference([math.log(value) for value in before], [math.log(value) for value in after])
        return found and Interval(*(math.exp(min(end, _MOST)) for end in (found.value, found.low, found.high)))
    # Nothing at all, or less than nothing by another clock, has no logarithm: then it is the plain difference.
    found, usual = difference(before, after), fmean(before)
    if found is None or usual <= 0:
        return None
    return Interval(*(1 + end / usual for end in (found.value, found.low, found.high)))


def _by_ranks(before: Interval, after: Interval) -> _Change | None:
    """From the intervals of both percentiles: wider than 95 %, and blind to what differs from run to run."""
    if before.low <= 0 or after.low <= 0:
        return None
    return _Change(
        Interval(after.value / before.value, after.low / before.high, after.high / before.low), "ranks"
    )  # fmt: skip


def _judged(
    metric: str,
    unit: str,
    before: Value,
    after: Value,
    change: _Change | None,
    threshold: float,
    doubts: list[str],
    *,
    more_is_better: bool,
) -> Compared:
    if change is None:
        reason = "; ".join(doubts) or "too few repeats, or too short a measure phase, to say how far chance goes"
        if not doubts and before.value == after.value:
            return Compared(metric, unit, before, after, Change.SAME, "the same value")
        return Compared(metric, unit, before, after, Change.UNCLEAR, reason)
    low, high = change.ratio.low - 1, change.ratio.high - 1
    moved = change.ratio.value - 1
    word, reason = _word(moved, low, high, threshold, more_is_better=more_is_better)
    if doubts:
        word, reason = Change.UNCLEAR, "; ".join(doubts)
    return Compared(metric, unit, before, after, word, reason, change.basis, moved, low, high)


def _word(moved: float, low: float, high: float, threshold: float, *, more_is_better: bool) -> tuple[Change, str]:
    span = f"between {low:+.1%} and {high:+.1%}"
    proven, large = low > 0 or high < 0, abs(moved) > threshold
    toward = Change.BETTER if (moved > 0) == more_is_better else Change.WORSE
    if proven and large:
        return toward, f"{moved:+.1%}, {span}"
    if proven:
        return Change.SAME, f"{moved:+.1%}: it differs, but by no more than {threshold:.0%}"
    if large and toward is Change.WORSE:
        return Change.UNCLEAR, f"{moved:+.1%} looks worse, but it may be chance: {span}"
    if low >= -threshold and high <= threshold:
        return Change.SAME, f"within {threshold:.0%}: {span}"
    return Change.SAME, f"not told apart: {span}"


def _lost(baseline: RunGroup, run: RunGroup, threshold: float, doubts: list[str]) -> Compared:
    counts = []
    for side in (baseline, run):
        totals = [one.summary.total for one in side.repeats]
        counts.append((sum(each.lost for each in totals), sum(each.owed for each in totals)))
    (lost_before, owed_before), (lost_after, owed_after) = counts
    before, after = (Value(lost / owed if owed else None) for lost, owed in counts)
    if not owed_before or not owed_after:
        return Compared(LOST, "share", before, after, Change.UNCLEAR, "one of the sides has no messages to lose")
    worse, reason = loss_test(lost_before, owed_before, lost_after, owed_after, threshold)
    word = {True: Change.WORSE, False: Change.BETTER, None: Change.SAME}[worse]
    if doubts:
        word, reason = Change.UNCLEAR, "; ".join(doubts)
    moved = after.value / before.value - 1 if before.value and after.value is not None else None
    return Compared(LOST, "share", before, after, word, reason, change=moved)
