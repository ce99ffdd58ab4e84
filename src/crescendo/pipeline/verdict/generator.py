"""Did the load generator keep up, or did it decide the result itself?

Where peers kept account of their own delay, no check may depend on it (see `explained_checks`). In older recordings
senders must have been blocked by the system if they sent as fast as possible, and punctual if they followed a schedule.
Receivers must have had time to wait. Each is a separate finding; together they are one item of the validity list.
"""

from collections.abc import Sequence

from crescendo.model.metrics import RATE, RESPONSE, Metric
from crescendo.model.mlmq_clients import CLIENT
from crescendo.model.units import format_ns
from crescendo.pipeline.verdict.evidence import Evidence
from crescendo.pipeline.verdict.explained_checks import explained_by_own_delay, generator_set_the_rate
from crescendo.pipeline.verdict.generator_finding import GeneratorFinding
from crescendo.pipeline.verdict.rules import RuleFinding

BLOCKED_SHARE = 0.05
LATENESS_SHARE = 0.10
BUSY_SHARE = 0.90


def generator_kept_up(evidence: Evidence, metrics: Sequence[Metric]) -> RuleFinding:
    if evidence.accounts_own_delay:
        rules = [explained_by_own_delay, generator_set_the_rate]
    else:
        rules = [_unbounded_senders if evidence.unbounded else _scheduled_senders]
    found = [rule(evidence, metrics) for rule in (*rules, _receivers)]
    failures = [sentence for each in found for sentence in each.failures]
    tolerated = [sentence for each in found for sentence in each.tolerated]
    unknown = [name for each in found for name in each.unknown]
    doubted = dict.fromkeys(name for each in found for name in each.doubts)
    doubts = {name: [sentence for each in found for sentence in each.doubts.get(name, [])] for name in doubted}
    unknowns = [f"unknown: {', '.join(unknown)}"] if unknown else []
    detail = "; ".join(failures + tolerated + unknowns) or "below every limit"
    return RuleFinding(not failures, detail, doubts, narrowly=bool(tolerated))


def _unbounded_senders(evidence: Evidence, metrics: Sequence[Metric]) -> GeneratorFinding:
    """Without a schedule the system must be what limits the rate."""
    found = GeneratorFinding()
    peers = [peer for peer in evidence.peers if peer.role == "sender"]
    shares = found.known("blocked_share", {peer.id: peer.statistics.blocked_share for peer in peers})
    free = {peer: share for peer, share in shares.items() if share < BLOCKED_SHARE}
    if free:
        times = ", ".join(f"{peer} {share:.1%}" for peer, share in free.items())
        sentence = (
            f"the sustained rate is the generator's, not the system's: blocked under {BLOCKED_SHARE:.0%} of the "
            f"time ({times}) although unbounded"
        )
        found.doubt(sentence, [metric for metric in metrics if metric.name == RATE])
    return found


def _scheduled_senders(evidence: Evidence, metrics: Sequence[Metric]) -> GeneratorFinding:
    """Senders must be much more punctual than the percentiles that are judged."""
    found = GeneratorFinding()
    peers = [peer for peer in evidence.peers if peer.role == "sender"]
    lateness = found.known("lateness_p99_ns", {peer.id: peer.statistics.lateness_p99_ns for peer in peers})
    late_ns = max(lateness.values(), default=0.0)
    for metric in metrics:
        value = evidence.value_of(metric)
        percentile = metric.latency is not None and metric.latency.percent is not None
        if percentile and value is not None and late_ns > LATENESS_SHARE * value:
            sentence = f"sender lateness p99 {format_ns(late_ns)} is over {LATENESS_SHARE:.0%} of {metric.name} "
            sentence += format_ns(value)
            if _holds_despite_generator(evidence, metric):
                found.tolerate(sentence)
            else:
                found.doubt(sentence, [metric])
    return found


def _receivers(evidence: Evidence, metrics: Sequence[Metric]) -> GeneratorFinding:
    """A receiver without time to wait may be what limits the rate and delays messages."""
    found = GeneratorFinding()
    peers = [peer for peer in evidence.peers if peer.role in {"receiver", CLIENT}]
    shares = found.known("busy_share", {peer.id: peer.statistics.busy_share for peer in peers})
    busy = {peer: share for peer, share in shares.items() if share > BUSY_SHARE}
    if busy:
        times = ", ".join(f"{peer} {share:.0%}" for peer, share in busy.items())
        sentence = f"receivers were busy over {BUSY_SHARE:.0%} of the time ({times})"
        undermined = [metric for metric in metrics if not _holds_despite_generator(evidence, metric)]
        # Unless the rate is checked, nothing shows that it was not the receivers that limited it.
        if undermined or RATE not in evidence.checks:
            found.doubt(sentence, undermined)
        else:
            found.tolerate(sentence)
    return found


def _holds_despite_generator(evidence: Evidence, metric: Metric) -> bool:
    """Whether a bound holds although the generator was slow.

    A slow generator only makes responses longer and rates lower, so a bound that holds with it holds without it. This
    is not true of transfer and settle, which start when a message was actually sent: a late sender may have reduced the
    load. Nor is it true of an unbounded rate, which claims to be the system's limit, whatever the bound says.
    """
    bound, value = evidence.checks[metric.name], evidence.value_of(metric)
    if value is None:
        return False
    if metric.name == RATE:
        return not evidence.unbounded and not bound.caps and bound.holds(value, evidence.rate.offered)
    response = metric.latency is not None and metric.latency.kind == RESPONSE
    return response and bound.caps and bound.holds(value, evidence.rate.offered)
