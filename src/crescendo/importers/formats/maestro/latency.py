"""How long did messages take, according to a Maestro receiver?

`receiverd-latency.hdr` is an HdrHistogram log: one line per interval, its histogram compressed and in base 64, values
in microseconds from the sending of a message to its receipt. Spark cannot decode such a line, and there is only one for
ten seconds of a run, so they are decoded here, line by line, with the library that defines the encoding. Counts move to
the buckets of `model.histogram` by the upper bound of their old bucket; percentiles stay within the width of both
buckets.
"""

import base64
import binascii
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hdrh.histogram import HdrHistogram

from crescendo.importers.format import (
    LINE,
    REASON,
    REJECT_DDL,
    SOURCE,
    TEXT,
    ImportResult,
    SourceFile,
    Workspace,
    peer_record,
)
from crescendo.importers.lines import MAX_TEXT_CHARS, small_frame
from crescendo.importers.times import SECOND_NS, US_NS
from crescendo.model.histogram import bucket_of
from crescendo.record.schema import HISTOGRAMS, arrow_schema

HDR = "hdr"
KIND = "transfer"
MAX_HISTOGRAM_BYTES = 4 * 2**20
MAX_LINE_BYTES = 2 * 2**20
_SIGNATURE = re.compile(rb"#\[Histogram log format version 1\.[0-9]+\]")
_START = re.compile(r"#\[StartTime: ([0-9]{1,10}(?:\.[0-9]+)?)")
_BASE = re.compile(r"#\[BaseTime: ([0-9]{1,10}(?:\.[0-9]+)?)")
_LINE = re.compile(r"(?:Tag=[^,]*,)?([0-9]{1,10}(?:\.[0-9]{1,9})?),[0-9.]+,[0-9.]+,(\S+)")
_YEAR_S = 365 * 86_400


class UnreadableHistogram(Exception):
    """A line is not a histogram, and why."""


@dataclass
class _Clock:
    """The base of the times in a log: 1970, or a time in the log's comments."""

    start_s: float = 0.0
    base_s: float | None = None

    def read_comment(self, comment: str) -> None:
        if match := _START.match(comment):
            self.start_s = float(match[1])
        elif match := _BASE.match(comment):
            self.base_s = float(match[1])

    def epoch_ns(self, stamp: str) -> int:
        if self.base_s is None:
            # As in the library's own reader: a time long before the start time is relative to it.
            self.base_s = self.start_s if float(stamp) < self.start_s - _YEAR_S else 0.0
        return round(self.base_s * 1000) * 10**6 + round(float(stamp) * 1000) * 10**6


def is_hdr(head: bytes) -> bool:
    return _SIGNATURE.search(head[:4096]) is not None


def read_latency(workspace: Workspace, sources: list[SourceFile]) -> ImportResult:
    """Write the histograms, line by line, into a Parquet file that Spark then reads like any other."""
    rejects = []
    result = ImportResult(resolution_ns=SECOND_NS)
    path = workspace.folder / "histograms.parquet"
    with pq.ParquetWriter(path, arrow_schema(HISTOGRAMS), compression="zstd") as writer:
        for source in sources:
            clock = _Clock()
            for number, text in _lines(source.staged):
                result.records[source.number] = number
                if not text.strip() or text.startswith('"'):
                    continue
                if text.startswith("#"):
                    clock.read_comment(text)
                    continue
                try:
                    writer.write_batch(_rows(text, clock, source.label))
                except UnreadableHistogram as err:
                    rejects.append({SOURCE: source.number, LINE: number, REASON: str(err), TEXT: text[:MAX_TEXT_CHARS]})
            result.records.setdefault(source.number, 0)
            result.peers.append(peer_record(source.label, "receiver"))
    result.frames.append((HISTOGRAMS, workspace.spark.read.option("__globPaths__", "false").parquet(str(path))))
    if rejects:
        result.rejects.append(small_frame(workspace.spark, REJECT_DDL, rejects))
    result.caveats.append(
        "Maestro's .hdr files contain histograms of whole intervals: the latency of a single message is not known"
    )
    return result


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    with path.open("rb") as file:
        number = 0
        while line := file.readline(MAX_LINE_BYTES):
            number += 1
            yield number, line.decode("utf-8", "replace").rstrip("\r\n")


def _rows(text: str, clock: _Clock, name: str) -> pa.RecordBatch:
    match = _LINE.fullmatch(text)
    if match is None:
        raise UnreadableHistogram("not an interval: start, length, maximum and a histogram, separated by commas")
    histogram = _decoded(match[2])
    t_ns = clock.epoch_ns(match[1])
    values_us, counts = [], []
    for item in histogram.get_recorded_iterator():
        values_us.append(histogram.get_highest_equivalent_value(item.value_iterated_to))
        counts.append(item.count_added_in_this_iter_step)
    buckets, positions = np.unique(bucket_of(np.array(values_us, np.int64) * US_NS), return_inverse=True)
    sums = np.zeros(buckets.size, np.int64)
    np.add.at(sums, positions, np.array(counts, np.int64))
    size = buckets.size
    columns = [np.full(size, t_ns), [name] * size, [KIND] * size, buckets.astype(np.int32), sums]
    return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=arrow_schema(HISTOGRAMS))


def _decoded(payload: str) -> HdrHistogram:
    try:
        compressed = base64.b64decode(payload, validate=True)
        # After a header of eight bytes comes compressed data that may expand a thousandfold.
        decompressed = zlib.decompressobj().decompress(compressed[8:], MAX_HISTOGRAM_BYTES + 1)
    except (binascii.Error, zlib.error) as err:
        raise UnreadableHistogram(f"the histogram cannot be decompressed: {err}") from err
    if len(decompressed) > MAX_HISTOGRAM_BYTES:
        raise UnreadableHistogram(f"the histogram is larger than {MAX_HISTOGRAM_BYTES:,} bytes")
    try:
        return HdrHistogram.decode(payload)
    except Exception as err:  # the library passes on any exception of its parts
        raise UnreadableHistogram(f"the histogram cannot be decoded: {err or type(err).__name__}") from err
