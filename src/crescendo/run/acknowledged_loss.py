"""How many acknowledged messages of a run never arrived?

From the parts of the recording with Arrow, in a fraction of a second, for loops over many short runs. Messages after
the last one of their sender do not count if receivers were still receiving when they were stopped. The verdict of a
run comes from the pipeline, whose check `lost_acknowledged` says the same and more.
"""

from pathlib import Path

import numpy as np
import pyarrow.dataset as ds

from crescendo.model.arrays import Int64s
from crescendo.record.reader import journalled_parts
from crescendo.record.schema import EVENTS, RECEIVED, SETTLED, Flag, Settlement

_ARRIVING_NS = 1_000_000_000
_STOPPING = "stopping"


def lost_acknowledged(run_dir: Path) -> int:
    """Messages that the system accepted and no receiver got."""
    received = _table(run_dir, RECEIVED, ["sender", "seq", "received_ns", "flags"])
    settled = _table(run_dir, SETTLED, ["sender", "first_seq", "last_seq", "outcome"])
    if settled is None:
        return 0
    accepted = settled["outcome"] == Settlement.ACCEPTED
    still_arriving = _still_arriving(run_dir, None if received is None else received["received_ns"])
    lost = 0
    for sender in np.unique(settled["sender"]):
        ranges = accepted & (settled["sender"] == sender)
        acknowledged = _numbers(settled["first_seq"][ranges], settled["last_seq"][ranges])
        arrived = _arrived(received, int(sender))
        missing = np.setdiff1d(acknowledged, arrived)
        if still_arriving and len(arrived):
            missing = missing[missing < arrived.max()]
        lost += len(missing)
    return lost


def _numbers(first: Int64s, last: Int64s) -> Int64s:
    pieces = [np.arange(low, high + 1, dtype=np.int64) for low, high in zip(first, last, strict=True)]
    return np.unique(np.concatenate(pieces)) if pieces else np.empty(0, np.int64)


def _arrived(received: dict[str, Int64s] | None, sender: int) -> Int64s:
    if received is None:
        return np.empty(0, np.int64)
    ours = (received["flags"] & int(Flag.CORRUPT | Flag.STRAY)) == 0
    return np.unique(received["seq"][ours & (received["sender"] == sender)])


def _still_arriving(run_dir: Path, received_ns: Int64s | None) -> bool:
    files = _files(run_dir, EVENTS)
    if received_ns is None or not len(received_ns) or not files:
        return False
    events = ds.dataset(files, format="parquet").to_table(columns=["t_ns"], filter=ds.field("kind") == _STOPPING)
    stopped = events.column("t_ns").to_pylist()
    return bool(stopped) and min(stopped) - int(received_ns.max()) < _ARRIVING_NS


def _table(run_dir: Path, table: str, columns: list[str]) -> dict[str, Int64s] | None:
    files = _files(run_dir, table)
    if not files:
        return None
    rows = ds.dataset(files, format="parquet").to_table(columns=columns)
    return {name: rows.column(name).to_numpy().astype(np.int64) for name in columns}


def _files(run_dir: Path, table: str) -> list[str]:
    return [str(run_dir / part.path) for part in journalled_parts(run_dir) if part.table == table]
