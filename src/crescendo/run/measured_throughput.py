"""How many messages and bytes did each connection carry in the measure phase?

Reads the throughput table of an analysed run, and only the seconds that lie entirely within the measure phase: a
partial second would understate the rate. Judges nothing.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.dataset as ds

from crescendo.pipeline import columns
from crescendo.record.manifest import Manifest
from crescendo.record.summary import TABLES_DIR
from crescendo.record.tables import THROUGHPUT
from crescendo.record.timeline import RunTimeline


@dataclass(frozen=True)
class MeasuredThroughput:
    """Messages and bytes by second (rows) and connection (columns)."""

    messages: npt.NDArray[np.int64]
    octets: npt.NDArray[np.int64]

    @property
    def seconds(self) -> int:
        return len(self.messages)


def measured_throughput(run_dir: Path, manifest: Manifest, role: str) -> MeasuredThroughput:
    """The full seconds of the measure phase; connections are numbered as in the manifest."""
    connections = 1 + max((one.id for one in manifest.connections if one.role == role), default=-1)
    whole = RunTimeline.of(manifest.phases).whole_seconds
    first, seconds = whole.start, len(whole)
    found = MeasuredThroughput(np.zeros((seconds, connections), np.int64), np.zeros((seconds, connections), np.int64))
    files = sorted((run_dir / TABLES_DIR / THROUGHPUT.name).glob("*.parquet"))
    if files and seconds:
        second = ds.field(columns.SECOND)
        wanted = (ds.field(columns.ROLE) == role) & (second >= first) & (second < first + seconds)
        rows = ds.dataset(files).to_table(filter=wanted)
        position = tuple(rows[name].to_numpy() for name in (columns.SECOND, columns.CONNECTION))
        listed = position[1] < connections
        position = (position[0][listed] - first, position[1][listed])
        np.add.at(found.messages, position, rows[columns.MESSAGES].to_numpy()[listed])
        np.add.at(found.octets, position, rows[columns.BYTES].to_numpy()[listed])
    return found
