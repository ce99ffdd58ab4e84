"""Which messages did we delay, and for how long?

Recordings hold own delay and late reading as ranges of consecutive messages of a connection. Spark finds the range of a
message by an equality of blocks, so each range is cut at the borders of blocks, which are as long as it takes to have a
few ranges in each. Ranges may overlap, because a message may be sent twice: then one delay is chosen. Memory grows with
ranges. Reads no messages.
"""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from crescendo.model.arrays import Int64s
from crescendo.pipeline import columns as c
from crescendo.record.schema import OWN_DELAY, READ_DELAY, column_names

RANGES_PER_BLOCK = 4
MAX_PIECES = 4_000_000
"""With more pieces, blocks are made longer."""

DDL = f"{c.CONNECTION} INT, {c.BLOCK} BIGINT, {c.FIRST_SEQ} BIGINT, {c.LAST_SEQ} BIGINT, {c.DELAY_NS} BIGINT"
NUMBER_BITS = 47  # of a sequence number: the connection is kept above them
_SCHEMA = pa.schema(
    [(c.CONNECTION, pa.int32()), *((name, pa.int64()) for name in (c.BLOCK, c.FIRST_SEQ, c.LAST_SEQ, c.DELAY_NS))]
)


@dataclass(frozen=True)
class DelayRanges:
    """Ranges of one table, none of which overlap; `first` and `last` hold the connection above the number."""

    first: Int64s
    last: Int64s
    delay_ns: Int64s

    @property
    def block_bits(self) -> int:
        """How many low bits of a number a block covers."""
        if not self.first.size:
            return 0
        covered = int((self.last - self.first + 1).sum())
        bits = max((RANGES_PER_BLOCK * covered // self.first.size).bit_length() - 1, 4)
        while int(((self.last >> bits) - (self.first >> bits) + 1).sum()) > MAX_PIECES:
            bits += 1
        return bits

    def pieces(self, bits: int) -> pa.Table:
        """The ranges, cut at the borders of blocks of 2^`bits` numbers."""
        low_block = self.first >> bits
        counts = (self.last >> bits) - low_block + 1
        index = np.repeat(np.arange(counts.size), counts)
        block = low_block[index] + np.arange(index.size) - np.repeat(np.cumsum(counts) - counts, counts)
        first = np.maximum(self.first[index], block << bits)
        last = np.minimum(self.last[index], ((block + 1) << bits) - 1)
        number, connection = (1 << NUMBER_BITS) - 1, first >> NUMBER_BITS
        table = [connection, (first & number) >> bits, first & number, last & number, self.delay_ns[index]]
        return pa.table([pa.array(column, kind) for column, kind in zip(table, _SCHEMA.types, strict=True)], _SCHEMA)


def own_delays(files: list[str], senders: Iterable[int]) -> DelayRanges:
    """The own delay of these senders. Of two delays the smaller is used: the larger one includes another attempt."""
    return _ranges(files, OWN_DELAY, np.array(sorted(senders), np.int64), min)


def read_delays(files: list[str], receivers: Iterable[int]) -> DelayRanges:
    """How late these receivers read. Of two delays the larger is used: each is an upper bound for its own reason."""
    return _ranges(files, READ_DELAY, np.array(sorted(receivers), np.int64), max)


def own_time_ns(files: list[str], measured: dict[int, tuple[int, int]]) -> dict[int, int]:
    """Unbounded sender -> the time in which it could have sent and did not, over its messages first to last."""
    totals = dict.fromkeys(measured, 0)
    for connection, first, _, delay_ns in _columns(files, OWN_DELAY):
        for sender, (low, high) in measured.items():
            chosen = (connection == sender) & (first >= low) & (first <= high)
            totals[sender] += int(delay_ns[chosen].sum())
    return totals


def _ranges(files: list[str], table: str, connections: Int64s, choose: Callable[..., int]) -> DelayRanges:
    lows, highs, delays = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for connection, first, last, delay_ns in _columns(files, table):
        # Anything else was not written by a peer of this run.
        usable = np.isin(connection, connections) & (first >= 0) & (first <= last) & (last < 1 << NUMBER_BITS)
        above = connection[usable] << NUMBER_BITS
        lows.append(above + first[usable])
        highs.append(above + last[usable])
        delays.append(np.maximum(delay_ns[usable], 0))
    low, high, delay = np.concatenate(lows), np.concatenate(highs), np.concatenate(delays)
    order = np.argsort(low, kind="stable")
    low, high, delay = low[order], high[order], delay[order]
    if np.any(low[1:] <= np.maximum.accumulate(high)[:-1]):
        return _without_overlap(low, high, delay, choose)
    return DelayRanges(low, high, delay)


def _columns(files: list[str], table: str) -> Iterable[tuple[Int64s, Int64s, Int64s, Int64s]]:
    """The four columns of a table of ranges, batch by batch."""
    if not files:
        return
    names = list(column_names(table))
    for batch in ds.dataset(files, format="parquet").to_batches(columns=names):
        first, second, third, fourth = (batch[name].to_numpy().astype(np.int64) for name in names)
        yield first, second, third, fourth


def _without_overlap(low: Int64s, high: Int64s, delay: Int64s, choose: Callable[..., int]) -> DelayRanges:
    """One delay for each message: a sweep over the borders, with the ranges that cover the current one in a heap."""
    sign = 1 if choose is min else -1
    edges = np.unique(np.concatenate([low, high + 1])).tolist()
    starts, ends, chosen = [], [], []
    active: list[tuple[int, int]] = []  # delay, end
    following = 0
    for start, end in pairwise(edges):
        while following < low.size and low[following] <= start:
            heapq.heappush(active, (sign * int(delay[following]), int(high[following])))
            following += 1
        while active and active[0][1] < start:
            heapq.heappop(active)
        if active:
            starts.append(start)
            ends.append(end - 1)
            chosen.append(sign * active[0][0])
    return DelayRanges(*(np.array(column, np.int64) for column in (starts, ends, chosen)))
