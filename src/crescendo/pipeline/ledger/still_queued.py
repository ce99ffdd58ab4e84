"""Which missing messages does the system itself still count in its queues?

An inspector reads the depth of every queue, the last time when the receivers have stopped. As many missing messages as
a queue still holds are undelivered, not lost; nobody knows which ones, so acknowledged ones are excused first. Reads a
few rows of the recording, and only if messages are missing.
"""

from collections import Counter
from collections.abc import Mapping

import pyarrow.dataset as ds

from crescendo.pipeline import columns as c
from crescendo.pipeline.ledger.discrepancies import LOST, UNDELIVERED
from crescendo.pipeline.ledger.ledger import Discrepancies
from crescendo.pipeline.source.connections import Connections
from crescendo.record.manifest import Manifest

DEPTHS = ("messages", "MessageCount")
"""What inspectors call the number of messages in a queue."""

QUEUE, _END = "queue/", "queue0"


def still_queued(
    manifest: Manifest, connections: Connections, reading_files: list[str], since_ns: int
) -> dict[int, int]:
    """Subscription -> how many messages its queue held when an inspector looked last, if that was since this time."""
    if not reading_files:
        return {}
    entity = ds.field(c.ENTITY)
    table = ds.dataset(reading_files, format="parquet").to_table(
        columns=[c.T_NS, c.ENTITY, c.VALUE],
        filter=ds.field(c.METRIC).isin(DEPTHS) & (ds.field(c.T_NS) >= since_ns) & (entity >= QUEUE) & (entity < _END),
    )
    depths: dict[str, float] = {}
    for row in sorted(table.to_pylist(), key=lambda row: row[c.T_NS]):
        depths[row[c.ENTITY].removeprefix(QUEUE)] = row[c.VALUE]
    found: dict[int, int] = {}
    for connection in manifest.connections:
        number = connections.subscription_of.get(connection.id) if connection.role == "receiver" else None
        if number is None or not connection.address.startswith("queue://"):
            continue
        # A queue of another virtual host has that host in front of its name.
        named = [depth for name, depth in depths.items() if name == connection.destination]
        named = named or [depth for name, depth in depths.items() if name.endswith(f"/{connection.destination}")]
        if len(named) == 1 and named[0] > 0:
            found[number] = int(named[0])
    return found


def without_queued(found: Discrepancies, queued: Mapping[int, int]) -> tuple[Discrepancies, dict[int, int]]:
    """The discrepancies with what is still queued counted as undelivered; subscription -> how many those are."""
    moved: dict[int, int] = {}
    counted: Discrepancies = {}
    for (number, sender), counts in sorted(found.items()):
        kinds = Counter(counts)
        for kind in (c.ACKNOWLEDGED, LOST):
            excused = min(kinds[kind], queued.get(number, 0) - moved.get(number, 0))
            if excused > 0:
                kinds[kind] -= excused
                kinds[UNDELIVERED] += excused
                moved[number] = moved.get(number, 0) + excused
        counted[number, sender] = kinds
    return counted, moved
