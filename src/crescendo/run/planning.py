"""Who does what in this run?

Pure: an experiment becomes numbered connections, their places on peers, and the conductor's plan. Connections are
dealt out in turn, so that peers of one role carry the same load.
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
from crescendo.model.mlmq_clients import CLIENT, SCHEME, ClientKind
from crescendo.model.schedule import measure_ns
from crescendo.model.workload import MAX_CONNECTIONS, PROTOCOLS, Group
from crescendo.net.tls import SECURE_SCHEMES
from crescendo.record.manifest import ConnectionRecord
from crescendo.systems.base import MANAGEMENT


@dataclass(frozen=True)
class RunArrangement:
    """Everything that follows from the experiment before anything is started."""

    connections: list[ConnectionRecord]
    plan: RunPlan
    clients: frozenset[str] = frozenset()  # peers that are clients

    @property
    def roles(self) -> dict[str, str]:
        """What each peer's process is. To the conductor clients are senders: they begin at t0 and end by themselves."""
        return {peer.id: CLIENT if peer.id in self.clients else peer.role for peer in self.plan.peers}


@dataclass(frozen=True)
class SystemUnderTest:
    """Where the system is, by the names of its endpoints, and the process that inspectors may look at."""

    endpoints: Mapping[str, str]
    pid: int | None = None


def plan_run(experiment: Experiment, *, run_dir: str, tag: int, system: SystemUnderTest) -> RunArrangement:
    senders = _connections(experiment, "sender")
    receivers = _connections(experiment, "receiver")
    urls = {group.protocol: _url(system, group) for group in experiment.workload if group.needs_system}
    peers: list[PeerPlan] = []
    for role, connections in (("receiver", receivers), ("sender", senders)):
        for peer in sorted({connection.peer for connection in connections}):
            places = [place for place, c in zip(_places(connections), connections, strict=True) if c.peer == peer]
            assignment = load_assignment(peer, run_dir, tag, urls, experiment, places, answered_senders(experiment))
            peers.append(PeerPlan(peer, "sender" if role == "sender" else "receiver", assignment.to_payload()))
    clients = _client_connections(experiment, len(senders), len(receivers))
    companies = _clients(experiment, run_dir, tag, system, (len(senders), len(receivers)))
    peers += companies
    peers += _inspectors(experiment, run_dir, system)
    plan = RunPlan(
        peers=tuple(peers),
        warmup_ns=experiment.phases.warmup,
        measure_ns=measure_ns(experiment),
        drain_ns=experiment.phases.drain,
        fan_out=_fan_out(receivers),
        stop_when={metric: int(limit) for metric, limit in experiment.stop_when.items()},
    )
    return RunArrangement(senders + receivers + clients, plan, frozenset(peer.id for peer in companies))


def _url(system: SystemUnderTest, group: Group) -> str:
    scheme = PROTOCOLS[group.protocol]
    # Who asks a system for TLS wants it measured.
    url = system.endpoints.get(SECURE_SCHEMES.get(scheme, "")) or system.endpoints.get(scheme)
    if url is None:
        spoken = [protocol for protocol, endpoint in PROTOCOLS.items() if endpoint in system.endpoints]
        raise ConfigError(
            f"workload.{group.name}.protocol: the system does not speak {group.protocol}; it speaks {', '.join(spoken)}"
        )
    return url


def _clients(
    experiment: Experiment, run_dir: str, tag: int, system: SystemUnderTest, first: tuple[int, int]
) -> list[PeerPlan]:
    if not experiment.clients:
        return []
    if SCHEME not in system.endpoints:
        raise ConfigError("clients: the system does not speak mlmq; set system.kind to mlmq")
    brokers = list(brokers_of(system.endpoints[SCHEME]))
    plans = []
    for process in range(experiment.peers.clients):
        peer = f"{CLIENT}-{process}"
        assignment = assign_clients(peer, run_dir, tag, brokers, experiment, process, first)
        plans.append(PeerPlan(peer, "sender", assignment.to_payload()))
    return plans


def _client_connections(experiment: Experiment, first_sender: int, first_receiver: int) -> list[ConnectionRecord]:
    """What the ledger has to know of the clients: each sends, receives, or both, where its messages meet others."""
    processes = experiment.peers.clients
    connections: list[ConnectionRecord] = []
    before = 0
    for group in experiment.clients:
        for process in range(processes):
            for index in group.share(process, processes):
                place = group.meeting(index, processes)
                common = (f"{CLIENT}-{process}", group.name, place, place.partition("://")[2])
                number = before + index
                if group.kind != ClientKind.CONSUMER:
                    connections.append(ConnectionRecord(first_sender + number, "sender", *common))
                if group.kind != ClientKind.PRODUCER:
                    connections.append(ConnectionRecord(first_receiver + number, "receiver", *common, place))
        before += group.count
    return connections


def _inspectors(experiment: Experiment, run_dir: str, system: SystemUnderTest) -> list[PeerPlan]:
    plans: list[PeerPlan] = []
    for inspect in experiment.inspect:
        inspector_of(inspect.kind)  # an unknown kind is said before anything starts
        same = sum(plan.id.startswith(f"inspector-{inspect.kind}") for plan in plans)
        peer = f"inspector-{inspect.kind}" + (f"-{same + 1}" if same else "")
        # A URL that a person gives is the management's, whatever protocol that speaks.
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
                    address=member.meeting,
                    destination=member.destination,
                    subscription="" if sending else member.subscription_of(index),
                )
            )
    return connections


def _places(connections: list[ConnectionRecord]) -> list[ConnectionSlot]:
    """Each connection with its place in its group."""
    counted: Counter[str] = Counter()
    places = []
    for connection in connections:
        places.append(ConnectionSlot(connection.id, connection.group, counted[connection.group]))
        counted[connection.group] += 1
    return places


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
