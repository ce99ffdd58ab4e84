"""How is the latency of a receiver's messages written as an HdrHistogram log?

Microseconds from the actual send to the receipt, because that is what Maestro measures; ten seconds per interval, as in
Maestro's own logs. A message counts if its intended send time is in the window, whenever it arrived. A histogram holds
no negative values: those become 0 and a comment counts them. Rounds to three digits, as Maestro does.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from hdrh.histogram import HdrHistogram

from crescendo.exporters.export_window import ExportWindow
from crescendo.record.schema import Flag
from crescendo.record.timeline import SECOND_NS

INTERVAL_NS = 10 * SECOND_NS
HIGHEST_US = 86_400 * 10**6
DIGITS = 3

_COLUMNS = ["flags", "intended_ns", "sent_ns", "received_ns"]
_LEGEND = '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"'

Int64s = npt.NDArray[np.int64]


def write_latency(path: Path, files: Iterable[str], window: ExportWindow) -> None:
    """Write `receiverd-latency.hdr` of one peer from its parts."""
    with path.open("w", encoding="ascii", newline="\n") as log:
        start = datetime.fromtimestamp(window.epoch_us(window.start_ns) / 1e6, UTC)
        log.write("#[mpt]\n#[Histogram log format version 1.3]\n")
        log.write(f"#[StartTime: {start.timestamp():.3f} (seconds since epoch), {start:%a %b %d %H:%M:%S UTC %Y}]\n")
        log.write(f"{_LEGEND}\n")
        negative = _write_intervals(log, files, window)
        if negative:
            log.write(f"#[{negative} values below zero are recorded as 0]\n")


def _write_intervals(log: TextIO, files: Iterable[str], window: ExportWindow) -> int:
    """Write each interval as soon as it has passed, so memory holds only one; late messages get their own line."""
    negative, number, histogram = 0, 0, _histogram()
    for file in files:
        for batch in pq.ParquetFile(file).iter_batches(columns=_COLUMNS):
            flags, intended_ns, sent_ns, received_ns = (column.to_numpy() for column in batch.columns)
            counts = (intended_ns >= window.start_ns) & (intended_ns < window.end_ns)
            counts &= (flags & int(Flag.CORRUPT | Flag.STRAY)) == 0
            latency_ns = (received_ns - sent_ns)[counts]
            negative += int((latency_ns < 0).sum())
            values_us = np.clip(latency_ns // 1000, 0, HIGHEST_US)
            intervals = (received_ns[counts] - window.start_ns) // INTERVAL_NS
            for interval in np.unique(intervals):
                if interval != number:
                    _write_line(log, histogram, number, window)
                    number, histogram = int(interval), _histogram()
                _record(histogram, values_us[intervals == interval])
    _write_line(log, histogram, number, window)
    return negative


def _record(histogram: HdrHistogram, values_us: Int64s) -> None:
    for value, count in zip(*np.unique(values_us, return_counts=True), strict=True):
        histogram.record_value(int(value), int(count))


def _write_line(log: TextIO, histogram: HdrHistogram, interval: int, window: ExportWindow) -> None:
    if histogram.get_total_count():
        start_s = window.epoch_us(window.start_ns + interval * INTERVAL_NS) / 1e6
        longest_s = histogram.get_max_value() / 1e6
        log.write(f"{start_s:.3f},{INTERVAL_NS / SECOND_NS:.3f},{longest_s:.3f},{histogram.encode().decode('ascii')}\n")


def _histogram() -> HdrHistogram:
    return HdrHistogram(1, HIGHEST_US, DIGITS)
