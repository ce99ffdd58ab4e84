"""The verb `peer`: one sender, receiver, inspector, agent or MLMQ client process, of one run or standing."""

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crescendo.cli.options import Control, ControlFile, TokenFile
from crescendo.model.errors import ConfigError
from crescendo.model.suggestions import listing

if TYPE_CHECKING:
    from crescendo.control.peer import Peer
    from crescendo.control.peer_launch import PeerLaunch
    from crescendo.control.peer_loop import PeerLoop

ROLES = ("sender", "receiver", "inspector", "agent", "client")
STANDING_ROLES = ("sender", "receiver", "inspector", "agent")


def peer(
    role: Annotated[str, typer.Argument(help="sender, receiver, inspector or agent. In a run also: client.")],
    data: Annotated[Path, typer.Option("--data", help="The only directory that it writes to.")],
    id: Annotated[str | None, typer.Option("--id", help="Its name. Default: role, host and process number.")] = None,
    control: Control = None,
    control_file: ControlFile = None,
    token_file: TokenFile = None,
    listen: Annotated[
        str | None,
        typer.Option("--listen", metavar="ADDRESS", help="Where it answers. Default: the one towards the broker."),
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option("--label", help="A word that runs can choose it by. Repeatable.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Of an agent: what it may run, and its limits.")
    ] = None,
    launch: Annotated[bool, typer.Option("--launch", hidden=True, help="Read what `run` writes to its peers.")] = False,
) -> int:
    """Wait for runs of the lab that holds the same token, as a sender, receiver, inspector or agent.

    `crescendo run --standing --control URL --token-file FILE` makes use of senders, receivers and agents, `crescendo
    control` of all four.
    """
    if role not in ROLES:
        raise ConfigError(f"no role is called {role!r}; {listing(role, ROLES)}")
    if launch:
        return _take_part(role, id or role, data)
    from crescendo.cli.secret_options import read_token, secret_url
    from crescendo.control.peer import identity_of_this_process
    from crescendo.run.standing_peer import StandingPeer

    if role not in STANDING_ROLES:
        raise ConfigError(f"a standing peer is one of {', '.join(STANDING_ROLES)}; a run starts its own {role}s")
    url = secret_url("--control", control, control_file)
    lab = read_token(token_file)
    if url is None or lab is None:
        raise ConfigError("a standing peer needs --control URL (or --control-file) and --token-file FILE")
    files = _own_files(role, config)
    own = identity_of_this_process("", role)
    name = id or f"{role}-{own.host}-{own.pid}"
    standing = StandingPeer(url, lab, role, name, data, listen=listen, labels=label or (), files=files)
    print(f"{name} waits for runs of {lab.scope.name}; Ctrl-C ends it", file=sys.stderr, flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # with its children
    try:
        standing.run()
    except KeyboardInterrupt:
        return 0
    return 0


def _own_files(role: str, config: Path | None) -> dict[str, str]:
    """The configuration of an agent, which is read here once to reject mistakes."""
    if (role == "agent") != (config is not None):
        raise ConfigError("--config FILE is for an agent, which needs one: what it may run, and its limits")
    if config is None:
        return {}
    from crescendo.agent.configuration import read_configuration

    read_configuration(config)
    return {role: str(config.resolve())}


def _take_part(role: str, peer_id: str, data: Path) -> int:
    """One process of one run, which was started by its conductor or by a standing peer."""
    from crescendo.control.peer import Peer, identity_of_this_process
    from crescendo.control.peer_launch import read_launch

    given = read_launch(sys.stdin.readline(2**20))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the conductor, which then stops its peers
    control_peer = Peer(given.control, given.of_scope, identity_of_this_process(peer_id, role))
    _loop_of(role, control_peer, data, given).run(given.by_hand)
    return 0


def _loop_of(role: str, control_peer: "Peer", data: Path, given: "PeerLaunch") -> "PeerLoop":
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
