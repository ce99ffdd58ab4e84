"""How does a network run on hosts of its own, all of them on this machine?

Every machine of the topology becomes a host of the lab, with an address and all ports of its own, so a node listens
where the topology says, and reaches the others as it would over a network. Brokers start first, a few at once, then
routers, then every link is looked at. If a node does not start or a link does not come up, that is one sentence with
its name, and everything is removed.
"""

import contextlib
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from crescendo.lab.host_network import HostNetwork
from crescendo.lab.lab_host import LabHost
from crescendo.model.errors import ConfigError, LostError
from crescendo.run.system_on_host import HostedSystem, HostedSystemOrder
from crescendo.topology.generate import Network
from crescendo.topology.graph import BROKER, CLIENT, ROUTER, GraphNode
from crescendo.topology.listener_ports import nodes_by_machine
from crescendo.topology.local_network import AT_ONCE, USER, network_at, stop_together
from crescendo.topology.node_order import NodeOrder
from crescendo.topology.topology_file import Topology


class HostedNetwork(NamedTuple):
    """A running network, the host of every node, and its nodes but for clients."""

    network: Network
    hosts: dict[str, LabHost]
    running: dict[str, HostedSystem]


@contextlib.contextmanager
def running_on_hosts(
    topology: Topology, directory: Path, progress: Callable[[str], None] = lambda _: None
) -> Iterator[HostedNetwork]:
    """Make the hosts and start all nodes; at the end, whatever happens, remove all of it."""
    with contextlib.ExitStack() as stack:
        progress("making the hosts of the lab")
        lab = stack.enter_context(HostNetwork())
        hosts: dict[str, LabHost] = {}
        for number, members in enumerate(nodes_by_machine(topology.graph.nodes), 1):
            host = lab.add(f"machine{number}")
            hosts |= {node.id: host for node in members}
        network = network_at(topology, {name: host.address for name, host in hosts.items()})
        nodes = [node for node in network.graph.nodes if node.type != CLIENT]
        running: dict[str, HostedSystem] = {}
        stack.callback(lambda: stop_together(running.values()))
        password = secrets.token_urlsafe(12)
        for wanted in (BROKER, ROUTER):  # routers look for their brokers
            of_type = [node for node in nodes if node.type == wanted]
            for some in [of_type[at : at + AT_ONCE] for at in range(0, len(of_type), AT_ONCE)]:
                for node in some:
                    progress(f"starting {node.id} ({node.program}) at {hosts[node.id].address}")
                    order = _order(network, node, hosts[node.id].address, directory / node.id, password)
                    running[node.id] = HostedSystem(hosts[node.id], order, waits=False)
                for node in some:
                    with _named(node):
                        running[node.id].await_service()
        for node in nodes:
            if network.variables[node.id].get("connector"):
                progress(f"waiting for the links of {node.id}")
                running[node.id].await_links()
        yield HostedNetwork(network, hosts, running)


def _order(network: Network, node: GraphNode, address: str, directory: Path, password: str) -> HostedSystemOrder:
    order = NodeOrder(network, node.id, USER, password)
    settings = {**order.kind.own_settings(), "listen": address}
    return HostedSystemOrder(node.program, settings, str(directory), "", None, None, None, order)


@contextlib.contextmanager
def _named(node: GraphNode) -> Iterator[None]:
    """A failure to start names the node."""
    try:
        yield
    except (ConfigError, LostError) as err:
        raise type(err)(f"node {node.id}: {err}") from err
