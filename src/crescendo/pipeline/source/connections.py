"""Which connections send, which receive, and which messages are owed to which subscription?

Read from the manifest once. Every sender of an address owes each subscription of that address every message; the
receivers of one subscription share them. Rows carry connection numbers; a constant array indexed by number turns them
into subscriptions, so there is no join on the message path. Knows nothing of what was actually sent.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import Column
from pyspark.sql import functions as F

from crescendo.pipeline.source.per_run import lookup, run_keys
from crescendo.record.manifest import Manifest
from crescendo.record.recorded_experiment import experiment_of


class ConnectionColumns(ABC):
    """What the number of a connection stands for, as columns; in several runs, by the run of the row."""

    @property
    @abstractmethod
    def runs(self) -> "Sequence[Connections]":
        """The connections of each run."""

    @property
    def run_keys(self) -> list[str]:
        return run_keys(len(self.runs))

    @property
    def any_unbounded(self) -> bool:
        """Whether any sender has no schedule."""
        return any(run.unbounded for run in self.runs)

    def flow_column(self, sender: Column) -> Column:
        flows = [{number: run.flows.index(owed) for number, owed in run.owed_by.items()} for run in self.runs]
        return lookup(flows, sender)

    def subscription_column(self, receiver: Column) -> Column:
        return lookup([run.subscription_of for run in self.runs], receiver)

    def bounded_column(self, sender: Column) -> Column:
        """Whether a sender has a schedule."""
        return lookup([dict.fromkeys(run.unbounded, 0) for run in self.runs], sender) < 0


@dataclass(frozen=True)
class ConnectionsOfRuns(ConnectionColumns):
    """The connections of several runs."""

    connections: tuple["Connections", ...]

    @property
    def runs(self) -> "Sequence[Connections]":
        return self.connections


@dataclass(frozen=True)
class Connections(ConnectionColumns):
    """Connections by number, subscriptions by their position in `subscriptions`."""

    subscriptions: tuple[str, ...]
    subscription_of: dict[int, int]  # receiver -> subscription
    owed_by: dict[int, tuple[int, ...]]  # sender -> subscriptions
    unbounded: frozenset[int]  # senders without a schedule
    reconnecting: frozenset[int] = frozenset()  # receivers that come back when their connection is lost

    @property
    def runs(self) -> "Sequence[Connections]":
        return (self,)

    @cached_property
    def flows(self) -> tuple[tuple[int, ...], ...]:
        """The distinct sets of subscriptions that senders owe; senders with the same set form one flow."""
        return tuple(dict.fromkeys(self.owed_by.values()))

    @property
    def scheduled(self) -> frozenset[int]:
        """The senders with a schedule."""
        return frozenset(self.owed_by) - self.unbounded

    @property
    def is_mixed(self) -> bool:
        """Whether some senders have a schedule and others do not."""
        return bool(self.unbounded and self.scheduled)

    def name_column(self, subscription: Column) -> Column:
        # No address contains white space, so a newline separates them safely.
        return F.get(F.split(F.lit("\n".join(self.subscriptions)), "\n"), subscription)


def connections_of(manifest: Manifest) -> Connections:
    receivers = [connection for connection in manifest.connections if connection.role == "receiver"]
    senders = [connection for connection in manifest.connections if connection.role == "sender"]
    subscriptions = {name: index for index, name in enumerate(dict.fromkeys(item.subscription for item in receivers))}
    by_address: dict[str, dict[int, None]] = {}
    for receiver in receivers:
        by_address.setdefault(receiver.address, {})[subscriptions[receiver.subscription]] = None
    experiment = experiment_of(manifest)
    unpaced = {group.name for group in experiment.workload if not group.rate}
    unpaced |= {group.name for group in experiment.clients}  # each action starts when the previous one has finished
    failing_over = {group.name for group in experiment.workload if group.failover is not None}
    return Connections(
        subscriptions=tuple(subscriptions),
        subscription_of={receiver.id: subscriptions[receiver.subscription] for receiver in receivers},
        owed_by={sender.id: tuple(by_address.get(sender.address, ())) for sender in senders},
        unbounded=frozenset(sender.id for sender in senders if sender.group in unpaced),
        reconnecting=frozenset(receiver.id for receiver in receivers if receiver.group in failing_over),
    )
