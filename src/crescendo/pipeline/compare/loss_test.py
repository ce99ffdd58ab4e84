"""Did one side lose more messages than the other?

A loss where there was none before needs no statistics: messages are not lost by chance. If both sides lost messages, an
exact binomial test decides whether the losses are distributed like the messages. Losses come in bursts, which the test
ignores; the threshold allows for that.
"""

SIGNIFICANT = 0.05


def loss_test(
    lost_before: int, owed_before: int, lost_after: int, owed_after: int, threshold: float
) -> tuple[bool | None, str]:
    """True for worse, False for better, None for no difference; and the reason."""
    counts = f"{lost_before:,} of {owed_before:,} before, {lost_after:,} of {owed_after:,} now"
    if lost_before == lost_after == 0:
        return None, "nothing was lost"
    if lost_before == 0:
        return True, f"messages were lost where none were before: {counts}"
    if lost_after == 0:
        return False, f"no messages are lost any more: {counts}"
    before, after = lost_before / owed_before, lost_after / owed_after
    p = two_sided(lost_after, lost_before + lost_after, owed_after / (owed_before + owed_after))
    if p >= SIGNIFICANT:
        return None, f"it may be chance (p = {p:.2f}): {counts}"
    if abs(after / before - 1) <= threshold:
        return None, f"it differs by no more than {threshold:.0%}: {counts}"
    return after > before, f"p = {p:.1g}: {counts}"


def two_sided(successes: int, trials: int, share: float) -> float:
    """The probability of a count at least this far from the expected one: twice that of the nearer tail."""
    from scipy.stats import binomtest

    # Not SciPy's own two-sided test, which adds up all counts that are less likely, on both sides.
    tails = [binomtest(successes, trials, share, alternative=side).pvalue for side in ("less", "greater")]
    return min(2 * float(min(tails)), 1.0)
