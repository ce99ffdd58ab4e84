"""How is a topology deployed on this machine, and how do others reach its nodes?

On free ports of the loopback interface, or on hosts of a lab with the ports of the topology. Starts the nodes and stops
them at the end; prints nothing, and does not decide how long they run.
"""

import contextlib
import shlex
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from crescendo.run.network_on_hosts import running_on_hosts
from crescendo.topology.local_network import local_network, running_network
from crescendo.topology.topology_file import Topology

Endpoints = dict[str, str]
"""Name of an endpoint, such as amqp -> its URL."""


class LocalDeployment(NamedTuple):
    """A network that runs on this machine."""

    programs: dict[str, str]  # node -> what it runs
    endpoints: dict[str, Endpoints]  # node -> where it answers
    way_in: str  # the command before others, so that they reach the nodes; empty if every process does


@contextlib.contextmanager
def deployed_here(topology: Topology, progress: Callable[[str], None], *, hosts: bool) -> Iterator[LocalDeployment]:
    """Start every node, on hosts of a lab if wanted; stop all of them and remove their files at the end."""
    with tempfile.TemporaryDirectory(prefix="crescendo-topology-") as name:
        directory = Path(name)
        if hosts:
            with running_on_hosts(topology, directory, progress) as hosted:
                some_host = next(iter(hosted.hosts.values()))
                yield LocalDeployment(
                    {node.id: node.program for node in hosted.network.graph.nodes},
                    {node: dict(system.endpoints) for node, system in hosted.running.items()},
                    shlex.join(some_host.network_command([])),
                )
            return
        network = local_network(topology)
        with running_network(network, directory, progress) as running:
            yield LocalDeployment(
                {node.id: node.program for node in network.graph.nodes},
                {node: dict(instance.endpoints) for node, instance in running.items()},
                "",
            )
