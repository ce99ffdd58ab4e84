"""Which connection runs on which peer, and what is the conductor's plan?

Pure: an experiment becomes numbered connections, their assignment to peers, and the conductor's plan. Connections are
assigned round-robin, so that peers of one role carry the same load.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from crescendo.client.mlmq import brokers_of
from crescendo.control.conductor.plan import PeerPlan, RunPlan
from crescendo.inspectors.assignment import InspectorAssignment
from crescendo.inspectors.registry import inspector_of
from crescendo.load.assignment import ConnectionSlot, load_assignment
from crescendo.mlmq.workloads.assignment import workload_assignment as assign_clients
from crescendo.model.errors import ConfigError
from crescendo.model.experiment import Experiment
from crescendo.model.mlmq_clients import CLIENT, ClientKind
from crescendo.model.protocols import MLMQ, known_protocols, protocol_of
from crescendo.model.schedule import measure_ns
from crescendo.model.workload import MAX_CONNECTIONS, Group
from crescendo.record.manifest import ConnectionRecord
from crescendo.systems.base import MANAGEMENT


@dataclass(frozen=True)
class RunArrangement:
    """Everything that follows from the experiment before anything starts."""

    connections: list[ConnectionRecord]
    plan: RunPlan
    clients: frozenset[str] = frozenset()  # peers that are clients

    @property
    def roles(self) -> dict[str, str]:
        """The role of each peer's process. To the conductor, clients are senders: they start at t0 and finish alone."""
        return {peer.id: CLIENT if peer.id in self.clients else peer.role for peer in self.plan.peers}


@dataclass(frozen=True)
class SystemUnderTest:
    """The URLs of the system by endpoint name, and the process that inspectors may watch."""

    endpoints: Mapping[str, str]
    pid: int | None = None


def plan_run(experiment: Experiment, *, run_dir: str, tag: int, system: SystemUnderTest) -> RunArrangement:
    senders = _connections(experiment, "sender")
    receivers = _connections(experiment, "receiver")
    urls = {group.protocol: _url(system, group) for group in experiment.workload if group.needs_system}
    peers: list[PeerPlan] = []
    for role, connections in (("receiver", receivers), ("sender", senders)):
        for peer in sorted({connection.peer for connection in connections}):
            slots = [slot for slot, c in zip(_slots(connections), connections, strict=True) if c.peer == peer]
            assignment = load_assignment(peer, run_dir, tag, urls, experiment, slots, answered_senders(experiment))
            peers.append(PeerPlan(peer, "sender" if role == "sender" else "receiver", assignment.to_payload()))
    clients = _client_connections(experiment, len(senders), len(receivers))
    client_peers = _clients(experiment, run_dir, tag, system, (len(senders), len(receivers)))
    peers += client_peers
    peers += _inspectors(experiment, run_dir, system)
    plan = RunPlan(
        peers=tuple(peers),
        warmup_ns=experiment.phases.warmup,
        measure_ns=measure_ns(experiment),
        drain_ns=experiment.phases.drain,
        fan_out=_fan_out(receivers),
        stop_when={metric: int(limit) for metric, limit in experiment.stop_when.items()},
    )
    return RunArrangement(senders + receivers + clients, plan, frozenset(peer.id for peer in client_peers))


def _url(system: SystemUnderTest, group: Group) -> str:
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


def _clients(
    experiment: Experiment, run_dir: str, tag: int, system: SystemUnderTest, first: tuple[int, int]
) -> list[PeerPlan]:
    if not experiment.clients:
        return []
    if MLMQ.endpoint not in system.endpoints:
        raise ConfigError("clients: the system does not support mlmq; set system.kind to mlmq")
    brokers = list(brokers_of(system.endpoints[MLMQ.endpoint]))
    plans = []
    for process in range(experiment.peers.clients):
        peer = f"{CLIENT}-{process}"
        assignment = assign_clients(peer, run_dir, tag, brokers, experiment, process, first)
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


def _inspectors(experiment: Experiment, run_dir: str, system: SystemUnderTest) -> list[PeerPlan]:
    plans: list[PeerPlan] = []
    for inspect in experiment.inspect:
        inspector_of(inspect.kind)  # rejects an unknown kind before anything starts
        same = sum(plan.id.startswith(f"inspector-{inspect.kind}") for plan in plans)
        peer = f"inspector-{inspect.kind}" + (f"-{same + 1}" if same else "")
        # A URL given by the user is that of the management interface, whatever its protocol.
        endpoints = system.endpoints if inspect.url is None else {MANAGEMENT: inspect.url}
        assignment = InspectorAssignment(
            peer, run_dir, inspect.kind, inspect.period_ns, dict(endpoints), inspect.pid or system.pid
        )  # fmt: skip
        plans.append(PeerPlan(peer, "inspector", assignment.to_payload()))
    return plans


def _connections(experiment: Experiment, role: str) -> list[ConnectionRecord]:
    sending = role == "sender"
    peers = experiment.peers.senders if sending else experiment.peers.receivers
    connections: list[ConnectionRecord] = []
    for group in experiment.workload:
        for index in range(group.senders if sending else group.receivers):
            number = len(connections)
            member = group.member(index)
            connections.append(
                ConnectionRecord(
                    id=number,
                    role=role,
                    peer=f"{role}-{number % peers}",
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
