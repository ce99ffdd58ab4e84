"""Can this experiment be started at all?

What only the parts above the experiment know: which systems and inspectors there are, and which protocols a system
speaks. Asked before anything is started. Opens no connection.
"""

from pathlib import Path

from crescendo.agent.configuration import read_configuration
from crescendo.inspectors.registry import inspector_of
from crescendo.model.errors import ConfigError
from crescendo.model.experiment import Experiment
from crescendo.model.experiment_parts import PROCESS
from crescendo.model.protocols import known_protocols, protocol_of
from crescendo.model.suggestions import choice
from crescendo.run.experiment_lab import check_lab_of
from crescendo.run.fault_control import check_faults_of
from crescendo.run.network_under_test import check_network_of
from crescendo.systems.registry import system_of
from crescendo.systems.settings import protocols_of, settings_of


def check_startable(experiment: Experiment) -> None:
    """Reject a system, an inspector, a protocol or a fault that is not there, and a source that an agent forbids."""
    for agent in experiment.agents:
        if agent.config is not None:
            read_configuration(Path(agent.config)).commits_of(agent.source)
    check_faults_of(experiment)
    if experiment.topology is not None:
        check_network_of(experiment)
        return
    system = experiment.system
    for inspect in experiment.inspect:
        inspector_of(inspect.kind)
        placed = inspect.url is not None or inspect.pid is not None or system.url is not None
        if not placed and inspect.kind not in {PROCESS, system.kind}:
            raise ConfigError(
                f"inspect: {inspect.kind} does not fit the system {system.kind}; give it the url to inspect"
            )
    if system.kind is None:
        return
    settings_of(system_of(system.kind), system.settings)
    check_lab_of(experiment, system_of(system.kind))
    endpoints = protocols_of(system_of(system.kind))
    spoken = [name for name, protocol in known_protocols().items() if protocol.endpoint in endpoints]
    for group in experiment.workload:
        if experiment.uses_system(group) and protocol_of(group.protocol).endpoint not in endpoints:
            raise ConfigError(
                f"workload.{group.name}.protocol: {system.kind} does not speak {group.protocol}; "
                f"{choice(group.protocol, spoken)}"
            )
