"""What does the manifest of a finished run say?

How the run and each of its peers ended, the phases, the clocks, and every part with its hash. Nothing is added after
that. A host whose clock was not compared is an error, not a guess.
"""

from pathlib import Path

import msgspec

from crescendo.control.conductor.commands import PeerEnding, RunEnding
from crescendo.control.notes import Statistics
from crescendo.model.errors import LostError
from crescendo.model.peer_statistics import PeerStatistics
from crescendo.record.manifest import Clock, ExceededLimit, Manifest, PeerRecord, PeerRole, Phase, State, write_manifest
from crescendo.record.reader import journalled_parts
from crescendo.run.result import RunResult


def seal_run(run_dir: Path, manifest: Manifest, ending: RunEnding, durable: bool) -> RunResult:
    state = State(ending.state)
    peers = [
        PeerRecord(
            id=peer.id,
            role=_role(peer),
            host=peer.identity.host if peer.identity else "",
            pid=peer.identity.pid if peer.identity else 0,
            ended=peer.ended,
            reason=peer.reason,
            statistics=_statistics(peer.statistics),
        )
        for peer in ending.peers
    ]
    sealed = msgspec.structs.replace(
        manifest,
        state=state,
        reason=ending.reason,
        exceeded=None
        if (end := ending.exceeded) is None
        else ExceededLimit(end.metric, end.value_ns, end.limit_ns, end.peer),
        peers=peers,
        clocks=_clocks(manifest, ending),
        phases=[Phase(name, start_ns, end_ns) for name, start_ns, end_ns in ending.phases],
        files=sorted(journalled_parts(run_dir), key=lambda part: part.path),
    )
    write_manifest(run_dir, sealed, durable=durable)
    return RunResult(run_dir, state, ending.reason)


def _role(peer: PeerEnding) -> PeerRole:
    """As the peer says, because to the conductor clients are senders; as planned, if it says nonsense or nothing."""
    stated_role = peer.identity.role if peer.identity else ""
    return PeerRole(stated_role if stated_role in list(PeerRole) else peer.role)


def _statistics(reported: Statistics | None) -> PeerStatistics:
    if reported is None:
        return PeerStatistics()
    return msgspec.structs.replace(reported.values, messages=float(reported.messages))


def _clocks(manifest: Manifest, ending: RunEnding) -> list[Clock]:
    """The clocks of all hosts that took part; one that was not compared may not."""
    hosts = {peer.identity.host for peer in ending.peers if peer.identity}
    unknown = hosts - {clock.host for clock in manifest.clocks}
    if unknown:
        raise LostError(f"the clock of {', '.join(sorted(unknown))} has not been compared with the conductor's")
    return manifest.clocks
