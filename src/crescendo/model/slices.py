"""Into which slices can the results of an experiment be divided?

A slice is a group, a destination or a protocol. Its messages are those that its senders send; a slice without senders
has those that its receivers receive. The two sides of a group may speak different protocols: then its messages belong
to that of its senders, and its deliveries to that of its receivers. Checks and comparisons name a slice before a
metric: `orders.response_p99`, `queue://orders.lost`, `mqtt.rate`. If two slices share a name, it means the group.
Counts nothing.
"""

from collections.abc import Iterable
from enum import StrEnum

from crescendo.model.address import address_of
from crescendo.model.mlmq_clients import Clients
from crescendo.model.protocols import MLMQ
from crescendo.model.workload import Group

MOST_GROUPS, MOST_DESTINATIONS = 32, 32
"""With more groups there are no slices, and with more destinations none of those: counts would outgrow the run."""


_SIDES = ("sender", "receiver")


class SliceScope(StrEnum):
    """What a slice is."""

    GROUP = "group"
    DESTINATION = "destination"
    PROTOCOL = "protocol"


def destination_of(address: str) -> str:
    """The queue or topic of an address as a slice names it, without options."""
    return address_of(address).node


def protocols_by_side(workload: Iterable[Group], clients: Iterable[Clients]) -> dict[tuple[str, str], str]:
    """Group and role -> what its connections of that role speak."""
    return {
        **{(group.name, role): group.spoken_by(role) for group in workload for role in _SIDES},
        **{(group.name, role): MLMQ.name for group in clients for role in _SIDES},
    }


def is_in_slice(group: Group, name: str) -> bool:
    """Whether messages of this group belong to the slice; an empty name is the whole run."""
    destinations = range(min(group.destinations, MOST_DESTINATIONS + 1))
    return name in {"", group.name, group.spoken_by("sender")} or any(
        name == destination_of(group.member(number).address) for number in destinations
    )


def slice_names(workload: list[Group], clients: list[Clients]) -> dict[str, SliceScope]:
    """Every slice that a check may name. The destinations of clients are their own business: they are left out."""
    groups = [*(group.name for group in workload), *(group.name for group in clients)]
    if len(groups) > MOST_GROUPS:
        return {}
    spoken = [group.spoken_by(role) for group in workload for role in _SIDES if group.connections_of(role)]
    spoken += [MLMQ.name] if clients else []
    destinations: dict[str, None] = {}
    for group in workload:
        for number in range(min(group.destinations, MOST_DESTINATIONS + 1)):
            destinations[destination_of(group.member(number).address)] = None
    return {
        **dict.fromkeys(spoken, SliceScope.PROTOCOL),
        **(dict.fromkeys(destinations, SliceScope.DESTINATION) if len(destinations) <= MOST_DESTINATIONS else {}),
        **dict.fromkeys(groups, SliceScope.GROUP),
    }
