"""Had everything arrived that was going to arrive?

Messages that were still arriving when the drain ended are undelivered, and nobody knows whether they would have been
lost. Messages that were due in the measure phase and arrived just after its end are missing from its rate, although the
system carried them. Neither is held against the system. Counts nothing: the ledger did.
"""

from collections.abc import Mapping, Sequence

from crescendo.model.metrics import RATE, Metric
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


def edge_sentence(evidence: Evidence) -> str:
    """That a rate is judged with what arrived just after the measure phase; empty if it is not."""
    if evidence.rate_with_edge is None:
        return ""
    name = RATE if evidence.run_slice is None else f"{evidence.run_slice.name}.{RATE}"
    return (
        f"{evidence.arrived_at_edge:,} messages that were due in the measure phase arrived within "
        f"{EDGE_NS / 1e6:.0f} ms of its end; {name} is judged with them"
    )
