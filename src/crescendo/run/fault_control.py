"""How does a run break its own system, and stay alive?

The faults of an experiment are checked before anything starts, aimed at the systems that the run started, and carried
out from the start of the load on. A node that a fault has ended counts as ended on purpose. What happened becomes
events of the recording. An experiment without faults starts no guardian and no thread.
"""

import contextlib
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from crescendo.agent.handler_fault import AGENT_TARGET
from crescendo.control.conductor.commands import RecordEvent
from crescendo.faults.action import NODE, FaultAction, Length
from crescendo.faults.disk import DISK
from crescendo.faults.executor import CURE_FAILED, FAULT_FAILED, FaultExecutor
from crescendo.faults.registry import action_of
from crescendo.lab.link_faults import HOST, HandoffSettings
from crescendo.model.errors import ConfigError, CrescendoError
from crescendo.model.experiment import Experiment
from crescendo.model.fault_schedule import ScheduledFault, fault_schedule
from crescendo.model.planned_faults import SYSTEM, PlannedFault
from crescendo.model.suggestions import choice
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.processes.ref import ProcessRef
from crescendo.run.breakable_surroundings import (
    NEEDS_SURROUNDINGS,
    BreakableSurroundings,
    SystemSurroundings,
    breakable_surroundings,
)
from crescendo.run.planning import SystemUnderTest
from crescendo.systems.base import Surroundings, SystemSettings
from crescendo.systems.instance import ProcessExit, RunningInstance
from crescendo.systems.instance_node import InstanceNode
from crescendo.systems.registry import system_of
from crescendo.systems.settings import settings_of
from crescendo.topology.graph import CLIENT
from crescendo.topology.topology_file import load_topology


def check_faults_of(experiment: Experiment) -> None:
    """Reject actions, settings and targets that there are not, and what cannot be done on this machine."""
    for number, planned in enumerate(experiment.faults):
        try:
            action, settings = _action_and_settings(planned)
            _check_length(action, planned)
            if action.acts_on == NODE:
                _check_node(experiment, planned)
            elif action.acts_on == AGENT_TARGET:
                _check_agent(experiment, planned)
            elif action.acts_on == HOST:
                _check_host(experiment, planned, settings)
            reason = action.why_not(settings)
        except ConfigError as err:
            raise ConfigError(f"faults[{number}].{err}") from None
        if reason:
            raise ConfigError(f"faults[{number}].do: {planned.do} cannot be done here: {reason}")


def _action_and_settings(planned: PlannedFault) -> tuple[FaultAction[Any, Any], Struct]:
    action = action_of(planned.do)
    return action, action.settings_of(planned.settings)


def _check_length(action: FaultAction[Any, Any], planned: PlannedFault) -> None:
    if action.length is Length.NONE and planned.lasts is not None:
        raise ConfigError(f"for: {action.name} has no length; remove it")
    if action.length is Length.REQUIRED and planned.lasts is None:
        raise ConfigError(f"for: {action.name} needs a length, such as for: 10s")


def _check_node(experiment: Experiment, planned: PlannedFault) -> None:
    if experiment.lab is not None:
        raise ConfigError(f"do: {planned.do} is for nodes; on hosts of a lab there are cut, impair and handoff")
    if experiment.topology is not None:
        nodes = load_topology(Path(experiment.topology)).graph.nodes
        names = [node.id for node in nodes if node.type != CLIENT]
    elif experiment.system.kind is not None:
        names = [SYSTEM, *_settings_of_system(experiment).node_names]
    else:
        raise ConfigError("on: Crescendo did not start the system, so it does not break it; give system.kind")
    if planned.on not in names:
        raise ConfigError(f"on: there is no node {planned.on!r}; {choice(planned.on, names)}")
    if planned.do in NEEDS_SURROUNDINGS and experiment.topology is None and planned.on != SYSTEM:
        _check_surroundings(experiment, planned)


def _check_surroundings(experiment: Experiment, planned: PlannedFault) -> None:
    """Of a node of a system that is one instance."""
    if planned.do == DISK.name and planned.on not in _settings_of_system(experiment).node_data:
        raise ConfigError("on: these nodes keep no messages on a disk of their own; leave it out")
    if any(other.do == planned.do and other.on == SYSTEM for other in experiment.faults):
        raise ConfigError(f"on: {planned.do} breaks the whole system or its nodes, not both in one experiment")


def _settings_of_system(experiment: Experiment) -> SystemSettings:
    return settings_of(system_of(experiment.system.kind or ""), experiment.system.settings)


def _check_agent(experiment: Experiment, planned: PlannedFault) -> None:
    names = [agent.name for agent in experiment.agents]
    if planned.on not in names:
        known = choice(planned.on, names) if names else "agents: lists none"
        raise ConfigError(f"on: there is no agent {planned.on!r}; {known}")


def _check_host(experiment: Experiment, planned: PlannedFault, settings: Struct) -> None:
    if experiment.lab is None:
        raise ConfigError(f"do: {planned.do} is for hosts of a lab, and this experiment has no key lab")
    if planned.on not in experiment.lab.hosts:
        raise ConfigError(f"on: the lab has no host {planned.on!r}; {choice(planned.on, experiment.lab.hosts)}")
    if not isinstance(settings, HandoffSettings):
        return
    if experiment.lab.hosts[planned.on].access_point is None:
        raise ConfigError(f"on: {planned.on} has a cable; give it an access_point, so that it can leave it")
    if planned.every is not None and planned.every <= settings.delay + settings.spread:
        raise ConfigError("every: the station would leave again before it has joined; make it longer than with.delay")
    for name in settings.walk:
        if name not in experiment.lab.access_points:
            raise ConfigError(f"with.to: {name!r} is not an access point; {choice(name, experiment.lab.access_points)}")


class NodeUnderFaults:
    """One system that this run started, as actions see it."""

    def __init__(
        self,
        name: str,
        instance: RunningInstance | InstanceNode,
        surroundings: "BreakableSurroundings | None" = None,
    ) -> None:
        self.name, self._instance = name, instance
        self._surroundings = surroundings or BreakableSurroundings()
        self._lock = threading.RLock()
        self._is_down = self._is_changing = self._given_up = False

    @property
    def is_down(self) -> bool:
        """Whether a fault keeps it down."""
        return self._is_down

    @property
    def token(self) -> str:
        return self._instance.token

    @property
    def ports(self) -> list[int]:
        return list(self._instance.ports.values())

    @property
    def main_process(self) -> ProcessRef:
        return self._instance.main_process

    @property
    def disk(self) -> Path | None:
        return self._surroundings.disk

    @property
    def clock_file(self) -> Path | None:
        return self._surroundings.clock_file

    def end(self) -> None:
        with self._lock:
            self._is_down = self._is_changing = True
            try:
                self._instance.end()
            finally:
                self._is_changing = False

    def kill(self) -> None:
        with self._lock:
            self._is_down = True
            self._instance.crash()

    def start(self) -> None:
        with self._lock:
            if not self._is_down or self._given_up:
                return
            self._is_changing = True
            try:
                self._instance.restart(on_fork=die_with_parent())
                self._is_down = False
            except CrescendoError:
                if not self._given_up:  # otherwise it was killed on purpose while it started
                    raise
            finally:
                self._is_changing = False

    def give_up(self) -> None:
        """The run is over: a start or an end that is under way is not awaited."""
        self._given_up = True
        if self._is_changing:
            self._instance.crash()

    def exit(self) -> ProcessExit | None:
        """How it ended by itself; None while it runs, and while a fault is in charge of it."""
        if self._is_down or not self._lock.acquire(blocking=False):
            return None
        try:
            return None if self._is_down else self._instance.exit()
        finally:
            self._lock.release()


class FaultControl:
    """The faults of one run."""

    def __init__(self, experiment: Experiment, stack: contextlib.ExitStack) -> None:
        """Before the system starts: `stack` ends the threads after it, because restarted nodes die with them."""
        self._nodes: dict[str, NodeUnderFaults] = {}
        self._executor: FaultExecutor | None = None
        self.failure = ""
        self._surroundings: dict[str, SystemSurroundings] = {}
        schedule = fault_schedule(experiment)
        if schedule:
            self._executor = FaultExecutor([_planned_action(scheduled) for scheduled in schedule])
            stack.callback(self._executor.end_threads)

    def surroundings(self, experiment: Experiment, run_dir: Path) -> dict[str, Surroundings]:
        """System, or node of a network -> what it must be started with, so that the faults can happen to it."""
        wanted = [fault for fault in experiment.faults if fault.do in NEEDS_SURROUNDINGS]
        if self._executor is None or not wanted:
            return {}
        place, owe = run_dir.resolve(), self._executor.owe
        if experiment.topology is None:
            data = _settings_of_system(experiment).node_data
            self._surroundings = {SYSTEM: breakable_surroundings(wanted, place / SYSTEM, place, owe, data)}
        for node in {fault.on for fault in wanted} if experiment.topology is not None else ():
            own = [structs.replace(fault, on=SYSTEM) for fault in wanted if fault.on == node]
            self._surroundings[node] = breakable_surroundings(own, place / SYSTEM / node, place, owe)
        return {name: each.given for name, each in self._surroundings.items()}

    def aim(
        self, system: SystemUnderTest, stack: contextlib.ExitStack, others: Mapping[str, Mapping[str, Any]]
    ) -> SystemUnderTest:
        """Find the targets; the returned system does not count as ended while a fault keeps it down."""
        if self._executor is None:
            return system
        around = {
            node if name == SYSTEM else name: found
            for name, each in self._surroundings.items()
            for node, found in each.of.items()
        }
        self._nodes = {
            name: NodeUnderFaults(name, instance, around.get(name)) for name, instance in system.instances.items()
        }
        stack.callback(self.close)
        self._executor.aim({NODE: self._nodes, **others})
        return replace(system, exit=self._exit) if self._nodes else system

    def arm(self, t0_ns: int) -> None:
        """The load starts at this time."""
        if self._executor is not None:
            self._executor.arm(t0_ns)

    @property
    def is_passing(self) -> bool:
        """Whether a fault is active that will be undone before the run ends."""
        return self._executor is not None and self._executor.is_passing

    def take_events(self) -> list[RecordEvent]:
        """What happened since the last call, as events of the recording."""
        events = [] if self._executor is None else self._executor.take_events()
        for event in events:
            if event.kind in {FAULT_FAILED, CURE_FAILED} and not self.failure:
                self.failure = f"{event.kind}: {event.detail['do']} on {event.detail['on']}: {event.detail['reason']}"
        return [RecordEvent(event.t_ns, event.kind, event.detail) for event in events]

    def close(self) -> None:
        """Cause no more faults, and undo those that are active."""
        for node in self._nodes.values():
            node.give_up()
        if self._executor is not None:
            self._executor.close()

    def _exit(self) -> ProcessExit | None:
        whole = self._nodes.get(SYSTEM)
        if whole is not None and whole.is_down:
            return None  # and so are its nodes
        for name, node in self._nodes.items():
            if node is whole and len(self._nodes) > 1:
                continue  # its processes are those of its nodes
            if (ended := node.exit()) is not None:
                return ended if name == SYSTEM else ended._replace(how=f"node {name}: {ended.how}")
        return None


def _planned_action(scheduled: ScheduledFault) -> tuple[ScheduledFault, FaultAction[Any, Any], Struct]:
    return scheduled, *_action_and_settings(scheduled.planned)
