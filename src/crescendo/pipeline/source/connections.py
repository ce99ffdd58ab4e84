"""Which connections send, which receive, and which messages are owed to which subscription?

Read from the manifest once. Every sender of an address owes each subscription of that address every message; the
receivers of one subscription share them. Rows carry connection numbers; a constant array indexed by number turns them
into subscriptions, so there is no join on the message path. Knows nothing of what was actually sent.
"""

from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import Column
from pyspark.sql import functions as F

from crescendo.model.errors import ConfigError
from crescendo.model.experiment import Experiment
from crescendo.model.experiment_file import experiment_from
from crescendo.record.manifest import Manifest

UNKNOWN = -1
"""The number of a subscription or sender that is not in the manifest."""


@dataclass(frozen=True)
class Connections:
    """Connections by number, subscriptions by their position in `subscriptions`."""

    subscriptions: tuple[str, ...]
    subscription_of: dict[int, int]  # receiver -> subscription
    owed_by: dict[int, tuple[int, ...]]  # sender -> subscriptions
    unbounded: frozenset[int]  # senders without a schedule

    @cached_property
    def flows(self) -> tuple[tuple[int, ...], ...]:
        """The distinct sets of subscriptions that senders owe; senders with the same set form one flow."""
        return tuple(dict.fromkeys(self.owed_by.values()))

    def flow_column(self, sender: Column) -> Column:
        return _lookup({number: self.flows.index(owed) for number, owed in self.owed_by.items()}, sender)

    def name_column(self, subscription: Column) -> Column:
        # No address contains white space, so a newline separates them safely.
        return F.get(F.split(F.lit("\n".join(self.subscriptions)), "\n"), subscription)

    def subscription_column(self, receiver: Column) -> Column:
        return _lookup(self.subscription_of, receiver)

    def bounded_column(self, sender: Column) -> Column:
        """Whether a sender has a schedule."""
        return _lookup(dict.fromkeys(self.unbounded, 0), sender) < 0


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
    return Connections(
        subscriptions=tuple(subscriptions),
        subscription_of={receiver.id: subscriptions[receiver.subscription] for receiver in receivers},
        owed_by={sender.id: tuple(by_address.get(sender.address, ())) for sender in senders},
        unbounded=frozenset(sender.id for sender in senders if sender.group in unpaced),
    )


def experiment_of(manifest: Manifest) -> Experiment:
    try:
        return experiment_from(manifest.experiment, source="manifest.json: experiment")
    except ConfigError as err:
        raise ConfigError(f"{err}; the recording was made by another version, or its manifest was changed") from err


def _lookup(numbers: dict[int, int], key: Column) -> Column:
    # One string, which Spark folds into a constant array: 32,767 literals, one per connection, would take seconds.
    known = {number: value for number, value in numbers.items() if number >= 0}
    cells = [str(known.get(number, UNKNOWN)) for number in range(max(known, default=0) + 1)]
    return F.coalesce(F.get(F.split(F.lit(",".join(cells)), ",").cast("array<int>"), key.cast("int")), F.lit(UNKNOWN))
