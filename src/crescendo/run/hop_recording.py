"""How do the samples of routers get into the recording?

Relays write when sampled messages arrived and left; after the load has ended, what they wrote is recorded under the
name of each node. Samples of other runs are left out, and so is a file that cannot be read: a router that was killed
costs its samples, not the run.
"""

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from crescendo.record.schema import HOPS
from crescendo.record.writer import RowSink
from crescendo.systems.relay.hop_samples import WRITTEN_EVERY_S, read_hops

_COLUMNS = ("sender", "seq", "arrived_ns", "departed_ns")


def record_hops(log: RowSink, files: Mapping[str, Path], tag: int) -> None:
    """Record the samples of every node; `tag` is the run's."""
    if files:
        time.sleep(2 * WRITTEN_EVERY_S)  # until the last samples are written
    for node, file in files.items():
        with contextlib.suppress(OSError):
            hops = read_hops(file)
            hops = hops[hops["tag"] == tag]
            if len(hops):
                columns = [np.ascontiguousarray(hops[name], np.int64) for name in _COLUMNS]
                log.append(HOPS, len(hops), node, *columns)
