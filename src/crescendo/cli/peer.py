"""The verb `peer`: one standing sender, receiver, inspector or agent. Processes of one run are `launched_peer`."""

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from crescendo.cli.options import Control, ControlFile, TokenFile
from crescendo.model.errors import ConfigError
from crescendo.model.suggestions import listing

STANDING_ROLES = ("sender", "receiver", "inspector", "agent")


def peer(
    role: Annotated[str, typer.Argument(help="sender, receiver, inspector or agent.")],
    data: Annotated[Path, typer.Option("--data", help="The only directory that it writes to.")],
    id: Annotated[str | None, typer.Option("--id", help="Its name. Default: role, host and process number.")] = None,
    control: Control = None,
    control_file: ControlFile = None,
    token_file: TokenFile = None,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="ADDRESS",
            help="The address at which it answers. Default: the one that faces the broker.",
        ),
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option("--label", help="A label by which runs can choose it. Repeatable.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Of an agent: what it may run, and its limits.")
    ] = None,
) -> int:
    """Wait for runs of the lab that holds the same token, as a sender, receiver, inspector or agent.

    `crescendo run --standing --control URL --token-file FILE` makes use of senders, receivers and agents, `crescendo
    control` of all four.
    """
    if role not in STANDING_ROLES:
        raise ConfigError(f"no role of a standing peer is called {role!r}; {listing(role, STANDING_ROLES)}")
    from crescendo.cli.secret_options import read_token, secret_url
    from crescendo.control.peer import identity_of_this_process
    from crescendo.run.standing_peer import StandingPeer

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
