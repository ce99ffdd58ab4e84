"""Who sends, who receives, and who owes which messages to whom?

Read from the manifest once. Every sender of an address owes each subscription of that address every message; the
receivers of one subscription share them. Rows carry connection numbers, so the numbers are turned into subscriptions
by position in a constant array: no join on the message path. Knows nothing of what was really sent.
"""

from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import Column
from pyspark.sql import functions as F

from crescendo.model.errors import ConfigError
from crescendo.model.experiment import Experiment, experiment_from
from crescendo.record.manifest import Manifest

NOBODY = -1
"""The number of a subscription or sender that the manifest does not know."""


@dataclass(frozen=True)
class Connections:
    """Connections by number, subscriptions by their position in `subscriptions`."""

    subscriptions: tuple[str, ...]
    subscription_of: dict[int, int]  # receiver -> subscription
    owed_by: dict[int, tuple[int, ...]]  # sender -> subscriptions
    unbounded: frozenset[int]  # senders without a schedule

    @cached_property
    def flows(self) -> tuple[tuple[int, ...], ...]:
        """The sets of subscriptions that senders owe: senders with the same set are one flow."""
        return tuple(dict.fromkeys(self.owed_by.values()))

    def flow_column(self, sender: Column) -> Column:
        return _looked_up({number: self.flows.index(owed) for number, owed in self.owed_by.items()}, sender)

    def name_column(self, subscription: Column) -> Column:
        # No address contains white space, so none is cut in two.
        return F.get(F.split(F.lit("\n".join(self.subscriptions)), "\n"), subscription)

    def subscription_column(self, receiver: Column) -> Column:
        return _looked_up(self.subscription_of, receiver)

    def bounded_column(self, sender: Column) -> Column:
        """Whether a sender kept a schedule."""
        return _looked_up(dict.fromkeys(self.unbounded, 0), sender) < 0


def connections_of(manifest: Manifest) -> Connections:
    receivers = [connection for connection in manifest.connections if connection.role == "receiver"]
    senders = [connection for connection in manifest.connections if connection.role == "sender"]
    subscriptions = {name: index for index, name in enumerate(dict.fromkeys(item.subscription for item in receivers))}
    by_address: dict[str, dict[int, None]] = {}
    for receiver in receivers:
        by_address.setdefault(receiver.address, {})[subscriptions[receiver.subscription]] = None
    experiment = experiment_of(manifest)
    free = {group.name for group in experiment.workload if not group.rate}
    free |= {group.name for group in experiment.clients}  # the next action follows the last, whenever that was
    return Connections(
        subscriptions=tuple(subscriptions),
        subscription_of={receiver.id: subscriptions[receiver.subscription] for receiver in receivers},
        owed_by={sender.id: tuple(by_address.get(sender.address, ())) for sender in senders},
        unbounded=frozenset(sender.id for sender in senders if sender.group in free),
    )


def experiment_of(manifest: Manifest) -> Experiment:
    try:
        return experiment_from(manifest.experiment, source="manifest.json: experiment")
    except ConfigError as err:
        raise ConfigError(f"{err}; the recording was made by another version, or its manifest was changed") from err


def _looked_up(numbers: dict[int, int], key: Column) -> Column:
    # Text that Spark folds into one constant array: a literal for each of 32,767 connections would take seconds.
    known = {number: value for number, value in numbers.items() if number >= 0}
    cells = [str(known.get(number, NOBODY)) for number in range(max(known, default=0) + 1)]
    return F.coalesce(F.get(F.split(F.lit(",".join(cells)), ",").cast("array<int>"), key.cast("int")), F.lit(NOBODY))
