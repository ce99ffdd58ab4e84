"""How does the system of a run start?

A kind is started in the run's own directory, or on a host of the lab; a network starts node by node; a system at a URL
must be reachable. What must exist from the start, queues and topics of the load, is declared. `stack` stops what was
started. Places no load.
"""

import contextlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crescendo.model.errors import ConfigError, PeerError
from crescendo.model.experiment import Experiment
from crescendo.model.planned_faults import SYSTEM
from crescendo.model.protocols import default_port, protocol_of_scheme
from crescendo.model.urls import parse_url
from crescendo.net.sockets import connect
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.run.experiment_lab import ExperimentLab
from crescendo.run.network_under_test import start_network
from crescendo.run.observer import RunObserver
from crescendo.run.planning import SystemUnderTest, answered_senders
from crescendo.systems.base import Surroundings, SystemKind
from crescendo.systems.install.fresh import install_fresh
from crescendo.systems.instance import start
from crescendo.systems.instance_node import nodes_of
from crescendo.systems.kinds.relay import HOPS_FILE, RELAY
from crescendo.systems.registry import system_of

_STOP_GRACE_S = 1.5  # its data is deleted anyway, and after Ctrl-C everything must end within five seconds


def start_system(
    experiment: Experiment,
    run_dir: Path,
    stack: contextlib.ExitStack,
    observer: RunObserver,
    hosts: ExperimentLab | None,
    surroundings: Mapping[str, Surroundings],
) -> tuple[SystemUnderTest, dict[str, Any]]:
    system = experiment.system
    if experiment.topology is not None:
        return start_network(experiment, run_dir, stack, observer.progress, surroundings)
    if system.url is not None:
        _check_reachable(system.url)
        protocol = protocol_of_scheme(parse_url(system.url).scheme)
        endpoints = {} if protocol is None else {protocol.endpoint: system.url}
        return SystemUnderTest(endpoints), {"url": experiment.redacted().system.url}
    kind = system_of(system.kind or "")
    observer.progress(f"starting {system.kind}")
    if hosts is not None:
        return hosts.start_system(experiment, declared_settings(kind, experiment), run_dir, _STOP_GRACE_S, stack)
    home, how = Path(system.home) if system.home else None, ""
    if system.fresh:
        installed = run_dir.resolve() / "installation"
        stack.callback(shutil.rmtree, installed, ignore_errors=True)
        home, how = install_fresh(kind, system.version, installed, observer.progress)
    instance = start(
        kind,
        declared_settings(kind, experiment),
        directory=run_dir.resolve() / "system",
        home=home,
        version=system.version,
        on_fork=die_with_parent(),
        keep_logs=run_dir / "logs",
        stop_grace_s=_STOP_GRACE_S,
        surroundings=surroundings.get(SYSTEM),
    )
    stack.callback(instance.stop)
    hop_files = {system.kind: run_dir.resolve() / "system" / HOPS_FILE} if system.kind == RELAY.name else {}
    started = SystemUnderTest(
        instance.endpoints,
        instance.pid,
        instance.exit,
        hop_files=hop_files,
        instances={SYSTEM: instance, **nodes_of(instance)},
        called=instance.called,
        further_nodes=instance.further_nodes,
    )
    return started, instance.facts | ({"fresh": how} if system.fresh else {})


def declared_settings(kind: SystemKind, experiment: Experiment) -> dict[str, Any]:
    """The settings of the file, plus the queues and topics of the load where the system must declare them at start."""
    nodes = {address.partition("?")[0] for address in _shared_addresses(experiment)}  # without selectors
    names = {
        "queues": sorted(node.removeprefix("queue://") for node in nodes if node.startswith("queue:")),
        "topics": sorted(node.removeprefix("topic://") for node in nodes if node.startswith("topic:")),
    }
    return {**{key: names[key] for key in kind.declares}, **experiment.system.settings}


def _shared_addresses(experiment: Experiment) -> set[str]:
    addresses = {
        address
        for group in experiment.workload
        for role in ("sender", "receiver")
        for address in group.shared_addresses(role)
    }
    answered = answered_senders(experiment)
    return addresses | {
        group.reply_group(sender).shared_address
        for group in experiment.workload
        for sender in answered.get(group.name, ())
    }


def _check_reachable(url: str) -> None:
    """Fail early, before anything else is started, if the system is not reachable."""
    parts = parse_url(url)
    try:
        connect(parts.host or "", parts.port or default_port(parts.scheme)).close()
    except PeerError as err:
        raise ConfigError(f"the run could not start: {err}") from err
