"""The verbs of `cluster`: peers on other machines, from nothing to ready and back."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from crescendo.cli.options import Control, ControlFile, Json, TokenFile
from crescendo.model.errors import ConfigError

if TYPE_CHECKING:
    from crescendo.cluster.cluster_file import ClusterPlan
    from crescendo.cluster.cluster_lifecycle import ClusterAccess
    from crescendo.cluster.peer_rows import PeerRow
    from crescendo.control.trust import Lab

CLUSTER_HELP = (
    "Peers on other machines, over ssh.\n\n"
    "An Ansible inventory names the machines: those of the groups senders, receivers, inspectors and agents run "
    "standing peers, which [bold]crescendo run --standing[/bold] uses; the host of the group control runs their broker."
)

Inventory = Annotated[
    Path, typer.Argument(metavar="INVENTORY", help="An Ansible inventory (INI or YAML), or a cluster file (YAML).")
]


def up(
    inventory: Inventory,
    control: Control = None,
    control_file: ControlFile = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> int:
    """Install Crescendo on every host, start the peers, and check ports, clocks and versions. Repeat it freely.

    If the inventory has the group control, --control-file is where the URL of the broker is written.
    """
    from crescendo.cli.terminal import Progress
    from crescendo.cluster.cluster_lifecycle import bring_up
    from crescendo.cluster.peer_rows import peer_rows

    plan = _plan(inventory)
    access = _access(plan, control, control_file, token_file)
    with Progress() as progress:
        done = bring_up(plan, access, progress)
    if as_json:
        shown = {"installed": done.installed, "started": done.started, "peers": peer_rows([], done.peers)}
        print(msgspec.json.encode(shown).decode())
        return 0
    _print_peers(peer_rows([], done.peers))
    print(f"{len(done.peers)} peer(s) are ready; {len(done.started)} started, {len(done.installed)} host(s) installed")
    return 0


def status(
    inventory: Inventory,
    control: Control = None,
    control_file: ControlFile = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> int:
    """Show every peer: whether it runs, answers, and with which clock. The exit code is 1 if one does not."""
    from crescendo.cluster.cluster_lifecycle import look_at
    from crescendo.cluster.peer_rows import peer_rows

    plan = _plan(inventory)
    states, answering = look_at(plan, _access(plan, control, control_file, token_file))
    rows = peer_rows(states, answering)
    if as_json:
        print(msgspec.json.encode(rows).decode())
    else:
        _print_peers(rows)
        for state in states:
            if state.fault:
                print(f"{state.host.name}: {state.fault}")
    return 0 if all(row.ready for row in rows) and not any(state.fault for state in states) else 1


def logs(
    inventory: Inventory,
    token_file: TokenFile = None,
    lines: Annotated[int, typer.Option("--lines", min=1, max=10_000, help="How many of each peer.")] = 20,
    as_json: Json = False,
) -> int:
    """Show the last lines that every peer printed."""
    from crescendo.cluster.cluster_lifecycle import logs_of

    plan = _plan(inventory)
    found = logs_of(plan, _lab(plan, token_file), lines)
    if as_json:
        print(json.dumps(found))
        return 0
    for peer, printed in found.items():
        print(f"== {peer}")
        print("\n".join(printed))
    return 0


def down(inventory: Inventory, control_file: ControlFile = None, token_file: TokenFile = None) -> int:
    """End every peer and remove everything that `up` made, installation and recordings included."""
    from crescendo.cli.terminal import Progress
    from crescendo.cluster.cluster_lifecycle import take_down

    plan = _plan(inventory)
    with Progress() as progress:
        ended = take_down(plan, _lab(plan, token_file), progress, _control_path(plan, control_file))
    print(f"{ended} peer(s) ended, nothing is left")
    return 0


def _plan(path: Path) -> "ClusterPlan":
    from crescendo.cluster.cluster_file import read_plan

    return read_plan(path)


def _access(
    plan: "ClusterPlan", control: str | None, control_file: str | None, token_file: str | None
) -> "ClusterAccess":
    """The broker and the lab of a cluster; a file that is not there yet is where `up` may write the URL."""
    from crescendo.cli.secret_options import secret_url
    from crescendo.cluster.cluster_lifecycle import ClusterAccess

    path = None if control else _control_path(plan, control_file)
    if path is not None and not path.exists():
        return ClusterAccess("", _lab(plan, token_file), path)
    url = secret_url("--control", control, control_file or (None if path is None else str(path)))
    if url is None:
        raise ConfigError(
            "a cluster needs a control broker that every host reaches: give --control URL, --control-file "
            "FILE, or control_file in the cluster file"
        )
    return ClusterAccess(url, _lab(plan, token_file), path)


def _control_path(plan: "ClusterPlan", control_file: str | None) -> Path | None:
    """The file of the URL; None if that comes from standard input or from nowhere."""
    return plan.control_file if control_file is None else None if control_file == "-" else Path(control_file)


def _lab(plan: "ClusterPlan", token_file: str | None) -> "Lab":
    from crescendo.cli.secret_options import read_token

    lab = read_token(token_file or (None if plan.token_file is None else str(plan.token_file)))
    if lab is None:
        raise ConfigError(
            "a cluster belongs to a lab: give --token-file FILE, or token_file in the cluster file; make one with: "
            "(umask 077; openssl rand -hex 32 > lab.token)"
        )
    return lab


def _print_peers(rows: "list[PeerRow]") -> None:
    from crescendo.model.units import format_ns

    for row in rows:
        offset_ns, bound_ns = row.clock_offset_ns, row.clock_bound_ns
        known = offset_ns is not None and bound_ns is not None
        clock = f"clock {(offset_ns or 0) / 1e9:+.6f} s ± {format_ns(bound_ns or 0)}" if known else ""
        condition = "; ".join(row.faults) or " ".join(filter(None, (row.state, row.run)))
        print(f"{row.peer:28} {row.host:20} {row.version:10} {condition:12} {clock}".rstrip())
    sys.stdout.flush()


CLUSTER_VERBS: dict[str, Callable[..., int]] = {"up": up, "status": status, "logs": logs, "down": down}
"""In the order of the help."""
