"""In which state is every peer of a cluster?

Joins what peers answer with what their hosts know about processes. Connects to nobody.
"""

from msgspec import Struct

from crescendo.cluster.cluster_lifecycle import HostState
from crescendo.cluster.lab_check import AnsweringPeer


class PeerRow(Struct, frozen=True):
    """What is known about one peer."""

    peer: str
    host: str
    role: str
    pid: int | None = None
    state: str = ""
    run: str = ""
    version: str = ""
    cores: int | None = None
    clock_offset_ns: int | None = None  # None: the conductor's own clock, or unknown
    clock_bound_ns: int | None = None
    faults: list[str] = []
    ready: bool = False


def peer_rows(states: list[HostState], answering: list[AnsweringPeer]) -> list[PeerRow]:
    """One row per peer: those that answer, and those that are only known to their host."""
    answers = {peer.identity.id: peer for peer in answering}
    known = {peer.id: state for state in states for peer in state.host.peers}
    known |= {state.host.control.id: state for state in states if state.host.control is not None}
    return [_row(name, answers.get(name), known.get(name)) for name in sorted(answers.keys() | known.keys())]


def _row(name: str, answer: AnsweringPeer | None, state: HostState | None) -> PeerRow:
    if answer is not None:
        identity = answer.identity
        return PeerRow(
            peer=name,
            host=identity.host,
            role=identity.role,
            pid=identity.pid,
            state=answer.state,
            run=answer.run,
            version=answer.version,
            cores=answer.cores,
            clock_offset_ns=answer.clock_offset_ns,
            clock_bound_ns=answer.clock_bound_ns,
            faults=list(answer.faults),
            ready=not answer.faults,
        )
    process = {} if state is None else state.peers.get(name, {})
    alive = bool(process.get("alive"))
    is_broker = state is not None and state.host.control is not None and state.host.control.id == name
    serves = is_broker and alive  # whether it answers is known from the peers
    return PeerRow(
        peer=name,
        host="" if state is None else state.host.name,
        role=name.partition("-")[0],
        pid=process.get("pid"),
        state="serving" if serves else "",
        version=process.get("version", ""),
        faults=[] if serves else ["does not answer" if alive else "not running"],
        ready=serves,
    )
