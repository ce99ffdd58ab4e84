"""How does one node of a system end and start while the others go on?

A system of several nodes is one instance: its files, its account and its directory are common, and the processes of
each node can be found, ended and started alone. A node that starts again serves, or stands by for another one. Decides
nothing about which node serves: they do.
"""

from collections.abc import Mapping

from crescendo.model.urls import parse_url
from crescendo.processes.child import OnFork
from crescendo.processes.ending import part_token
from crescendo.processes.ref import ProcessRef
from crescendo.systems.instance import START_TIMEOUT_S, STOP_GRACE_S, ProcessExit, RunningInstance


class InstanceNode:
    """One node of an instance, with the URLs that it serves when it is its turn."""

    def __init__(self, instance: RunningInstance, name: str, endpoints: Mapping[str, str]) -> None:
        self._instance, self.name, self.endpoints = instance, name, endpoints

    @property
    def token(self) -> str:
        return part_token(self._instance.token, self.name)

    @property
    def ports(self) -> Mapping[str, int]:
        found = {name: parse_url(url).port for name, url in self.endpoints.items()}
        return {name: port for name, port in found.items() if port is not None}

    @property
    def main_process(self) -> ProcessRef:
        return self._instance.processes_of(self.name)[-1]

    def end(self) -> None:
        """Let it shut down in order; its data on disk stays."""
        self._instance.end_node(self.name, STOP_GRACE_S)

    def crash(self) -> None:
        """Kill it without warning; its data on disk stays."""
        self._instance.end_node(self.name, 0)

    def restart(self, *, on_fork: OnFork | None = None, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start it again with its data, and return when it serves or stands by."""
        for launch in self._instance.launches_of(self.name):
            self._instance.launch(launch, on_fork)
            self._instance.await_listener(launch, timeout_s)

    def exit(self) -> ProcessExit | None:
        return self._instance.exit(self.name)


def nodes_of(instance: RunningInstance) -> dict[str, InstanceNode]:
    """The nodes that can fail alone, by name; none if the system is one."""
    endpoints = [instance.endpoints, *instance.further_nodes]
    return {
        name: InstanceNode(instance, name, urls) for name, urls in zip(instance.node_names, endpoints, strict=False)
    }
