"""Were the destinations as the run needs them?

Messages of others in front of ours delay them, and the run may end before ours arrive; receivers of a topic that share
one queue each miss what the others got. Neither says anything about the system, so neither is held against it.
"""

from collections.abc import Sequence

from crescendo.model.metrics import Metric
from crescendo.pipeline.verdict.evidence import Evidence
from crescendo.pipeline.verdict.rules import RuleFinding, failed, held


def destination_was_empty(evidence: Evidence, metrics: Sequence[Metric]) -> RuleFinding | None:
    """None for an import without messages."""
    if evidence.counts is None:
        return None
    purged = [others for others in evidence.others if others.purged]
    arrived = [others for others in evidence.others if not others.before and others.runs]
    left = [others for others in evidence.others if others.before and not others.purged]
    known = {others.address for others in arrived}
    reasons = [
        f"{others.messages:,} messages of {others.sources} were in the way of {others.address}" for others in arrived
    ]
    reasons += [
        f"{others.address} held messages of {others.sources} before the run"
        for others in left
        if others.address not in known
    ]
    if evidence.total.stray and not reasons:
        reasons = [f"{evidence.total.stray:,} messages of another run were in the way"]
    if reasons:
        reasons[-1] += "; empty it first (purge: true), or put {run} into the address, so that each run has its own"
        return failed(reasons, metrics)
    if purged:
        return held("; ".join(f"{others.messages:,} messages were purged from {others.address}" for others in purged))
    return held("no message of another run arrived")


def receivers_got_copies(evidence: Evidence, metrics: Sequence[Metric]) -> RuleFinding | None:
    """None unless receivers of a topic got disjoint shares."""
    if not evidence.shared_topics:
        return None
    reasons = [
        f"the receivers of {address} share its messages: together they received each one once, instead of one copy "
        f"each; on this system {address.partition('://')[2]} is a queue (an anycast address?); use another name, or "
        f"write queue:// if sharing is meant"
        for address in evidence.shared_topics
    ]
    return failed(reasons, metrics)
