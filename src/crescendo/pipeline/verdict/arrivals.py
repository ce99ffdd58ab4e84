"""Had everything arrived that was going to arrive?

Messages that were still arriving when the drain ended are undelivered, and nobody knows whether they would have been
lost. Messages that were due in the measure phase and arrived just after its end are missing from its rate, although the
system carried them. Neither is held against the system. Counts nothing: the ledger did.
"""

from collections.abc import Mapping, Sequence
from functools import partial

from crescendo.model.metrics import RATE, Metric
from crescendo.model.own_delay import explains
from crescendo.pipeline.ledger.block_sums import EDGE_NS
from crescendo.pipeline.verdict.evidence import Evidence
from crescendo.pipeline.verdict.rules import RuleFinding


def drain_was_long_enough(evidence: Evidence, metrics: Sequence[Metric]) -> RuleFinding | None:
    """None if nothing was arriving any more. What was lost beyond doubt stays lost."""
    count = evidence.total.undelivered
    if not count or evidence.counts is None:
        return None
    reason = f"{undelivered_sentence(count, evidence.held)}; make phases.drain, or phases.drain_limit, longer"
    doubts = {}
    for metric in metrics:
        bound, value = evidence.checks[metric.name], evidence.value_of(metric)
        proven = value is not None and bound.caps and value > bound.limit(evidence.rate.offered)
        if not proven:
            doubts[metric.name] = [reason]
    return RuleFinding(False, reason, doubts)


def undelivered_sentence(count: int, held: Mapping[str, int] | None = None) -> str:
    """What is undelivered, and how that is known. `held` is what the system itself still counts, by destination."""
    queued = sum((held or {}).values())
    parts = [f"{count - queued:,} messages were still arriving when the drain ended"] if count > queued else []
    if queued:
        places = ", ".join(sorted(held or {}))
        parts.append(f"{queued:,} messages are still in {places} by the system's own count")
    return f"{' and '.join(parts)}: undelivered, not lost"


def edge_did_not_decide(evidence: Evidence, metrics: Sequence[Metric]) -> RuleFinding | None:
    """None unless a rate misses its bound by no more than what arrived at the edge of the measure phase."""
    rate, edge = evidence.rate, evidence.arrived_at_edge
    if edge <= 0 or not rate.duration_ns or evidence.unbounded:
        return None
    doubts = {}
    for metric in metrics:
        bound, value = evidence.checks[metric.name], evidence.value_of(metric)
        if metric.name != RATE or value is None or bound.caps:
            continue
        with_edge = value + edge / rate.duration_ns * 1e9
        if explains(partial(bound.holds, offered=rate.offered), value, with_edge):
            doubts[metric.name] = [
                f"it misses its bound by less than the {edge:,.0f} messages that arrived within "
                f"{EDGE_NS / 1e6:.0f} ms of the end of the measure phase; measure for longer"
            ]
    return RuleFinding(False, "; ".join(doubts[RATE]), doubts) if doubts else None
