"""In which episodes are delays of the system mixed with our own?

Messages that are late at the same time are one episode: whatever delayed the first may still delay the last. Where our
own delay is a notable part of an episode's length, nobody knows what the system would have done without it, and the
episode proves nothing. docs/pipeline.md derives it. Reads the rows of `late_spans`, no messages.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow.dataset as ds

from crescendo.model.arrays import Int64s
from crescendo.model.own_delay import NOTABLE_SHARE
from crescendo.pipeline import columns as c
from crescendo.pipeline.latency.delay_ranges import NUMBER_BITS, DelayRanges
from crescendo.pipeline.latency.late_spans import LONGEST_OWN_NS, OCTAVE, PATH
from crescendo.pipeline.source.recorded_stalls import Stall

TIME_BITS = 10
"""Times of episodes are numbers of 2^10 ns, so that those of years fit into a range."""


def shared_episodes(
    files: list[Path], least: int, origin_ns: int, stalls_of: Callable[[int], list[Stall]], ends: int = 1
) -> DelayRanges:
    """When messages were due that belong to an episode of which we are a notable part, by path.

    A stall of a loop at either end of a path is a span that is all ours, whether or not it delayed a message. Paths
    that differ by less than `ends` are taken together: those of one sender.
    """
    if not files:  # on a cluster, an empty result may have none
        return _merged(np.empty(0, np.int64), np.empty(0, np.int64))
    table = ds.dataset([str(file) for file in files], format="parquet").to_table()
    names = (OCTAVE, c.START_NS, c.END_NS, LONGEST_OWN_NS)
    path, *spans = (table[name].to_numpy().astype(np.int64) for name in (PATH, *names))
    found = [np.empty((3, 0), np.int64)]
    for number in np.unique(path).tolist():
        own = [_as_span(stall) for stall in stalls_of(number)]
        columns = np.concatenate([np.array(spans)[:, path == number], np.array(own, np.int64).reshape(-1, 4).T], axis=1)
        for start, end in episodes_of(columns, least):
            found.append(np.array([np.full_like(start, number // ends), start, end]))
    path, first, last = np.concatenate(found, axis=1)
    first, last = (np.maximum(edge - origin_ns, 0) >> TIME_BITS for edge in (first, last))
    return _merged((path << NUMBER_BITS) + first, (path << NUMBER_BITS) + last)


def episodes_of(spans: Int64s, least: int) -> Iterator[tuple[Int64s, Int64s]]:
    """The first and the last times of the episodes of one path that are ours in part.

    `spans` has the columns of a row. Our delays are taken by octaves, and delays below the octave do not count: a
    system that is slow all the time is slow without us.
    """
    octave, start_ns, end_ns, own_ns = spans[:, np.argsort(spans[1], kind="stable")]
    for level in range(least, int(own_ns.max(initial=0)).bit_length()):
        chosen = octave >= level
        start, end, own = start_ns[chosen], np.maximum.accumulate(end_ns[chosen]), own_ns[chosen]
        if not start.size:
            return
        begins = np.flatnonzero(np.append(True, start[1:] > end[:-1]))
        lasts = np.append(begins[1:], start.size) - 1
        longest_ns = np.maximum.reduceat(np.where(own >> level == 1, own, 0), begins)
        shared = longest_ns > NOTABLE_SHARE * (end[lasts] - start[begins])
        yield start[begins][shared], end[lasts][shared]


def _as_span(stall: Stall) -> tuple[int, int, int, int]:
    """Octave, start, end and own delay, as of a row."""
    return stall.duration_ns.bit_length() - 1, stall.from_ns, stall.from_ns + stall.duration_ns, stall.duration_ns


def _merged(first: Int64s, last: Int64s) -> DelayRanges:
    """The union of ranges. They delay nothing by themselves."""
    order = np.argsort(first, kind="stable")
    first, last = first[order], np.maximum.accumulate(last[order]) if first.size else last
    begins = np.flatnonzero(np.append(True, first[1:] > last[:-1])) if first.size else np.empty(0, np.int64)
    ends = np.append(begins[1:], first.size) - 1 if first.size else begins
    return DelayRanges(first[begins], last[ends], np.zeros(begins.size, np.int64))
