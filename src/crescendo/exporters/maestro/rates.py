"""How is the number of messages per second of a peer written in Maestro's binary format?

Big-endian. A header of 20 bytes: the name in eight, then file version, product version and role as 32-bit integers.
Then 20 bytes per second: metadata as a 32-bit integer, messages and microseconds since 1970 as 64-bit integers. Maestro
counts records, not times, so a second without messages is a record too. Interprets nothing.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from crescendo.exporters.export_window import ExportWindow
from crescendo.model.errors import ConfigError
from crescendo.record.schema import RECEIVED, SENT, Flag
from crescendo.record.timeline import SECOND_NS

SENDER, RECEIVER = "sender", "receiver"
TABLES = {SENDER: SENT, RECEIVER: RECEIVED}

MAX_RECORDS = 20_000_000
_CHUNK_RECORDS = 1_000_000
_NAME = b" maestro"
_FILE_VERSION = 1
_PRODUCT_VERSION = 138  # 1.3.8: the version whose files have this layout
_ROLES = {SENDER: 1, RECEIVER: 2}
_RECORD = np.dtype([("metadata", ">i4"), ("messages", ">i8"), ("epoch_us", ">i8")])
_TIMES = {SENDER: "sent_ns", RECEIVER: "received_ns"}


def write_rates(path: Path, role: str, files: Iterable[str], window: ExportWindow) -> None:
    """Write `sender.dat` or `receiver.dat` of one peer from its parts."""
    messages = _messages(role, files, window)
    first_us = window.epoch_us(window.start_ns)
    with path.open("wb") as file:
        file.write(_NAME + np.array([_FILE_VERSION, _PRODUCT_VERSION, _ROLES[role]], ">i4").tobytes())
        for first in range(0, messages.size, _CHUNK_RECORDS):
            counts = messages[first : first + _CHUNK_RECORDS]
            records = np.zeros(counts.size, _RECORD)
            records["messages"] = counts
            records["epoch_us"] = first_us + (first + np.arange(counts.size, dtype=np.int64)) * (SECOND_NS // 1000)
            file.write(records.tobytes())


def check_length(windows: Sequence[ExportWindow]) -> None:
    """Refuse an export that would write a record for every second of months, if a recording claims so."""
    records = sum(_seconds(window) for window in windows)
    if records > MAX_RECORDS:
        raise ConfigError(f"{records:,} seconds of all peers are too many for Maestro's files, at most {MAX_RECORDS:,}")


def _seconds(window: ExportWindow) -> int:
    return -(-(window.end_ns - window.start_ns) // SECOND_NS)


def _messages(role: str, files: Iterable[str], window: ExportWindow) -> npt.NDArray[np.int64]:
    messages = np.zeros(_seconds(window), np.int64)
    columns = [_TIMES[role], *(["flags"] if role == RECEIVER else [])]
    for file in files:
        for batch in pq.ParquetFile(file).iter_batches(columns=columns):
            t_ns = batch.column(0).to_numpy()
            counts = (t_ns >= window.start_ns) & (t_ns < window.end_ns)
            if role == RECEIVER:
                counts &= (batch.column(1).to_numpy() & int(Flag.CORRUPT | Flag.STRAY)) == 0
            found = np.bincount((t_ns[counts] - window.start_ns) // SECOND_NS)
            messages[: found.size] += found
    return messages
