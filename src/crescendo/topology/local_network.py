"""How does a whole network run on this machine?

Every node on free ports of the loopback interface: brokers first, a few at once, then routers, then a look at every
link. If a node does not start or a link does not come up, that is one sentence with its name, and everything started so
far is stopped. Leaves no process and no file behind.
"""

import contextlib
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from crescendo.model.errors import ConfigError, PeerError
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.systems.base import Surroundings
from crescendo.systems.instance import START_TIMEOUT_S, RunningInstance, start
from crescendo.systems.ports import HOST, choose_ports
from crescendo.topology.generate import Network, generate
from crescendo.topology.graph import BROKER, CLIENT, ROUTER, Entry, GraphNode
from crescendo.topology.link_status import unconnected_links
from crescendo.topology.local_node import LocalNode
from crescendo.topology.rendering.routers import PROGRAMS
from crescendo.topology.topology_file import Topology

USER = "crescendo"
LINKS_TIMEOUT_S = 40.0
_AT_ONCE = 4
"""How many nodes start together: a JVM alone leaves cores idle, and many of them would take each other's memory."""


def local_network(topology: Topology) -> Network:
    """The same network with every node on this machine, on ports that are free now."""
    first = generate(_placed_here(topology, {}))
    wanted = [
        f"{name} {entry.get('role', 'normal')} {at}"
        for name, values in first.variables.items()
        for at, entry in enumerate(values.get("listener", ()))
    ]
    ports = choose_ports(wanted, {})
    listeners: dict[str, list[Entry]] = {name: [] for name in first.variables}
    for name, values in first.variables.items():
        for at, entry in enumerate(values.get("listener", ())):
            port = ports[f"{name} {entry.get('role', 'normal')} {at}"]
            listeners[name].append({**entry, "host": HOST, "port": port})
    return generate(_placed_here(topology, listeners))


def _placed_here(topology: Topology, listeners: Mapping[str, list[Entry]]) -> Topology:
    nodes = []
    for node in topology.graph.nodes:
        if node.sections.get("connector"):
            raise ConfigError(f"node {node.id}: leave written connectors out of a local network; its links connect it")
        sections = {**node.sections, "listener": listeners[node.id]} if node.id in listeners else node.sections
        nodes.append(
            msgspec.structs.replace(
                node,
                address=HOST,
                shares_machine=True,
                sections=sections,
                program=node.program or (_router_program() if node.type == ROUTER else ""),
            )
        )
    graph = msgspec.structs.replace(topology.graph, nodes=tuple(nodes))
    return msgspec.structs.replace(topology, graph=graph)


def _router_program() -> str:
    """The first choice is a real router; the relay stands in where there is none."""
    for program, (command, _) in PROGRAMS.items():
        if shutil.which(command):
            return program
    return "relay"


@contextlib.contextmanager
def running_network(
    network: Network,
    directory: Path,
    progress: Callable[[str], None] = lambda _: None,
    *,
    keep_logs: Path | None = None,
    surroundings: Mapping[str, Surroundings] | None = None,
) -> Iterator[dict[str, RunningInstance]]:
    """Start all nodes, and stop all of them at the end, whatever happens."""
    password = secrets.token_urlsafe(12)
    nodes = [node for node in network.graph.nodes if node.type != CLIENT]
    with contextlib.ExitStack() as started:
        running: dict[str, RunningInstance] = {}
        for wanted in (BROKER, ROUTER):  # routers look for their brokers
            of_type = [node for node in nodes if node.type == wanted]
            for some in [of_type[at : at + _AT_ONCE] for at in range(0, len(of_type), _AT_ONCE)]:
                for node in some:
                    progress(f"starting {node.id} ({node.program})")
                    around = None if surroundings is None else surroundings.get(node.id)
                    running[node.id] = _launch(network, node, directory, password, keep_logs, around)
                    started.callback(running[node.id].stop)
                for node in some:
                    _await_service(node, running[node.id])
        for node in nodes:
            if network.variables[node.id].get("connector"):
                progress(f"waiting for the links of {node.id}")
            await_links(network, node, running[node.id])
        yield running


def _launch(
    network: Network,
    node: GraphNode,
    directory: Path,
    password: str,
    keep_logs: Path | None,
    surroundings: Surroundings | None,
) -> RunningInstance:
    try:
        kind = LocalNode(network, node, USER, password)
        return start(
            kind,
            kind.own_settings(),
            directory=directory / node.id,
            ports=kind.wanted_ports,
            on_fork=die_with_parent(),
            keep_logs=keep_logs and keep_logs / node.id,
            waits=False,
            surroundings=surroundings,
        )
    except ConfigError as err:
        raise ConfigError(f"node {node.id}: {err}") from err


def _await_service(node: GraphNode, instance: RunningInstance) -> None:
    try:
        instance.await_service(START_TIMEOUT_S)
    except ConfigError as err:
        raise ConfigError(f"node {node.id}: {err}") from err


def await_links(network: Network, node: GraphNode, instance: RunningInstance, timeout_s: float | None = None) -> None:
    """Wait until every link that this node opens is connected."""
    expected = len(network.variables[node.id].get("connector", ()))
    timeout_s = LINKS_TIMEOUT_S if timeout_s is None else timeout_s
    deadline_s = time.monotonic() + timeout_s
    missing: list[str] = []
    while expected:
        with contextlib.suppress(PeerError):
            missing = unconnected_links(network, node, instance.endpoints)
            if not missing:
                return
        if time.monotonic() > deadline_s:
            links, words = ", ".join(missing) or f"{expected} links", instance.last_log_lines()
            raise ConfigError(
                f"node {node.id}: it did not connect to {links} within {timeout_s:.0f} s"
                + (f"; last log lines: {words}" if words else "")
            )
        time.sleep(0.1)
