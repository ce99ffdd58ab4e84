"""Which messages share their fate, because the same loops of ours handle them?

A path is a sending group in one process and a receiving group in one process. A process that stands still delays all
messages of its paths and none of the others. Numbers only: the path of a message follows from its connections.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from crescendo.pipeline import columns as c
from crescendo.pipeline.source.per_run import lookup
from crescendo.pipeline.source.recorded_stalls import ConnectionStalls, Stall
from crescendo.record.manifest import Manifest

MAX_PATHS = 1 << 15
"""With more, all messages have one path."""


@dataclass(frozen=True)
class MessagePaths:
    """The ends of paths, numbered: connection -> end."""

    senders: dict[int, int]
    receivers: dict[int, int]

    @property
    def receiving_ends(self) -> int:
        return len(set(self.receivers.values())) + 1  # and one for receivers that are not listed

    @property
    def count(self) -> int:
        return (len(set(self.senders.values())) + 1) * self.receiving_ends

    def stalls_of(self, path: int, senders: ConnectionStalls, receivers: ConnectionStalls) -> list[Stall]:
        """The stalls of the loops at both ends of a path."""
        sending, receiving = divmod(path, self.receiving_ends)
        at_ends = ((self.senders, sending - 1, senders), (self.receivers, receiving - 1, receivers))
        return [
            stall
            for ends, end, stalls in at_ends
            for connections, own in stalls
            if any(ends.get(connection, end) == end for connection in connections)
            for stall in own
        ]

    def path_column(self) -> Column:
        """The path of a delivery."""
        receiver = lookup([self.receivers], F.col(c.RECEIVER)) + 1
        return self.sender_column() * self.receiving_ends + receiver

    def sender_column(self) -> Column:
        """The sending end of a path."""
        return lookup([self.senders], F.col(c.SENDER)) + 1


def message_paths(manifest: Manifest) -> MessagePaths:
    paths = MessagePaths(*(_ends(manifest, role) for role in (c.SENDER, c.RECEIVER)))
    return paths if paths.count <= MAX_PATHS else MessagePaths({}, {})


def _ends(manifest: Manifest, role: str) -> dict[int, int]:
    ends = {item.id: (item.peer, item.group) for item in manifest.connections if item.role == role}
    numbers = _numbered(ends.values())
    return {connection: numbers[end] for connection, end in ends.items()}


def _numbered(ends: Iterable[tuple[str, str]]) -> dict[tuple[str, str], int]:
    return {end: number for number, end in enumerate(dict.fromkeys(ends))}
