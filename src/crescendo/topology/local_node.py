"""How is a node of a network started on this machine?

As the kind of system that its program is, but from the files that were rendered for the node. So finding, starting,
awaiting, redacting and removing are those of every other system.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from crescendo.client.amqp10 import pass_a_message
from crescendo.systems.base import (
    AMQP,
    LOOPBACK_ADDRESS,
    MANAGEMENT,
    OPENWIRE,
    Blueprint,
    Installation,
    SystemKind,
    SystemSettings,
)
from crescendo.systems.install.java import PROBE_QUEUE, PROBE_TIMEOUT_S
from crescendo.systems.kinds.java_broker import ROLE, jolokia_value
from crescendo.systems.registry import system_of
from crescendo.topology.generate import Network
from crescendo.topology.graph import BROKER, ROUTER, GraphNode
from crescendo.topology.listener_ports import port_of, reached_at
from crescendo.topology.render import node_files
from crescendo.topology.rendering.access import Access

_NAMED_IN_PROBE = frozenset({"artemis", "activemq"})
"""Their probes ask for the broker by the name that a single instance has."""

_ROLES = {"normal": AMQP, "openwire": OPENWIRE, "management": MANAGEMENT}


class LocalNode:
    """The kind of system that one node is."""

    def __init__(self, network: Network, node: GraphNode, user: str, password: str) -> None:
        self._network, self._node = network, node
        self._user, self._password = user, password
        self._kind: SystemKind = system_of(node.program)
        self.name = node.program
        self.summary = self._kind.summary
        self.settings: type[SystemSettings] = self._kind.settings
        self.ports, self.declares = self._kind.ports, self._kind.declares

    @property
    def wanted_ports(self) -> dict[str, int]:
        """The ports that the topology gave to this node."""
        return {name: port for name, (_, port) in self._listeners.items()}

    @property
    def _listeners(self) -> dict[str, tuple[str, int]]:
        """Where each endpoint of the node is reached from its own machine."""
        found: dict[str, tuple[str, int]] = {}
        for entry in self._network.variables[self._node.id].get("listener", ()):
            name, port = _ROLES.get(str(entry.get("role", "normal"))), port_of(entry)
            if name in self.ports and port is not None:
                found.setdefault(name, (reached_at(entry.get("host")), port))
        return found

    def own_settings(self) -> dict[str, Any]:
        """The settings of the instance: the rendered files say everything else."""
        if self._node.type == BROKER:
            # Some of a broker's own files name the address of its management.
            listen, _ = self._listeners.get(MANAGEMENT, (LOOPBACK_ADDRESS, 0))
            return {"user": self._user, "password": self._password, "protocols": [AMQP], "listen": listen}
        return {}

    def find(self, home: Path | None, version: str | None) -> Installation:
        return self._kind.find(home, version)

    def install(self, version: str | None, progress: Callable[[str], None]) -> Installation:
        return self._kind.install(version, progress)

    def plan(self, settings: Any, installation: Installation, directory: Path, ports: Mapping[str, int]) -> Blueprint:
        blueprint = self._kind.plan(settings, installation, directory, ports)
        user, password = settings.user, settings.password or ""
        if self._node.type == ROUTER:  # it accepts every client, and signs in to brokers
            user, password = self._user, self._password
        access = Access(user, password, ROLE, str(directory), str(installation.home))
        files = node_files(self._network, self._node, access)
        # A password may be in any of these files, so the manifest shows none of them.
        endpoints = {
            name: url.replace(f"{settings.listen}:{port}", f"{host}:{port}")
            for name, url in blueprint.endpoints.items()
            for host, port in [self._listeners.get(name, (settings.listen, ports.get(name, 0)))]
        }
        return replace(
            blueprint,
            files={**blueprint.files, **files},
            secrets=blueprint.secrets | frozenset(files),
            endpoints=endpoints,
        )

    def probe(self, endpoints: Mapping[str, str], settings: Any) -> None:
        if self._node.program not in _NAMED_IN_PROBE:
            self._kind.probe(endpoints, settings)
            return
        jolokia_value(endpoints[MANAGEMENT], "/version")
        pass_a_message(endpoints[AMQP], PROBE_QUEUE, PROBE_TIMEOUT_S)
