"""Did one side lose more messages than the other?

A loss where there was none needs no statistics: messages are not lost by chance. Where both sides lost some, the
question is whether the share of the losses that fell on one side could be that side's share of the messages, by an
exact binomial test. Losses come in bursts, which the test does not know; the threshold is there for that.
"""

import math

SIGNIFICANT = 0.05


def loss_test(
    lost_before: int, owed_before: int, lost_after: int, owed_after: int, threshold: float
) -> tuple[bool | None, str]:
    """True for worse, False for better, None for no difference; and why."""
    told = f"{lost_before:,} of {owed_before:,} before, {lost_after:,} of {owed_after:,} now"
    if lost_before == lost_after == 0:
        return None, "nothing was lost"
    if lost_before == 0:
        return True, f"messages were lost where none were: {told}"
    if lost_after == 0:
        return False, f"no message is lost any more: {told}"
    before, after = lost_before / owed_before, lost_after / owed_after
    p = two_sided(lost_after, lost_before + lost_after, owed_after / (owed_before + owed_after))
    if p >= SIGNIFICANT:
        return None, f"it may be chance (p = {p:.2f}): {told}"
    if abs(after / before - 1) <= threshold:
        return None, f"it differs by no more than {threshold:.0%}: {told}"
    return after > before, f"p = {p:.1g}: {told}"


def two_sided(successes: int, trials: int, share: float) -> float:
    """The probability of a count as far from what is expected as this one: twice that of the nearer tail."""
    below = _at_most(successes, trials, share)
    above = 1 - _at_most(successes - 1, trials, share)
    return min(2 * min(below, above), 1.0)


def _at_most(successes: int, trials: int, share: float) -> float:
    if successes < 0:
        return 0.0
    if trials > 10_000:  # there the normal curve is as good, and a sum of millions of terms is not needed
        spread = math.sqrt(trials * share * (1 - share))
        return (1 + math.erf((successes + 0.5 - trials * share) / spread / math.sqrt(2))) / 2
    logs = (
        math.lgamma(trials + 1) - math.lgamma(k + 1) - math.lgamma(trials - k + 1)
        + k * math.log(share) + (trials - k) * math.log1p(-share)
        for k in range(successes + 1)
    )  # fmt: skip
    return min(math.fsum(math.exp(log) for log in logs), 1.0)
