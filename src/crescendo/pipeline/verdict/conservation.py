"""What do clients that account for their own messages report?

Each client process reports at its end how many messages it found lost, duplicated or mixed up, and how many it could
not resolve. Unresolved messages undermine every check that depends on the account; violations that were found stand.
Reads the manifest only: the ledger is judged separately.
"""

from collections.abc import Sequence

from crescendo.model.metrics import Metric
from crescendo.model.mlmq_clients import CLIENT
from crescendo.pipeline.verdict.evidence import Evidence
from crescendo.pipeline.verdict.rules import RuleFinding, failed, held


def clients_accounted(evidence: Evidence, metrics: Sequence[Metric]) -> RuleFinding | None:
    """None if the experiment has no clients."""
    if not evidence.experiment.clients:
        return None
    peers = [peer for peer in evidence.manifest.peers if peer.role == CLIENT]
    reasons = [f"{peer.id} ended without a final account" for peer in peers if peer.statistics.unresolved is None]
    missing = evidence.experiment.peers.clients - len(peers)
    if missing:
        reasons.append(f"{missing} client process(es) left no account")
    for peer in peers:
        if unresolved := peer.statistics.unresolved:
            reasons.append(f"{peer.id} could not resolve {unresolved:,.0f} of its messages or queues")
    if reasons:
        return failed(reasons, metrics)
    stored = sum(peer.statistics.stored or 0 for peer in peers)
    return held(f"{stored:,.0f} stored, {evidence.violations or 0:,.0f} violations")
