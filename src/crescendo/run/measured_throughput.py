"""How many messages and bytes did the connections carry in the measure phase?

Reads the throughput table of an analysed run, and only the seconds that lie entirely within the measure phase: a
partial second would understate the rate. Judges nothing.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from crescendo.model.arrays import Int64s
from crescendo.pipeline import columns
from crescendo.pipeline.latency.group_sums import group_sums
from crescendo.record.contained_files import contained_files
from crescendo.record.manifest import Manifest
from crescendo.record.table_reader import table_dir
from crescendo.record.tables import THROUGHPUT
from crescendo.record.timeline import RunTimeline


@dataclass(frozen=True)
class ConnectionThroughput:
    """Messages and bytes of each connection that carried any, and for how long."""

    seconds: int
    messages: dict[int, int]
    octets: dict[int, int]


def connection_throughput(run_dir: Path, manifest: Manifest, role: str) -> ConnectionThroughput:
    """By connection, numbered as in the manifest."""
    sums = {columns.MESSAGES: "sum", columns.BYTES: "sum"}
    rows = _sums(run_dir, manifest, role, columns.CONNECTION, sums)
    return ConnectionThroughput(
        len(RunTimeline.of(manifest.phases).whole_seconds),
        {row[columns.CONNECTION]: row[columns.MESSAGES] for row in rows},
        {row[columns.CONNECTION]: row[columns.BYTES] for row in rows},
    )


def messages_per_second(run_dir: Path, manifest: Manifest, role: str) -> Int64s:
    """By second, over all connections."""
    whole = RunTimeline.of(manifest.phases).whole_seconds
    found = np.zeros(len(whole), np.int64)
    for row in _sums(run_dir, manifest, role, columns.SECOND, {columns.MESSAGES: "sum"}):
        found[row[columns.SECOND] - whole.start] = row[columns.MESSAGES]
    return found


def _sums(run_dir: Path, manifest: Manifest, role: str, key: str, sums: dict[str, str]) -> list[dict[str, int]]:
    whole = RunTimeline.of(manifest.phases).whole_seconds
    files = contained_files(table_dir(run_dir, THROUGHPUT), "*.parquet", run_dir)
    if not files or not whole:
        return []
    second = pc.field(columns.SECOND)
    wanted = (pc.field(columns.ROLE) == role) & (second >= whole.start) & (second < whole.stop)
    rows: list[dict[str, int]] = group_sums(files, [key], sums, where=wanted).to_pylist()
    return rows
