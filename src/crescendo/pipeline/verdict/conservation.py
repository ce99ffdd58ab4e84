"""What do clients that account for their own messages report?

Each client process reports at its end how many messages it found lost, duplicated or mixed up, and how many it could
not resolve. Unresolved messages undermine every check that depends on the account; violations that were found stand.
Reads the manifest only: the ledger is judged separately.
"""

from crescendo.model.mlmq_clients import CLIENT
from crescendo.model.verdict import CONSERVATION
from crescendo.pipeline.verdict.evidence import Evidence
from crescendo.pipeline.verdict.validity import ValidityFinding
from crescendo.record.summary import Validity

NAME = "clients accounted for their messages"
UNRESOLVED = "unresolved"
_DEPENDENT_METRICS = (CONSERVATION, "lost", "lost_acknowledged", "lost_unacknowledged")


def conservation(evidence: Evidence) -> list[ValidityFinding]:
    """One finding if the experiment has clients, otherwise none."""
    if not evidence.experiment.clients:
        return []
    peers = [peer for peer in evidence.manifest.peers if peer.role == CLIENT]
    reasons = [f"{peer.id} ended without a final account" for peer in peers if UNRESOLVED not in peer.statistics]
    missing = evidence.experiment.peers.clients - len(peers)
    if missing:
        reasons.append(f"{missing} client process(es) left no account")
    for peer in peers:
        if unresolved := peer.statistics.get(UNRESOLVED, 0):
            reasons.append(f"{peer.id} could not resolve {unresolved:,.0f} of its messages or queues")
    if reasons:
        doubts = {metric: reasons for metric in _DEPENDENT_METRICS}
        return [ValidityFinding(Validity(NAME, False, "; ".join(reasons)), doubts)]
    stored = sum(peer.statistics.get("stored", 0) for peer in peers)
    return [ValidityFinding(Validity(NAME, True, f"{stored:,.0f} stored, {evidence.violations or 0:,.0f} violations"))]
