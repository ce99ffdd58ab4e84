"""The verb `peer`: one sender, receiver, inspector or MLMQ client process."""

import signal

from crescendo.control.peer import Peer, identity_of_this_process
from crescendo.control.peer_loop import PeerLoop
from crescendo.model.errors import ConfigError

ROLES = ("sender", "receiver", "inspector", "client")


def peer(role: str, control_url: str, peer_id: str) -> int:
    if role not in ROLES:
        raise ConfigError(f"no role is called {role!r}; choose from {', '.join(ROLES)}")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the conductor, which then stops its peers
    control_peer = Peer(control_url, identity_of_this_process(peer_id, role))
    _loop_of(role, control_peer).run()
    return 0


def _loop_of(role: str, control_peer: Peer) -> PeerLoop:
    """Imports only what the role needs."""
    if role == "inspector":
        from crescendo.inspectors.worker import InspectorWorker

        return InspectorWorker(control_peer)
    if role == "client":
        from crescendo.mlmq.workloads.worker import ClientWorker

        return ClientWorker(control_peer)
    from crescendo.load.worker import Worker

    return Worker(control_peer, role)
