"""Who does what in this run?

Pure: an experiment becomes numbered connections, their places on peers, and the conductor's plan. Connections are
dealt out in turn, so that peers of one role carry the same load.
"""

from dataclasses import dataclass

from crescendo.control.conductor import PeerPlan, Plan
from crescendo.load.assignment import Place, assign
from crescendo.model.experiment import Experiment
from crescendo.record.manifest import Connection


@dataclass(frozen=True)
class Arrangement:
    """Everything that follows from the experiment before anything is started."""

    connections: list[Connection]
    plan: Plan


def arrange(experiment: Experiment, *, run_dir: str, tag: int, url: str) -> Arrangement:
    senders = _connections(experiment, "sender")
    receivers = _connections(experiment, "receiver")
    peers: list[PeerPlan] = []
    for role, connections in (("receiver", receivers), ("sender", senders)):
        for peer in sorted({connection.peer for connection in connections}):
            places = [Place(c.id, c.group) for c in connections if c.peer == peer]
            assignment = assign(peer, run_dir, tag, url, experiment, places)
            peers.append(PeerPlan(peer, "sender" if role == "sender" else "receiver", assignment.to_payload()))
    plan = Plan(
        peers=tuple(peers),
        warmup_ns=experiment.phases.warmup,
        measure_ns=_measure_ns(experiment),
        drain_ns=experiment.phases.drain,
        fan_out=_fan_out(receivers),
    )
    return Arrangement(senders + receivers, plan)


def _connections(experiment: Experiment, role: str) -> list[Connection]:
    sending = role == "sender"
    peers = experiment.peers.senders if sending else experiment.peers.receivers
    connections: list[Connection] = []
    for group in experiment.workload:
        for index in range(group.senders if sending else group.receivers):
            number = len(connections)
            connections.append(
                Connection(
                    id=number,
                    role=role,
                    peer=f"{role}-{number % peers}",
                    group=group.name,
                    address=group.address,
                    destination=group.destination,
                    subscription="" if sending else group.subscription_of(index),
                )
            )
    return connections


def _fan_out(receivers: list[Connection]) -> dict[str, int]:
    subscriptions: dict[str, set[str]] = {}
    for receiver in receivers:
        subscriptions.setdefault(receiver.address, set()).add(receiver.subscription)
    return {address: len(names) for address, names in subscriptions.items()}


def _measure_ns(experiment: Experiment) -> int | None:
    """How long the measure phase lasts; None when a count at no given rate decides."""
    measure = experiment.phases.measure
    if measure.duration is not None:
        return int(measure.duration)
    rates = [group.rate for group in experiment.workload if group.senders]
    if measure.messages is None or not all(rates):
        return None
    return int(measure.messages / min(rates) * 1e9)
