"""Which connection runs on which peer, and what is the conductor's plan?

Pure: an experiment becomes numbered connections, their assignment to peers, and the conductor's plan. Connections are
assigned round-robin, so that peers of one role carry the same load; those of a foreign client have peers of their own.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from crescendo.agent.assignment import AgentAssignment
from crescendo.agent.fetch_source import FETCH_S
from crescendo.agent.worker import STOP_S
from crescendo.client.mlmq import brokers_of
from crescendo.control.conductor.plan import PREPARE_NS, SECOND_NS, STOP_NS, PeerPlan, RunPlan
from crescendo.inspectors.assignment import InspectorAssignment
from crescendo.inspectors.registry import inspector_of
from crescendo.load.assignment import ConnectionSlot, SliceMembers, load_assignment
from crescendo.mlmq.workloads.assignment import workload_assignment as assign_clients
from crescendo.model.address import located_address
from crescendo.model.errors import ConfigError
from crescendo.model.experiment import Experiment
from crescendo.model.experiment_inputs import with_inputs_at
from crescendo.model.experiment_parts import PROCESS, Inspect, System
from crescendo.model.metrics import split_metric
from crescendo.model.mlmq_clients import CLIENT, ClientKind
from crescendo.model.protocols import MLMQ, known_protocols, protocol_of
from crescendo.model.schedule import measure_ns
from crescendo.model.slices import SliceScope, destination_of, protocols_by_side, slice_names
from crescendo.model.units import Duration
from crescendo.model.url_files import files_of_addresses, files_of_url, with_address_files_at, with_files_at
from crescendo.model.workload import MAX_CONNECTIONS, Group
from crescendo.record.manifest import ConnectionRecord, ConnectionRole
from crescendo.systems.base import MANAGEMENT
from crescendo.systems.instance import ProcessExit, RunningInstance
from crescendo.systems.instance_node import InstanceNode

_SOME_KIND = MLMQ.name  # for peers, which get the URLs of the system and never start one; clients need this one
AGENT_STOP_NS = int(STOP_S + 5) * SECOND_NS  # while its last handlers run
_NODE_PERIOD = Duration(10**9)


@dataclass(frozen=True)
class RunArrangement:
    """Everything that follows from the experiment before anything starts."""

    connections: list[ConnectionRecord]
    plan: RunPlan
    clients: frozenset[str] = frozenset()  # peers that are clients
    inspectors_on: Mapping[str, str] = field(default_factory=dict)  # inspectors that stand elsewhere -> where

    @property
    def roles(self) -> dict[str, str]:
        """The role of each peer's process. To the conductor, clients are senders: they start at t0 and finish alone."""
        return {peer.id: CLIENT if peer.id in self.clients else peer.role for peer in self.plan.peers}


@dataclass(frozen=True)
class SystemNode:
    """One of several systems: its URLs by endpoint name, its process, and the inspector that fits it."""

    endpoints: Mapping[str, str]
    pid: int
    inspector: str
    called: Mapping[str, str] = field(default_factory=dict)  # its queues that clients call by another name


@dataclass(frozen=True)
class SystemUnderTest:
    """The URLs of the system by endpoint name, the process that inspectors may watch, and how it ended, if it did."""

    endpoints: Mapping[str, str]
    pid: int | None = None
    exit: Callable[[], ProcessExit | None] = lambda: None
    nodes: Mapping[str, SystemNode] = field(default_factory=dict)  # of a network, by name
    instances: Mapping[str, RunningInstance | InstanceNode] = field(default_factory=dict)  # what this run started
    called: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # endpoint -> queue -> what clients call it
    further_nodes: Sequence[Mapping[str, str]] = ()  # the URLs of the nodes that a lost connection tries next
    hop_files: Mapping[str, Path] = field(default_factory=dict)  # node -> where it writes its samples


def plan_run(
    experiment: Experiment,
    *,
    tag: int,
    system: SystemUnderTest,
    durable: bool = True,
    input_names: Mapping[str, str] | None = None,
    look_at: Collection[str] = (),
) -> RunArrangement:
    """`input_names`: file of the experiment or of a URL -> its name in assignments, which contain no paths.

    `look_at`: the groups whose destinations may hold messages of others before the run.
    """
    names = input_names or {}
    experiment = experiment.with_places_as_urls()
    named = for_peers(experiment, names)
    senders = _connections(experiment, "sender")
    receivers = _connections(experiment, "receiver")
    system = replace(system, endpoints={name: with_files_at(url, names) for name, url in system.endpoints.items()})
    limited = {
        name: _members(experiment, name, senders, receivers)
        for name in sorted({split_metric(metric)[0] for metric in experiment.stop_when} - {""})
    }
    peers: list[PeerPlan] = []
    for role, connections in (("receiver", receivers), ("sender", senders)):
        located = _located(named, role, system)
        urls = {group.protocol: _url(system, group) for group in located.workload if group.needs_system}
        for peer in sorted({connection.peer for connection in connections}):
            slots = [slot for slot, c in zip(_slots(connections), connections, strict=True) if c.peer == peer]
            assignment = load_assignment(
                tag, urls, located, slots, answered_senders(experiment), sorted(look_at), limited
            )
            peers.append(PeerPlan(peer, "sender" if role == "sender" else "receiver", assignment.to_payload()))
    clients = _client_connections(experiment, len(senders), len(receivers))
    client_peers = _clients(experiment, tag, system, (len(senders), len(receivers)))
    peers += client_peers
    inspectors, inspectors_on = _inspectors(experiment, system, names)
    peers += inspectors
    peers += [
        PeerPlan(agent.peer_id, "agent", AgentAssignment(agent.source, agent.branch).to_payload())
        for agent in experiment.agents
    ]
    plan = RunPlan(
        peers=tuple(replace(peer, assignment=peer.assignment | {"durable": durable}) for peer in peers),
        warmup_ns=experiment.phases.warmup,
        measure_ns=measure_ns(experiment),
        drain_ns=experiment.phases.drain,
        drain_limit_ns=experiment.phases.drain_limit_ns,
        fan_out=_fan_out(receivers),
        fixed_rate=_fixed_rate(experiment),
        outlives_system=any(group.failover for group in experiment.workload),
        stop_when={metric: int(limit) for metric, limit in experiment.stop_when.items()},
        prepare_ns=_prepare_ns(experiment),
        stop_ns=AGENT_STOP_NS if experiment.agents else STOP_NS,
    )
    client_ids = frozenset(peer.id for peer in client_peers)
    return RunArrangement(senders + receivers + clients, plan, client_ids, inspectors_on)


def for_peers(experiment: Experiment, names: Mapping[str, str]) -> Experiment:
    """What senders and receivers must know of an experiment: neither paths nor the secrets of its system."""
    named = with_address_files_at(with_inputs_at(experiment, names), names)
    system = System(kind=experiment.system.kind or _SOME_KIND)
    return msgspec.structs.replace(named, system=system, inspect=[], agents=[], lab=None)


def files_of_urls(experiment: Experiment, system: SystemUnderTest) -> list[str]:
    """The certificates and keys that peers need, as URLs name them."""
    urls = [*system.endpoints.values(), *(inspect.url for inspect in experiment.inspect if inspect.url is not None)]
    return list(dict.fromkeys([*files_of_addresses(experiment), *(file for url in urls for file in files_of_url(url))]))


def _members(
    experiment: Experiment, name: str, senders: list[ConnectionRecord], receivers: list[ConnectionRecord]
) -> SliceMembers:
    """The connections of a slice that a limit of `stop_when` is on."""
    scope = slice_names(experiment.workload, experiment.clients)[name]
    protocols = protocols_by_side(experiment.workload, experiment.clients)

    def is_member(connection: ConnectionRecord) -> bool:
        match scope:
            case SliceScope.GROUP:
                return connection.group == name
            case SliceScope.DESTINATION:
                return destination_of(connection.address) == name
            case SliceScope.PROTOCOL:
                return protocols[connection.group, connection.role] == name

    sending = [connection.id for connection in senders if is_member(connection)]
    return SliceMembers(sending, [] if sending else [one.id for one in receivers if is_member(one)])


def _prepare_ns(experiment: Experiment) -> int:
    """JVMs start slowly, and sources are fetched over a network."""
    if experiment.agents:
        return int(FETCH_S * 1e9) + PREPARE_NS
    return 2 * PREPARE_NS if any(group.client for group in experiment.workload) else PREPARE_NS


def _fixed_rate(experiment: Experiment) -> str:
    """Why the rate cannot be changed during the run; empty if it can."""
    if experiment.clients:
        return "the clients of MLMQ have no rate"
    if experiment.phases.measure.duration is None:
        return "the measure phase is a number of messages, so its length would change"
    if not all(group.rate for group in experiment.workload if group.senders):
        return "it sends as fast as the system accepts"
    return ""


def _located(experiment: Experiment, role: str, system: SystemUnderTest) -> Experiment:
    """The experiment as peers of one role see it: groups that name a place have the URL of that place."""

    def located(group: Group) -> Group:
        urls = experiment.located_urls(group)
        if role in urls:
            return group.located_at(urls[role])
        if urls:  # the other side is elsewhere
            uses_system = bool(group.connections_of(role))
            return (
                msgspec.structs.replace(group, send_to=None, receive_from=None)
                if uses_system
                else (group.located_at(next(iter(urls.values()))))
            )
        place = group.place_of(role) or group.send_to or group.receive_from
        if place is None:
            return _with_further_nodes(group, system)
        return group.located_at(_url(system.nodes[place], group), system.nodes[place].called)

    workload = [located(group) for group in experiment.workload]
    return msgspec.structs.replace(experiment, workload=workload, topology=None, probe_links=0)


def _with_further_nodes(group: Group, system: SystemUnderTest) -> Group:
    """The group with the names by which its system calls its queues, and all addresses if its connections come back."""
    called = system.called.get(protocol_of(group.protocol).endpoint, {})
    further = system.further_nodes if group.failover is not None else ()
    if not group.needs_system or not (called or further):
        return group
    nodes = [SystemNode(endpoints, 0, "") for endpoints in further]
    texts = [located_address(text, _url(node, group), called) for node in nodes for text in group.addresses]
    group = group.located_at(_url(system, group), called)
    return group if group.failover is None else msgspec.structs.replace(group, failover=[*group.failover, *texts])


def _url(system: SystemUnderTest | SystemNode, group: Group) -> str:
    protocol = protocol_of(group.protocol)
    # A system that offers TLS was configured for it, so measure it over TLS.
    url = system.endpoints.get(protocol.secure_scheme or "") or system.endpoints.get(protocol.endpoint)
    if url is None:
        spoken = [name for name, known in known_protocols().items() if known.endpoint in system.endpoints]
        raise ConfigError(
            f"workload.{group.name}.protocol: the system does not support {group.protocol}; it supports "
            f"{', '.join(spoken)}"
        )
    return url


def _clients(experiment: Experiment, tag: int, system: SystemUnderTest, first: tuple[int, int]) -> list[PeerPlan]:
    if not experiment.clients:
        return []
    if MLMQ.endpoint not in system.endpoints:
        raise ConfigError("clients: the system does not support mlmq; set system.kind to mlmq")
    brokers = list(brokers_of(system.endpoints[MLMQ.endpoint]))
    plans = []
    for process in range(experiment.peers.clients):
        peer = f"{CLIENT}-{process}"
        assignment = assign_clients(tag, brokers, experiment, process, first)
        plans.append(PeerPlan(peer, "sender", assignment.to_payload()))
    return plans


def _client_connections(experiment: Experiment, first_sender: int, first_receiver: int) -> list[ConnectionRecord]:
    """The connections of the clients for the ledger: each client sends, receives, or both, on its shared address."""
    processes = experiment.peers.clients
    connections: list[ConnectionRecord] = []
    before = 0
    for group in experiment.clients:
        for process in range(processes):
            for index in group.share(process, processes):
                address = group.shared_address(index, processes)
                common = (f"{CLIENT}-{process}", group.name, address, address.partition("://")[2])
                number = before + index
                if group.kind != ClientKind.CONSUMER:
                    connections.append(ConnectionRecord(first_sender + number, "sender", *common))
                if group.kind != ClientKind.PRODUCER:
                    connections.append(ConnectionRecord(first_receiver + number, "receiver", *common, address))
        before += group.count
    return connections


def _inspectors(
    experiment: Experiment, system: SystemUnderTest, names: Mapping[str, str]
) -> tuple[list[PeerPlan], dict[str, str]]:
    """The inspectors, and where those stand that are not started here."""
    plans: list[PeerPlan] = []
    places: dict[str, str] = {}
    for name, node in system.nodes.items():
        for inspect in node_inspectors(experiment, node.inspector):
            peer = f"inspector-{name}" if inspect.kind == node.inspector else f"inspector-{inspect.kind}-{name}"
            assignment = InspectorAssignment(inspect.kind, inspect.period_ns, dict(node.endpoints), node.pid)
            plans.append(PeerPlan(peer, "inspector", assignment.to_payload()))
    for inspect in experiment.inspect:
        if system.nodes and not inspect.has_target:
            continue
        inspector_of(inspect.kind)  # rejects an unknown kind before anything starts
        same = sum(plan.id.startswith(f"inspector-{inspect.kind}") for plan in plans)
        peer = f"inspector-{inspect.kind}" + (f"-{same + 1}" if same else "")
        # A URL given by the user is that of the management interface, whatever its protocol.
        endpoints = system.endpoints if inspect.url is None else {MANAGEMENT: with_files_at(inspect.url, names)}
        assignment = InspectorAssignment(
            inspect.kind, inspect.period_ns, dict(endpoints), inspect.pid or (None if inspect.on else system.pid)
        )  # fmt: skip
        plans.append(PeerPlan(peer, "inspector", assignment.to_payload()))
        if inspect.on is not None:
            places[peer] = inspect.on
    return plans, places


def node_inspectors(experiment: Experiment, kind: str) -> list[Inspect]:
    """What looks at one node of a network: what the file says of its kind and of processes, or else its own kind."""
    asked = [each for each in experiment.inspect if not each.has_target]
    return [each for each in asked if each.kind in {kind, PROCESS}] if asked else [Inspect(kind, _NODE_PERIOD)]


def _connections(experiment: Experiment, role: ConnectionRole) -> list[ConnectionRecord]:
    sending = role == "sender"
    peers = experiment.peers.count(role)
    connections: list[ConnectionRecord] = []
    for group in experiment.workload:
        for index in range(group.senders if sending else group.receivers):
            number = len(connections)
            member = group.member(index)
            connections.append(
                ConnectionRecord(
                    id=number,
                    role=role,
                    peer=f"{role}-{number % peers}"
                    if group.client is None
                    else f"{role}-{group.client}-{number % peers}",
                    group=group.name,
                    address=member.shared_address,
                    destination=member.destination,
                    subscription="" if sending else member.subscription_of(index),
                )
            )
    return connections


def _slots(connections: list[ConnectionRecord]) -> list[ConnectionSlot]:
    """Each connection with its index in its group."""
    counted: Counter[str] = Counter()
    slots = []
    for connection in connections:
        slots.append(ConnectionSlot(connection.id, connection.group, counted[connection.group]))
        counted[connection.group] += 1
    return slots


def answered_senders(experiment: Experiment) -> dict[str, list[int]]:
    """The numbers of the senders whose messages are answered, by group."""
    numbers = iter(range(MAX_CONNECTIONS))
    senders = {group.name: [next(numbers) for _ in range(group.senders)] for group in experiment.workload}
    return {group.name: senders[group.name] for group in experiment.workload if group.is_answered}


def _fan_out(receivers: list[ConnectionRecord]) -> dict[str, int]:
    subscriptions: dict[str, set[str]] = {}
    for receiver in receivers:
        subscriptions.setdefault(receiver.address, set()).add(receiver.subscription)
    return {address: len(names) for address, names in subscriptions.items()}
