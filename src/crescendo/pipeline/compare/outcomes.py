"""Better, worse, no difference, or cannot say?

The interval of a change decides, against the threshold, and nothing else: entirely beyond the threshold is better or
worse; entirely within it, the two sides do not differ. An interval that reaches across the threshold allows no answer,
whichever way it points. Estimates nothing.
"""

from enum import StrEnum

_MOST = 9.99
"""Larger changes are not printed in digits: they say how little is known, not how much changed."""

_LEAST = -0.999


class Change(StrEnum):
    """The outcome of a comparison, for one metric or overall."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "no difference"
    UNCLEAR = "cannot say"


def outcome_of(low: float, high: float, threshold: float, *, more_is_better: bool) -> Change:
    """`low` and `high` are the ends of the interval of a relative change: 0.1 is 10 % more."""
    if -threshold <= low and high <= threshold:
        return Change.SAME
    if low > threshold:
        return Change.BETTER if more_is_better else Change.WORSE
    if high < -threshold:
        return Change.WORSE if more_is_better else Change.BETTER
    return Change.UNCLEAR


def overall(outcomes: list[Change]) -> Change:
    for outcome in (Change.WORSE, Change.UNCLEAR, Change.BETTER):
        if outcome in outcomes:
            return outcome
    return Change.SAME


def format_change(change: float) -> str:
    """A relative change in per cent, with a sign."""
    if change > _MOST:
        return f"over {_MOST:+.0%}"
    if change < _LEAST:
        return f"under {_LEAST:+.1%}"
    return f"{change:+.1%}"


def format_span(low: float, high: float) -> str:
    return f"between {format_change(low)} and {format_change(high)}"
