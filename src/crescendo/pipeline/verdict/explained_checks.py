"""Which checks could be explained by our own delay?

A check is doubtful when its outcome changes once own delay is subtracted, message by message, from what it judges. That
holds for every statistic of a latency and for rates, whichever group and side caused the delay. An unbounded rate is
also doubtful when the system hardly ever held the sender back: then it is the generator's rate. Subtracts nothing
itself: `latency.without_own_delay` did.
"""

from collections.abc import Sequence
from functools import partial

from crescendo.model.metrics import RATE, Metric
from crescendo.model.own_delay import explains
from crescendo.pipeline.verdict.evidence import Evidence
from crescendo.pipeline.verdict.generator_finding import GeneratorFinding

GENERATOR_SHARE = 0.95
"""A sender that was not held back by the system for this share of the measure phase set the rate itself."""


def explained_by_own_delay(evidence: Evidence, metrics: Sequence[Metric]) -> GeneratorFinding:
    found = GeneratorFinding()
    for metric in metrics:
        value, without = evidence.value_of(metric), evidence.value_without_own_delay(metric)
        if value is None or without is None:
            continue
        bound, offered = evidence.checks[metric.name], evidence.rate.offered
        if explains(partial(bound.holds, offered=offered), value, without):
            found.doubt(
                f"own delay could explain it: {metric.name} {metric.unit.text(value)} would be "
                f"{metric.unit.text(without)} without it and what overlaps it",
                [metric],
            )
    return found


def generator_set_the_rate(evidence: Evidence, metrics: Sequence[Metric]) -> GeneratorFinding:
    """Without a schedule the system must be what limits the rate, whatever the bound says."""
    found = GeneratorFinding()
    free = {sender: share for sender, share in evidence.own_shares.items() if share > GENERATOR_SHARE}
    if free:
        shares = ", ".join(f"sender {sender} {share:.1%}" for sender, share in sorted(free.items()))
        sentence = (
            "the sustained rate is the generator's, not the system's: the system held it back for under "
            f"{1 - GENERATOR_SHARE:.0%} of the measure phase (the generator's own time: {shares}) although unbounded"
        )
        found.doubt(sentence, [metric for metric in metrics if metric.name == RATE])
    return found
