"""The verb `peer`: one sender, receiver or inspector process, or one of MLMQ's clients."""

import signal

from crescendo.control.peer import Peer, identity_of_this_process
from crescendo.control.peer_loop import PeerLoop
from crescendo.model.errors import ConfigError

ROLES = ("sender", "receiver", "inspector", "client")


def peer(role: str, control_url: str, peer_id: str) -> int:
    if role not in ROLES:
        raise ConfigError(f"no role is called {role!r}; choose from {', '.join(ROLES)}")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the conductor, which then tells us
    speaker = Peer(control_url, identity_of_this_process(peer_id, role))
    _life_of(role, speaker).run()
    return 0


def _life_of(role: str, speaker: Peer) -> PeerLoop:
    """Only what the role needs is loaded."""
    if role == "inspector":
        from crescendo.inspectors.worker import InspectorWorker

        return InspectorWorker(speaker)
    if role == "client":
        from crescendo.mlmq.workloads.worker import ClientWorker

        return ClientWorker(speaker)
    from crescendo.load.worker import Worker

    return Worker(speaker, role)
