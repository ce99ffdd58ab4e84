"""One sender, receiver, inspector, agent or MLMQ client process of one run.

Started by the conductor or by a standing peer, never by hand: ROLE ID DIRECTORY, and one line of standard input with
everything else. It is apart from the verbs because loading all of them takes longer than all that a sender needs.
"""

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from crescendo.control.peer import Peer, identity_of_this_process
from crescendo.control.peer_launch import read_launch
from crescendo.model.errors import ConfigError, CrescendoError

if TYPE_CHECKING:
    from crescendo.control.peer_launch import PeerLaunch
    from crescendo.control.peer_loop import PeerLoop

EXIT_MISTAKE, EXIT_FAILED = 2, 3


def main(role: str, peer_id: str, data: str) -> int:
    try:
        _take_part(role, peer_id, Path(data))
    except CrescendoError as err:  # the last line of its log is the reason that the conductor gives
        print(f"crescendo: {err}", file=sys.stderr)
        return EXIT_MISTAKE if isinstance(err, ConfigError) else EXIT_FAILED
    return 0


def _take_part(role: str, peer_id: str, data: Path) -> None:
    given = read_launch(sys.stdin.readline(2**20))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the conductor, which then stops its peers
    control_peer = Peer(given.control, given.of_scope, identity_of_this_process(peer_id, role))
    _loop_of(role, control_peer, data, given).run(given.by_hand)


def _loop_of(role: str, control_peer: Peer, data: Path, given: "PeerLaunch") -> "PeerLoop":
    """Imports only what the role needs."""
    if role == "inspector":
        from crescendo.inspectors.worker import InspectorWorker

        return InspectorWorker(control_peer, data, given.inputs)
    if role == "agent":
        from crescendo.agent.configuration import read_configuration
        from crescendo.agent.worker import AgentWorker

        configuration = given.inputs.get(control_peer.identity.id) or given.inputs.get("agent")
        if configuration is None:
            raise ConfigError("an agent needs its configuration file")
        return AgentWorker(control_peer, data, read_configuration(Path(configuration)))
    if role == "client":
        from crescendo.mlmq.workloads.worker import ClientWorker

        return ClientWorker(control_peer, data)
    from crescendo.load.worker import Worker

    inputs = {name: Path(file) for name, file in given.inputs.items()}
    return Worker(control_peer, role, data, inputs, _jms_command)


def _jms_command() -> list[str]:
    from crescendo.systems.install.jms_clients import jms_command

    return jms_command()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
