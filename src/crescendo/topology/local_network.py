"""How does a whole network run on this machine?

Every node on free ports of the loopback interface: brokers first, then routers, then a look at every link. If a node
does not start or a link does not come up, that is one sentence with its name, and everything started so far is
stopped. Leaves no process and no file behind.
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
from crescendo.systems.instance import RunningInstance, start
from crescendo.systems.ports import HOST, choose_ports
from crescendo.topology.generate import Network, generate
from crescendo.topology.graph import BROKER, CLIENT, ROUTER, Entry, GraphNode
from crescendo.topology.link_status import unconnected_links
from crescendo.topology.local_node import LocalNode
from crescendo.topology.topology_file import Topology

USER = "crescendo"
LINKS_TIMEOUT_S = 40.0
_COMMANDS = {"qpid-dispatch": "qdrouterd"}


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
    for program, command in _COMMANDS.items():
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
) -> Iterator[dict[str, RunningInstance]]:
    """Start all nodes, and stop all of them at the end, whatever happens."""
    password = secrets.token_urlsafe(12)
    nodes = [node for node in network.graph.nodes if node.type != CLIENT]
    with contextlib.ExitStack() as started:
        running: dict[str, RunningInstance] = {}
        for node in sorted(nodes, key=lambda node: node.type != BROKER):  # routers look for their brokers
            progress(f"starting {node.id} ({node.program})")
            running[node.id] = _start(network, node, directory, password, keep_logs)
            started.callback(running[node.id].stop)
        for node in nodes:
            if network.variables[node.id].get("connector"):
                progress(f"waiting for the links of {node.id}")
            _await_links(network, node, running[node.id])
        yield running


def _start(
    network: Network, node: GraphNode, directory: Path, password: str, keep_logs: Path | None
) -> RunningInstance:
    kind = LocalNode(network, node, USER, password)
    try:
        settings = kind.own_settings()
        return start(
            kind,
            settings,
            directory=directory / node.id,
            ports=kind.wanted_ports,
            on_fork=die_with_parent(),
            keep_logs=keep_logs and keep_logs / node.id,
        )
    except ConfigError as err:
        raise ConfigError(f"node {node.id}: {err}") from err


def _await_links(network: Network, node: GraphNode, instance: RunningInstance) -> None:
    """Wait until every link that this node opens is connected."""
    expected = len(network.variables[node.id].get("connector", ()))
    deadline_s = time.monotonic() + LINKS_TIMEOUT_S
    missing: list[str] = []
    while expected:
        with contextlib.suppress(PeerError):
            missing = unconnected_links(network, node, instance.endpoints)
            if not missing:
                return
        if time.monotonic() > deadline_s:
            links, words = ", ".join(missing) or f"{expected} links", instance.last_log_lines()
            raise ConfigError(
                f"node {node.id}: it did not connect to {links} within {LINKS_TIMEOUT_S:.0f} s"
                + (f"; last log lines: {words}" if words else "")
            )
        time.sleep(0.1)
