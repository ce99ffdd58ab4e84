"""When did the loops of senders and receivers stand still?

Peers record an event for each time in which their loop did not turn for longer than it meant to wait. Reads events
only; what such a time explains is decided where latencies are.
"""

from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pyarrow.dataset as ds

from crescendo.pipeline.columns import DETAIL, KIND
from crescendo.record.clock_mapping import PeerTimes
from crescendo.record.manifest import Manifest

STALL = "stall"
"""The kind of these events."""


@dataclass(frozen=True)
class Stall:
    """A loop that did not turn for `duration_ns` from `from_ns` on."""

    from_ns: int
    duration_ns: int


ConnectionStalls = list[tuple[list[int], list[Stall]]]
"""The connections of each process whose loop stood still, and its stalls."""


def stalls_of(role: str, event_files: list[str], manifest: Manifest, at_least_ns: int = 0) -> ConnectionStalls:
    """The stalls of the processes of a role, unless they are shorter than `at_least_ns`."""
    if not event_files:
        return []
    by_peer: dict[str, list[Stall]] = {}
    times = PeerTimes(manifest)
    table = ds.dataset(event_files, format="parquet").to_table(columns=[DETAIL], filter=ds.field(KIND) == STALL)
    for text in table[DETAIL].to_pylist():
        detail = _detail(text)
        if detail is not None and detail[1].duration_ns >= at_least_ns:
            peer, stall = detail
            by_peer.setdefault(peer, []).append(replace(stall, from_ns=times.to_ours(peer, stall.from_ns)))
    connections: dict[str, list[int]] = {}
    for connection in manifest.connections:
        if connection.role == role:
            connections.setdefault(connection.peer, []).append(connection.id)
    return [(numbers, by_peer[peer]) for peer, numbers in connections.items() if peer in by_peer]


def _detail(text: str) -> tuple[str, Stall] | None:
    """The peer and its stall; None for an event that says less."""
    try:
        detail: dict[str, Any] = msgspec.json.decode(text, type=dict)
        return str(detail["peer"]), Stall(int(detail["from_ns"]), max(int(detail["duration_ns"]), 0))
    except (msgspec.DecodeError, msgspec.ValidationError, KeyError, TypeError, ValueError):
        return None
