"""The verbs of `cluster`: peers on other machines, from nothing to ready and back."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crescendo.cli.options import Control, ControlFile, Json, TokenFile
from crescendo.model.errors import ConfigError

if TYPE_CHECKING:
    from crescendo.cluster.cluster_file import ClusterPlan
    from crescendo.cluster.lab_check import AnsweringPeer
    from crescendo.cluster.operations import HostState
    from crescendo.control.trust import Lab

CLUSTER_HELP = (
    "Peers on other machines, over ssh.\n\n"
    "An Ansible inventory names the machines: those of the groups senders, receivers and inspectors run standing "
    "peers, which [bold]crescendo run --standing[/bold] uses."
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
    """Install Crescendo on every host, start the peers, and check ports, clocks and versions. Repeat it freely."""
    from crescendo.cli.terminal import Progress
    from crescendo.cluster.operations import ClusterAccess, bring_up

    plan = _plan(inventory)
    url, lab = _control(plan, control, control_file), _lab(plan, token_file)
    with Progress() as progress:
        done = bring_up(plan, ClusterAccess(url, lab), progress)
    if as_json:
        print(json.dumps({"installed": done.installed, "started": done.started, "peers": _rows([], done.peers)}))
        return 0
    _print_peers(_rows([], done.peers))
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
    from crescendo.cluster.operations import ClusterAccess, look_at

    plan = _plan(inventory)
    states, answering = look_at(
        plan, ClusterAccess(_control(plan, control, control_file), _lab(plan, token_file))
    )  # fmt: skip
    rows = _rows(states, answering)
    if as_json:
        print(json.dumps(rows))
    else:
        _print_peers(rows)
        for state in states:
            if state.fault:
                print(f"{state.host.name}: {state.fault}")
    return 0 if all(row["ready"] for row in rows) and not any(state.fault for state in states) else 1


def logs(
    inventory: Inventory,
    token_file: TokenFile = None,
    lines: Annotated[int, typer.Option("--lines", min=1, max=10_000, help="How many of each peer.")] = 20,
    as_json: Json = False,
) -> int:
    """Show the last lines that every peer printed."""
    from crescendo.cluster.operations import logs_of

    plan = _plan(inventory)
    found = logs_of(plan, _lab(plan, token_file), lines)
    if as_json:
        print(json.dumps(found))
        return 0
    for peer, said in found.items():
        print(f"== {peer}")
        print("\n".join(said))
    return 0


def down(inventory: Inventory, token_file: TokenFile = None) -> int:
    """End every peer and remove everything that `up` made, installation and recordings included."""
    from crescendo.cli.terminal import Progress
    from crescendo.cluster.operations import take_down

    plan = _plan(inventory)
    with Progress() as progress:
        ended = take_down(plan, _lab(plan, token_file), progress)
    print(f"{ended} peer(s) ended, nothing is left")
    return 0


def _plan(path: Path) -> "ClusterPlan":
    from crescendo.cluster.cluster_file import read_plan

    return read_plan(path)


def _control(plan: "ClusterPlan", control: str | None, control_file: str | None) -> str:
    from crescendo.cli.secret_options import secret_url

    file = control_file or (None if control or plan.control_file is None else str(plan.control_file))
    url = secret_url("--control", control, file)
    if url is None:
        raise ConfigError(
            "a cluster needs a control broker that every host reaches: give --control URL, --control-file "
            "FILE, or control_file in the cluster file"
        )
    return url


def _lab(plan: "ClusterPlan", token_file: str | None) -> "Lab":
    from crescendo.cli.secret_options import read_token

    lab = read_token(token_file or (None if plan.token_file is None else str(plan.token_file)))
    if lab is None:
        raise ConfigError(
            "a cluster belongs to a lab: give --token-file FILE, or token_file in the cluster file; make one with: "
            "(umask 077; openssl rand -hex 32 > lab.token)"
        )
    return lab


def _rows(states: "list[HostState]", answering: "list[AnsweringPeer]") -> list[dict[str, Any]]:
    """One row per peer: those that answer, and those that are only known to their host."""
    answers = {peer.identity.id: peer for peer in answering}
    known = {peer.id: state for state in states for peer in state.host.peers}
    rows = []
    for name in sorted(answers.keys() | known.keys()):
        answer, state = answers.get(name), known.get(name)
        process = {} if state is None else state.peers.get(name, {})
        faults = list(answer.faults) if answer else ["not running" if not process.get("alive") else "does not answer"]
        rows.append(
            {
                "peer": name,
                "host": answer.identity.host if answer else "" if state is None else state.host.name,
                "role": answer.identity.role if answer else name.partition("-")[0],
                "pid": answer.identity.pid if answer else process.get("pid"),
                "state": answer.state if answer else "",
                "run": answer.run if answer else "",
                "version": answer.version if answer else process.get("version", ""),
                "cores": answer.cores if answer else None,
                "clock_offset_ns": answer.clock_offset_ns if answer else None,
                "clock_bound_ns": answer.clock_bound_ns if answer else None,
                "faults": faults,
                "ready": not faults,
            }
        )
    return rows


def _print_peers(rows: list[dict[str, Any]]) -> None:
    from crescendo.model.units import format_ns

    for row in rows:
        offset, bound = row["clock_offset_ns"], row["clock_bound_ns"]
        clock = "" if offset is None else f"clock {offset / 1e9:+.6f} s ± {format_ns(bound)}"
        said = "; ".join(row["faults"]) or " ".join(filter(None, (row["state"], row["run"])))
        print(f"{row['peer']:28} {row['host']:20} {row['version']:10} {said:12} {clock}".rstrip())
    sys.stdout.flush()


CLUSTER_VERBS: dict[str, Callable[..., int]] = {"up": up, "status": status, "logs": logs, "down": down}
"""In the order of the help."""
