"""How does a whole network run on this machine?

Every node on free ports of the loopback interface: brokers first, a few at once, then routers, then a look at every
link. If a node does not start or a link does not come up, that is one sentence with its name, and everything started so
far is stopped. Leaves no process and no file behind.
"""

import contextlib
import math
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import msgspec

from crescendo.model.errors import ConfigError, PeerError
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.systems.base import Surroundings
from crescendo.systems.instance import START_TIMEOUT_S, RunningInstance, start
from crescendo.systems.ports import HOST, choose_ports
from crescendo.topology.generate import Network, generate
from crescendo.topology.graph import BROKER, CLIENT, ROUTER, Entry, GraphNode
from crescendo.topology.link_status import REFUSAL, settling_seconds, unconnected_links
from crescendo.topology.local_node import LocalNode
from crescendo.topology.rendering.routers import PROGRAMS
from crescendo.topology.topology_file import Topology

USER = "crescendo"
LINKS_TIMEOUT_S = 40.0
AT_ONCE = 4
"""How many nodes start together: a JVM alone leaves cores idle, and many of them would take each other's memory."""


def local_network(topology: Topology) -> Network:
    """The same network with every node on this machine, on ports that are free now."""
    here = {node.id: HOST for node in topology.graph.nodes}
    first = generate(_placed(topology, here, {}))
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
    return generate(_placed(topology, here, listeners))


def network_at(topology: Topology, addresses: Mapping[str, str]) -> Network:
    """The same network with every node at another address, on the ports that the topology gives it."""
    first = generate(_placed(topology, addresses, {}))
    listeners = {
        name: [{**entry, "host": addresses[name]} for entry in values.get("listener", ())]
        for name, values in first.variables.items()
    }
    return generate(_placed(topology, addresses, listeners))


def _placed(topology: Topology, addresses: Mapping[str, str], listeners: Mapping[str, list[Entry]]) -> Topology:
    shared = Counter(addresses.values())
    nodes = []
    for node in topology.graph.nodes:
        if node.sections.get("connector"):
            raise ConfigError(f"node {node.id}: leave written connectors out of a local network; its links connect it")
        sections = {**node.sections, "listener": listeners[node.id]} if node.id in listeners else node.sections
        nodes.append(
            msgspec.structs.replace(
                node,
                address=addresses[node.id],
                shares_machine=shared[addresses[node.id]] > 1,
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
        started.callback(lambda: stop_together(running.values()))
        for wanted in (BROKER, ROUTER):  # routers look for their brokers
            of_type = [node for node in nodes if node.type == wanted]
            for some in [of_type[at : at + AT_ONCE] for at in range(0, len(of_type), AT_ONCE)]:
                for node in some:
                    progress(f"starting {node.id} ({node.program})")
                    around = None if surroundings is None else surroundings.get(node.id)
                    running[node.id] = _launch(network, node, directory, password, keep_logs, around)
                for node in some:
                    _await_service(node, running[node.id])
        for node in nodes:
            if network.variables[node.id].get("connector"):
                progress(f"waiting for the links of {node.id}")
            await_links(network, node, running[node.id])
        yield running


class Stoppable(Protocol):
    """A node that runs."""

    def stop(self) -> None: ...


def stop_together(nodes: Iterable[Stoppable]) -> None:
    """Stop all of them at the same time, each of them even if another cannot be stopped."""
    stopping = list(nodes)
    with ThreadPoolExecutor(max(len(stopping), 1)) as pool:
        done = [pool.submit(node.stop) for node in stopping]
    for each in done:
        each.result()


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
    """Wait until every link that this node opens is connected, and stays so."""
    expected = len(network.variables[node.id].get("connector", ()))
    timeout_s = LINKS_TIMEOUT_S if timeout_s is None else timeout_s
    settling_s = settling_seconds(network, node)
    deadline_s = time.monotonic() + timeout_s
    missing: list[str] = []
    since_s = math.inf  # when all links were found connected
    while expected:
        with contextlib.suppress(PeerError):
            found = unconnected_links(network, node, instance.endpoints)
            missing = found or missing
            since_s = math.inf if found else min(since_s, time.monotonic())
            if time.monotonic() >= since_s + settling_s:
                return
        if time.monotonic() > deadline_s + settling_s:
            links = ", ".join(missing) or f"{expected} links"
            words = instance.last_log_lines_with(REFUSAL) or instance.last_log_lines()
            raise ConfigError(
                f"node {node.id}: it did not connect to {links} within {timeout_s:.0f} s"
                + (f"; last log lines: {words}" if words else "")
            )
        time.sleep(0.1)
