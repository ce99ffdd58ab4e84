"""How is a whole network the system of a run?

The nodes of the experiment's topology start on this machine, and groups and inspectors find each of them by its name.
The manifest keeps the network as it ran: nodes with program and version, links with cost, and where a picture draws
them. Places no load and reads no results.
"""

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from crescendo.inspectors.registry import inspector_of
from crescendo.model.errors import ConfigError, PeerError
from crescendo.model.experiment import Experiment
from crescendo.model.experiment_parts import PROCESS
from crescendo.model.protocols import AMQP10
from crescendo.model.suggestions import choice
from crescendo.record.stand_in import RELAY
from crescendo.run.planning import SystemNode, SystemUnderTest
from crescendo.systems.base import Surroundings
from crescendo.systems.instance import ProcessExit, RunningInstance
from crescendo.systems.kinds.relay import HOPS_FILE
from crescendo.topology.generate import Network
from crescendo.topology.graph import CLIENT, Graph, GraphNode, queue_address
from crescendo.topology.link_fidelity import LinkFidelity
from crescendo.topology.local_network import local_network, running_network
from crescendo.topology.node_positions import positions
from crescendo.topology.route_probe import kinds_carried, probe_route, route_between
from crescendo.topology.topology_file import load_topology

NETWORK = "network"
_INSPECTORS = {RELAY: "qpid-dispatch"}


def check_network_of(experiment: Experiment) -> None:
    """Reject nodes, inspectors and protocols that the network does not have."""
    source = experiment.topology or ""
    nodes = [node for node in load_topology(Path(source)).graph.nodes if node.type != CLIENT]
    names = [node.id for node in nodes]
    for group in experiment.workload:
        for key, place in (("send_to", group.send_to), ("receive_from", group.receive_from)):
            if place is not None and place not in names:
                raise ConfigError(f"workload.{group.name}.{key}: {source} has no node {place}; {choice(place, names)}")
        if group.protocol != AMQP10.name and group.needs_system:
            raise ConfigError(f"workload.{group.name}.protocol: the nodes of a network speak {AMQP10.name} only")
    kinds = {PROCESS} | {_inspector(node) for node in nodes}
    for inspect in experiment.inspect:
        inspector_of(inspect.kind)
        if not inspect.has_target and inspect.kind not in kinds:
            raise ConfigError(f"inspect: no node of {source} is inspected by {inspect.kind}; give it a url")


def start_network(
    experiment: Experiment,
    run_dir: Path,
    stack: contextlib.ExitStack,
    progress: Callable[[str], None],
    surroundings: Mapping[str, Surroundings],
) -> tuple[SystemUnderTest, dict[str, Any]]:
    """Start every node; `stack` stops them."""
    network = local_network(load_topology(Path(experiment.topology or "")))
    directory = run_dir.resolve() / "system"
    stack.callback(shutil.rmtree, directory, ignore_errors=True)
    logs = run_dir / "logs"
    running = stack.enter_context(
        running_network(network, directory, progress, keep_logs=logs, surroundings=surroundings)
    )
    programs = {node.id: node for node in network.graph.nodes}
    nodes = {
        name: SystemNode(instance.endpoints, instance.pid, _inspector(programs[name]), _called(network, programs[name]))
        for name, instance in running.items()
    }
    facts = network_facts(network, running)
    if experiment.probe_links:
        probed = _probed(experiment, network.graph, running, progress)
        facts["routes"] = [msgspec.to_builtins(found) for found in probed]
    hop_files = {name: directory / name / HOPS_FILE for name in running if programs[name].program == RELAY}
    system = SystemUnderTest({}, exit=lambda: _first_exit(running), nodes=nodes, hop_files=hop_files, instances=running)
    return system, facts


def _probed(
    experiment: Experiment, graph: Graph, running: dict[str, RunningInstance], progress: Callable[[str], None]
) -> Iterator[LinkFidelity]:
    """What the way of each group does to messages, before it carries the load."""
    ways = dict.fromkeys(
        (group.send_to, group.receive_from, group.destination)
        for group in experiment.workload
        if group.send_to is not None and group.receive_from is not None and not group.is_topic
    )
    for first, last, address in ways:
        progress(f"probing {address} from {first} to {last}")
        route = route_between(graph, running, (first, last), address)
        try:
            yield probe_route(route, experiment.probe_links, kinds=kinds_carried(graph, address))
        except PeerError as err:
            raise ConfigError(f"{experiment.topology}: from {first} to {last}, {address}: {err}") from err


def _inspector(node: GraphNode) -> str:
    program = node.program or RELAY
    return _INSPECTORS.get(program, program)


def _called(network: Network, node: GraphNode) -> dict[str, str]:
    """The names of the node's queues, where clients call them otherwise."""
    queues = [str(entry["name"]) for entry in network.variables[node.id].get("queue", ())]
    return {name: called for name in queues if (called := queue_address(node.program, name)) != name}


def _first_exit(running: dict[str, RunningInstance]) -> ProcessExit | None:
    for name, instance in running.items():
        if (ended := instance.exit()) is not None:
            return ended._replace(how=f"node {name}: {ended.how}")
    return None


def network_facts(network: Network, running: dict[str, RunningInstance]) -> dict[str, Any]:
    """What the manifest keeps of the network."""
    places = positions(network.graph)
    nodes = []
    for node in network.graph.nodes:
        facts = running[node.id].facts if node.id in running else {}
        x, y = places[node.id]
        nodes.append(
            {
                "id": node.id,
                "type": node.type,
                "program": node.program,
                "version": facts.get("version", ""),
                "ports": facts.get("ports", {}),
                "x": round(x, 3),
                "y": round(y, 3),
            }
        )
    links = [{"source": link.source, "target": link.target, "cost": link.cost or 1} for link in network.graph.links]
    stand_ins = sum(node.program == RELAY for node in network.graph.nodes)
    return {
        "kind": NETWORK,
        "topology": network.topology.name,
        "stand_ins": stand_ins,
        "nodes": nodes,
        "links": links,
        "variables": network.variables,
    }
