"""How does a cluster come up, and how does it go away without a trace?

Every step looks first and does what is missing, so each can be repeated: a host that has this version is not installed
again, a peer that runs as it should is left alone, and what is gone is not missed. Hosts are worked on at the same
time. Prints nothing.
"""

import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from crescendo import __version__
from crescendo.cluster.cluster_file import ClusterHost, ClusterPlan, digest_of, read_hosts
from crescendo.cluster.control_host import (
    ControlUrl,
    access_of,
    check_reachable,
    forget_access,
    keep_access,
    kept_access,
    new_broker,
    process_of,
)
from crescendo.cluster.host_session import HostSession, on_every
from crescendo.cluster.lab_check import AnsweringPeer, check_lab
from crescendo.cluster.wheelhouse import Wheelhouse, given_wheelhouse, own_wheelhouse, wheelhouse_name
from crescendo.control.trust import Lab
from crescendo.model.errors import ConfigError, LostError
from crescendo.processes.child import end_child, launch_child
from crescendo.processes.die_with_parent import die_with_parent

_LOOK_S, _INSTALL_S, _START_S, _END_S, _ANSWER_S = 90.0, 900.0, 60.0, 60.0, 20.0
MIN_PYTHON = (3, 11)
Progress = Callable[[str], None]


@dataclass(frozen=True)
class ClusterAccess:
    """The control broker and the lab to which the peers of a cluster belong."""

    url: str  # empty: the cluster has to start a broker
    lab: Lab
    url_file: Path | None = None  # where the URL of a broker that the cluster starts is written


@dataclass(frozen=True)
class HostState:
    """What was found on one host."""

    host: ClusterHost
    peers: Mapping[str, Mapping[str, Any]]  # id -> pid, alive, version
    fault: str = ""  # why nothing could be found


@dataclass(frozen=True)
class BroughtUp:
    """What `bring_up` did, and the peers that now answer."""

    installed: list[str]  # hosts
    started: list[str]  # peers
    peers: list[AnsweringPeer]


def bring_up(plan: ClusterPlan, access: ClusterAccess, progress: Progress) -> BroughtUp:
    """Install and start what is missing, and check that a run can use it."""
    run_hook("provision", plan.provision, progress)
    hosts = read_hosts(plan.inventory, access.lab.scope.name)
    run_hook("release", plan.release, progress)
    needs_wheels = any(not host.installed for host in hosts)
    given = given_wheelhouse(plan.wheelhouse) if plan.wheelhouse and needs_wheels else None
    name = "" if not needs_wheels else given.name if given else wheelhouse_name()
    progress(f"looking at {len(hosts)} host(s)")
    looks, _ = on_every(hosts, lambda session: session.ask("look", _LOOK_S, python=session.host.installed))
    for host in hosts:
        _check_host(host, looks[host.name], given is None)
    stale = [host for host in hosts if not host.installed and looks[host.name]["installed"] != name]
    if stale:
        progress("packing wheels")
        wheels = given or own_wheelhouse()
        progress(f"installing on {', '.join(host.name for host in stale)}")
        on_every(stale, lambda session: _install(session, wheels, looks[session.host.name]))
        for host in stale:
            looks[host.name]["peers"] = {}  # they were ended
    control, brokers = _control(hosts, access, looks, progress)
    access = replace(access, url=control.url)
    progress("starting peers")
    started, _ = on_every(hosts, lambda session: _start(session, access, control, name, looks[session.host.name]))
    progress("checking ports, clocks and versions")
    peers = _checked(access, [peer.id for host in hosts for peer in host.peers])
    return BroughtUp(
        [host.name for host in stale], brokers + [peer for each in started.values() for peer in each], peers
    )


def look_at(plan: ClusterPlan, access: ClusterAccess) -> tuple[list[HostState], list[AnsweringPeer]]:
    """What is on each host, and which peers answer."""
    hosts = read_hosts(plan.inventory, access.lab.scope.name)
    looks, faults = on_every(hosts, lambda session: session.ask("look", _LOOK_S), patient=True)
    states = [
        HostState(host, looks[host.name]["peers"] if host.name in looks else {}, faults.get(host.name, ""))
        for host in hosts
    ]
    alive = [
        peer.id for state in states for peer in state.host.peers if state.peers.get(peer.id, {}).get("alive")
    ]  # fmt: skip
    brokers = [state for state in states if state.host.control is not None]
    if not all(state.peers.get(state.host.control.id, {}).get("alive") for state in brokers if state.host.control):
        return states, []  # nobody could answer
    answering, _ = check_lab(_known(access), access.lab, alive, _ANSWER_S if alive else 1.0)
    return states, answering


def logs_of(plan: ClusterPlan, lab: Lab, lines: int) -> dict[str, list[str]]:
    """The last lines that each peer printed."""
    hosts = read_hosts(plan.inventory, lab.scope.name)
    found, _ = on_every(hosts, lambda session: session.ask("logs", _LOOK_S, lines=lines)["logs"])
    return {peer: printed for logs in found.values() for peer, printed in logs.items()}


def take_down(plan: ClusterPlan, lab: Lab, progress: Progress, url_file: Path | None = None) -> int:
    """End every peer and delete what was installed. LostError names what is left, if anything is.

    `url_file` is deleted, too, if `bring_up` wrote it.
    """
    hosts = read_hosts(plan.inventory, lab.scope.name)
    progress(f"removing everything from {len(hosts)} host(s)")
    removed, _ = on_every(hosts, lambda session: session.ask("remove", _END_S))
    left = [
        f"{name}: {'processes ' + ', '.join(map(str, found['left'])) if found['left'] else 'files'} of ours are left"
        for name, found in removed.items()
        if found["left"] or found["directory"]
    ]
    if left:
        raise LostError("; ".join(left))
    for host in hosts:
        if host.control is not None and url_file is not None:
            forget_access(url_file, host.control)
    run_hook("deprovision", plan.deprovision, progress)
    return sum(found["ended"] for found in removed.values())


def run_hook(name: str, argv: Sequence[str], progress: Progress) -> None:
    """Run a command of the user; what it prints is shown as it comes. It ends with us."""
    if not argv:
        return
    progress(f"{name}: {argv[0]}")
    try:
        child = launch_child(list(argv), on_fork=die_with_parent(), stdin=subprocess.DEVNULL)
    except OSError as err:
        raise ConfigError(f"{name}: {argv[0]} cannot be started: {err.strerror}") from err
    try:
        code = child.wait()
    except BaseException:
        end_child(child, 2.0)
        raise
    if code:
        raise ConfigError(f"{name}: {argv[0]} ended with code {code}")


def _check_host(host: ClusterHost, look: Mapping[str, Any], same_machine: bool) -> None:
    version = tuple(int(part) for part in look["python"].split(".")[:2])
    if host.installed:
        if look["given"] != __version__:
            raise ConfigError(f"{host.name}: {host.installed} has Crescendo {look['given']}, and this is {__version__}")
        return
    if version < MIN_PYTHON:
        wanted = ".".join(map(str, MIN_PYTHON))
        raise ConfigError(
            f"{host.name}: {host.python} is Python {look['python']}, and {wanted} is needed; "
            "set ansible_python_interpreter"
        )
    if same_machine:
        import platform
        import sys

        if version != sys.version_info[:2] or look["machine"] != platform.machine():
            raise ConfigError(
                f"{host.name}: Python {look['python']} on {look['machine']}, and our wheels are for "
                f"{platform.python_version()} on {platform.machine()}; set ansible_python_interpreter, or name a "
                "wheelhouse in the cluster file"
            )


def _install(session: HostSession, wheels: Wheelhouse, look: Mapping[str, Any]) -> None:
    """Peers of the version that is replaced are ended first."""
    session.ask("end", _END_S, peers=sorted(look["peers"]))
    files = [(wheel.name, wheel.stat().st_size) for wheel in wheels.wheels]
    session.ask(
        "install", _INSTALL_S, wheels.wheels, name=wheels.name, files=files, requirements=list(wheels.requirements)
    )


def _control(
    hosts: Sequence[ClusterHost], access: ClusterAccess, looks: Mapping[str, Mapping[str, Any]], progress: Progress
) -> tuple[ControlUrl, list[str]]:
    """The control broker, which is started first if it belongs to the cluster; and the name of what was started."""
    found = [(host, host.control) for host in hosts if host.control is not None]
    if not found:
        return access_of(_known(access)), []
    ((host, place),) = found
    if access.url_file is None:
        raise ConfigError(
            f"{host.name}: the group control starts a broker; give --control-file FILE, where its URL is written"
        )
    kept, running = kept_access(access.url_file, place), looks[host.name]["peers"].get(place.id, {})
    if kept is not None and running.get("alive") and running["digest"] == process_of(kept, place, None)["digest"]:
        return kept, []
    progress(f"starting the control broker on {host.name}")
    control, settings = new_broker(host, place, access.url_file)
    process = process_of(control, place, settings)

    def start(session: HostSession) -> None:
        session.ask("end", _END_S, peers=[place.id])
        session.ask("start", _START_S + 30, python=host.installed, peers=[process], secrets={}, ready_s=_START_S)

    on_every([host], start)
    check_reachable(host, place)
    keep_access(control, access.url_file)
    return control, [place.id]


def _known(access: ClusterAccess) -> str:
    if not access.url:
        raise ConfigError(f"--control-file {access.url_file}: cannot be read: there is no such file")
    return access.url


def _start(
    session: HostSession,
    access: ClusterAccess,
    control: ControlUrl,
    installation: str,
    look: Mapping[str, Any],
) -> list[str]:
    host = session.host
    wanted = {}
    for peer in host.peers:
        digest = digest_of(
            peer, host.installed or installation, host.listen, control.digest, access.lab.token, __version__
        )
        wanted[peer.id] = {
            "id": peer.id, "role": peer.role, "labels": list(peer.labels), "listen": host.listen, "digest": digest,
            "version": __version__, "settings": peer.settings,
        }  # fmt: skip
    running = {
        name: found
        for name, found in look["peers"].items()
        if found["alive"] and name in wanted and found["digest"] == wanted[name]["digest"]
    }
    stays = set() if host.control is None else {host.control.id}
    if superfluous := sorted(look["peers"].keys() - running.keys() - stays):
        session.ask("end", _END_S, peers=superfluous)
    missing = [peer for name, peer in wanted.items() if name not in running]
    if not missing:
        return []
    secrets = {**control.on_host(look["directory"]), "lab.token": access.lab.token}
    answer = session.ask(
        "start", _START_S + 30, python=host.installed, peers=missing, secrets=secrets, ready_s=_START_S
    )
    return list(answer["started"])


def _checked(access: ClusterAccess, expected: list[str]) -> list[AnsweringPeer]:
    answering, missing = check_lab(access.url, access.lab, expected, _ANSWER_S)
    faults = [f"{peer.identity.id}: {fault}" for peer in answering for fault in peer.faults]
    if missing:
        faults.append(f"no answer on the control plane from {', '.join(missing)}")
    if faults:
        raise ConfigError("; ".join(faults))
    return answering
