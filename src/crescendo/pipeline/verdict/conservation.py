"""What do clients that keep books say about their own messages?

Each process of clients ends with how often it found a message lost, doubled or mixed up, and how many it could not tell
about. What nobody could tell undermines every check that rests on the books; what was found stands. Reads
the manifest only: what the ledger found by itself is judged beside it.
"""

from crescendo.model.mlmq_clients import CLIENT
from crescendo.model.verdict import CONSERVATION
from crescendo.pipeline.verdict.evidence import Evidence
from crescendo.pipeline.verdict.validity import ValidityFinding
from crescendo.record.summary import Validity

NAME = "clients accounted for their messages"
UNRESOLVED = "unresolved"
_RESTING = (CONSERVATION, "lost", "lost_acknowledged", "lost_unacknowledged")


def conservation(evidence: Evidence) -> list[ValidityFinding]:
    """One finding where there are clients, none where there are not."""
    if not evidence.experiment.clients:
        return []
    peers = [peer for peer in evidence.manifest.peers if peer.role == CLIENT]
    reasons = [f"{peer.id} ended without closing its books" for peer in peers if UNRESOLVED not in peer.statistics]
    missing = evidence.experiment.peers.clients - len(peers)
    if missing:
        reasons.append(f"{missing} process(es) of clients left no account")
    for peer in peers:
        if untold := peer.statistics.get(UNRESOLVED, 0):
            reasons.append(f"{peer.id} cannot tell what became of {untold:,.0f} of its messages or queues")
    if reasons:
        return [ValidityFinding(Validity(NAME, False, "; ".join(reasons)), {metric: reasons for metric in _RESTING})]
    stored = sum(peer.statistics.get("stored", 0) for peer in peers)
    return [ValidityFinding(Validity(NAME, True, f"{stored:,.0f} stored, {evidence.violations or 0:,.0f} violations"))]
