"""By how much did a metric change between two sides, and between which bounds does that lie?

Both sides are summarized by one estimator, the geometric mean of their runs, and the change is the ratio of the two
values that are shown. With repeats its interval follows from how much runs vary; between single runs, from the
interval of each run, which leaves out how much runs vary. Judges nothing. docs/compare.md explains the method.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, variance

from crescendo.pipeline.compare.intervals import CONFIDENCE, Interval, difference, t_quantile

REPEATS, RUNS = "repeats", "runs"
"""What the interval of a change is based on: the variation between runs, or the intervals of single runs."""

LEAST_REPEATS, MOST_REPEATS = 3, 100
"""Per side, for a claim: three runs are all above three others in one of twenty orders, two above two in one of six."""

_CHANCE = 0.05
_MAX_LOG = 700.0  # exp() of more overflows a float
_MANY = 1e9  # degrees of freedom of the normal distribution


@dataclass(frozen=True)
class MeasuredValue:
    """The value of one run and its own 95 % interval, or why there is none."""

    value: float
    low: float | None = None
    high: float | None = None
    no_interval: str = ""

    @property
    def log_variance(self) -> float:
        """The variance of the logarithm of the value by its own interval; 0 if there is none."""
        if self.low is None or self.high is None or self.low <= 0:
            return 0.0
        return (math.log(self.high / self.low) / 2 / t_quantile(_MANY)) ** 2


Side = Sequence[MeasuredValue]


@dataclass(frozen=True)
class RelativeChange:
    """The ratio of two sides with its interval, and how many repeats per side would be needed for an answer."""

    ratio: Interval
    basis: str
    repeats_needed: Callable[[float], int | None] = lambda _: None
    """By threshold; None if it is unknown, or more than a hundred."""


def typical(before: Side, after: Side) -> tuple[float, float]:
    """The value of each side: the geometric mean of its runs, or the mean if a value has no logarithm."""
    if _has_logarithms(before, after):
        one, other = (math.exp(fmean(_logs(side))) for side in (before, after))
        return one, other
    one, other = (fmean([each.value for each in side]) for side in (before, after))
    return one, other


def relative_change(before: Side, after: Side, confidence: float = CONFIDENCE) -> RelativeChange | None:
    """None if the runs do not show how certain it is."""
    if max(len(before), len(after)) > 1:
        return _between_repeats(before, after, confidence)
    return _between_runs(before[0], after[0], confidence)


def may_be_order(before: Side, after: Side) -> bool:
    """Whether repeats of one and the same thing would be separated like this too often.

    Intervals take runs to vary like a normal distribution. A machine that is quiet in some runs and busy in others is
    not like that: two quiet runs agree well, and so do two busy ones. No distribution makes an order rarer than all.
    """
    return max(len(before), len(after)) > 1 and 1 / math.comb(len(before) + len(after), len(before)) > _CHANCE


def _between_repeats(before: Side, after: Side, confidence: float) -> RelativeChange | None:
    if not _has_logarithms(before, after):
        # Zero, or a negative time due to clock error, has no logarithm: use the plain difference instead.
        plain = difference([each.value for each in before], [each.value for each in after], confidence)
        usual = fmean([each.value for each in before])
        if plain is None or usual <= 0:
            return None
        return RelativeChange(Interval(*(1 + end / usual for end in (plain.value, plain.low, plain.high))), REPEATS)
    # A run is not known better than its own interval says, however well two of them happen to agree.
    least = fmean(each.log_variance for each in before), fmean(each.log_variance for each in after)
    found = difference(_logs(before), _logs(after), confidence, least)
    if found is None:
        return None

    def needed(threshold: float) -> int | None:
        spreads = [variance(_logs(side)) for side in (before, after) if len(side) > 1]
        spread = max(fmean(spreads), *least)
        more_than = max(min(len(before), len(after)), LEAST_REPEATS - 1)
        return _repeats_needed(found.value, spread, threshold, confidence, more_than)

    return RelativeChange(_exponential(found), REPEATS, needed)


def _between_runs(before: MeasuredValue, after: MeasuredValue, confidence: float) -> RelativeChange | None:
    """The distances to the ends that lie apart, combined as the root of their squares (Zou and Donner 2008)."""
    if before.low is None or before.high is None or after.low is None or after.high is None:
        return None
    if min(before.low, after.low) <= 0:
        return None
    wider = t_quantile(_MANY, confidence) / t_quantile(_MANY)
    moved = math.log(after.value / before.value)
    down = math.hypot(math.log(after.value / after.low), math.log(before.high / before.value))
    up = math.hypot(math.log(after.high / after.value), math.log(before.value / before.low))
    return RelativeChange(_exponential(Interval(moved, moved - wider * down, moved + wider * up)), RUNS)


def _repeats_needed(moved: float, spread: float, threshold: float, confidence: float, more_than: int) -> int | None:
    """Repeats per side whose interval would be short enough, if the change and the variation stay as they are."""
    edges = [math.log1p(threshold), math.log1p(-threshold) if threshold < 1 else -math.inf]
    distance = min(abs(moved - edge) for edge in edges)
    for repeats in range(more_than + 1, MOST_REPEATS + 1):
        if t_quantile(2 * repeats - 2, confidence) * math.sqrt(2 * spread / repeats) <= distance:
            return repeats
    return None


def _has_logarithms(before: Side, after: Side) -> bool:
    return min(each.value for each in (*before, *after)) > 0


def _logs(side: Side) -> list[float]:
    return [math.log(each.value) for each in side]


def _exponential(found: Interval) -> Interval:
    return Interval(*(math.exp(min(end, _MAX_LOG)) for end in (found.value, found.low, found.high)))
