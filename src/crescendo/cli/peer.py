"""The verb `peer`: one sender, receiver, inspector or MLMQ client process."""

import signal
from typing import TYPE_CHECKING, Annotated

import typer

from crescendo.model.errors import ConfigError

if TYPE_CHECKING:
    from crescendo.control.peer import Peer
    from crescendo.control.peer_loop import PeerLoop

ROLES = ("sender", "receiver", "inspector", "client")


def peer(
    role: Annotated[str, typer.Argument(help="sender, receiver, inspector or client.")],
    control: Annotated[str, typer.Option("--control", metavar="URL", help="The MQTT broker of the run.")],
    id: Annotated[str, typer.Option("--id", help="The name that the conductor planned for this peer.")],
) -> int:
    """Take part in a run as one process. `crescendo run` starts these itself."""
    if role not in ROLES:
        raise ConfigError(f"no role is called {role!r}; choose from {', '.join(ROLES)}")
    from crescendo.control.peer import Peer, identity_of_this_process

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the conductor, which then stops its peers
    control_peer = Peer(control, identity_of_this_process(id, role))
    _loop_of(role, control_peer).run()
    return 0


def _loop_of(role: str, control_peer: "Peer") -> "PeerLoop":
    """Imports only what the role needs."""
    if role == "inspector":
        from crescendo.inspectors.worker import InspectorWorker

        return InspectorWorker(control_peer)
    if role == "client":
        from crescendo.mlmq.workloads.worker import ClientWorker

        return ClientWorker(control_peer)
    from crescendo.load.worker import Worker

    return Worker(control_peer, role)
