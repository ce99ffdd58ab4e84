"""Did one side lose more messages than the other?

A loss where there was none before needs no statistics: messages are not lost by chance. If both sides lost messages,
the exact binomial interval of how the losses are divided (C. J. Clopper and E. S. Pearson, 1934) gives that of the
ratio of the loss rates. Losses come in bursts, which it ignores; the threshold allows for that.
"""

import math

from crescendo.pipeline.compare.intervals import CONFIDENCE, Interval
from crescendo.pipeline.compare.outcomes import Change, format_span, outcome_of


def loss_test(
    lost_before: int,
    owed_before: int,
    lost_after: int,
    owed_after: int,
    threshold: float,
    confidence: float = CONFIDENCE,
) -> tuple[Change, str]:
    """The outcome and the reason."""
    counts = f"{lost_before:,} of {owed_before:,} before, {lost_after:,} of {owed_after:,} now"
    if lost_before == lost_after == 0:
        return Change.SAME, "nothing was lost"
    if lost_before == 0:
        return Change.WORSE, f"messages were lost where none were before: {counts}"
    if lost_after == 0:
        return Change.BETTER, f"no messages are lost any more: {counts}"
    ratio = loss_ratio(lost_before, owed_before, lost_after, owed_after, confidence)
    low, high = ratio.low - 1, ratio.high - 1
    outcome = outcome_of(low, high, threshold, more_is_better=False)
    more = ": too few losses for an answer" if outcome is Change.UNCLEAR else ""
    return outcome, f"{format_span(low, high)}{more}; {counts}"


def loss_ratio(
    lost_before: int, owed_before: int, lost_after: int, owed_after: int, confidence: float = CONFIDENCE
) -> Interval:
    """How many times as likely a message is to be lost, if both sides lost some."""
    low, high = share_interval(lost_after, lost_before + lost_after, confidence)
    found = (lost_after / owed_after) / (lost_before / owed_before)
    to_ratio = [share / (1 - share) * owed_before / owed_after if share < 1 else math.inf for share in (low, high)]
    return Interval(found, *to_ratio)


def share_interval(successes: int, trials: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Between which shares the true one lies."""
    from scipy.special import betaincinv

    tail = (1 - confidence) / 2
    low = float(betaincinv(successes, trials - successes + 1, tail)) if successes else 0.0
    high = float(betaincinv(successes + 1, trials - successes, 1 - tail)) if successes < trials else 1.0
    return low, high
