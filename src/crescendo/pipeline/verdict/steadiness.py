"""Was what a check claims to be sustained actually steady?

A rate or a latency is claimed for longer than the run lasted, so neither it nor the backlog may drift while it is
measured. The table `steady_state` reports a trend as soon as it is likely; here one must be almost certain, because it
takes a verdict away: p < 0.001 over ten parts of the phase, and so large that even the near end of the slope's 95 %
interval matters. That takes at least eight whole seconds. A check that fails is not undermined, because it claims
nothing beyond the run; nor is a latency that passes and falls. Computes no trend: `behaviour.steady` does.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from crescendo.model.metrics import RATE, STEADY_STATE, Metric
from crescendo.pipeline.behaviour import steady
from crescendo.pipeline.behaviour.steady import PhaseTrend
from crescendo.pipeline.verdict.evidence import Evidence
from crescendo.pipeline.verdict.rules import RuleFinding, held

CERTAIN = 0.001
RATE_SHARE = 0.05
"""Of the median rate: a smaller change over the phase does not matter."""

P99_SHARE, LEAST_P99_NS = 0.10, 1_000_000
BACKLOG_SHARE, LEAST_BACKLOG = 0.01, 10
"""Of the messages delivered in the phase: what the system is short of, or catches up."""

CURE = (
    "measure for longer, after a longer warm-up, or at a rate that the system sustains; accept_drift: true accepts it"
)
_NAMES = {steady.RATE: "rate", steady.P99: "p99", steady.BACKLOG: "backlog"}

UNDERMINES_RATE = {(steady.RATE, True), (steady.RATE, False), (steady.BACKLOG, True), (steady.BACKLOG, False)}
UNDERMINES_LATENCY = {(steady.RATE, True), (steady.RATE, False), (steady.P99, True), (steady.BACKLOG, True)}
"""The drifts, each a metric and whether it rises, with which a bound that holds may not hold for longer."""


@dataclass(frozen=True)
class Drift:
    """One series of `steady_state` that rose or fell over the measure phase."""

    metric: str
    rising: bool
    change: float  # relative to its median

    @property
    def sentence(self) -> str:
        way = "rises" if self.rising else "falls"
        return f"not steady: the {_NAMES[self.metric]} {way} over the measure phase ({self.change:+.0%} of its median)"


def drifts_of(evidence: Evidence) -> list[Drift]:
    delivered = sum(trend.median * trend.seconds for trend in evidence.trends if trend.metric == steady.RATE)
    found = [_drift(trend, delivered, evidence.total.lost) for trend in evidence.trends]
    return [drift for drift in found if drift is not None]


def puts_in_doubt(evidence: Evidence, drift: Drift) -> bool:
    """Whether a check that holds is in doubt because of this drift."""
    return any(
        _doubts(evidence, metric, [drift]) for metric in evidence.metrics if STEADY_STATE in metric.undermined_by
    )


def is_steady(evidence: Evidence, metrics: Sequence[Metric]) -> RuleFinding | None:
    """None if the measure phase was too short to say, or if nothing is claimed to be sustained."""
    if not metrics or not evidence.trends:
        return None
    drifts = drifts_of(evidence)
    sentences = "; ".join(drift.sentence for drift in drifts)
    if not drifts:
        return held("neither rate, nor p99, nor backlog drifts")
    if evidence.experiment.accept_drift:
        return held(f"accepted: {sentences}", narrowly=True)
    doubts = {metric.name: _doubts(evidence, metric, drifts) for metric in metrics}
    return RuleFinding(False, sentences, {name: reasons for name, reasons in doubts.items() if reasons})


def _doubts(evidence: Evidence, metric: Metric, drifts: list[Drift]) -> list[str]:
    value = evidence.value_of(metric)
    if value is None or not evidence.checks[metric.name].holds(value, evidence.rate.offered):
        return []
    undermining = UNDERMINES_RATE if metric.name == RATE else UNDERMINES_LATENCY
    return [f"{drift.sentence}; {CURE}" for drift in drifts if (drift.metric, drift.rising) in undermining]


def _drift(trend: PhaseTrend, delivered: float, lost: int) -> Drift | None:
    rising = trend.change > 0
    matters = {
        steady.RATE: RATE_SHARE * trend.median,
        steady.P99: max(P99_SHARE * trend.median, LEAST_P99_NS),
        # A lost message stays in the backlog: those are judged as losses.
        steady.BACKLOG: max(BACKLOG_SHARE * delivered, LEAST_BACKLOG) + (lost if rising else 0),
    }[trend.metric]
    if trend.p >= CERTAIN or abs(trend.least_change) <= matters:
        return None
    return Drift(trend.metric, rising, trend.change / max(abs(trend.median), 1.0))
