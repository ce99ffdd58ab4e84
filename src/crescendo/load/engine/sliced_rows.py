"""How long did the messages of each slice take in the last second?

For limits of `stop_when` on a group, a destination or a protocol. A message belongs to the slice of its sender, or to
that of its receiver if the slice has no senders. Only runs with such a limit pay for this. Decides nothing.
"""

from collections.abc import Mapping

import numpy as np

from crescendo.load.assignment import SliceMembers
from crescendo.load.engine.received_rows import ReceivedRows, ReceiverCounts
from crescendo.load.engine.statistics import Distribution
from crescendo.model.arrays import Int64s
from crescendo.model.peer_statistics import PeerStatistics, response_statistics
from crescendo.record.writer import RowSink
from crescendo.wire.stamp import MAGIC, heads_of


class SlicedRows(ReceivedRows):
    """Turns messages into rows, and keeps the responses of each slice apart."""

    def __init__(self, log: RowSink, tag: int, slices: Mapping[str, SliceMembers], *, unpaced: bool) -> None:
        super().__init__(log, tag, unpaced=unpaced)
        self._slices = [(name, members, Distribution()) for name, members in slices.items()]

    def last_second(self) -> dict[str, PeerStatistics]:
        """Slice -> its responses since the last call; without those that received nothing."""
        found = {}
        for name, _, responses in self._slices:
            if responses.fold(90.0) is not None:
                found[name] = response_statistics(p90_ns=responses.latest(90.0), max_ns=responses.latest(100.0))
        return found

    def _take_words(
        self,
        counts: ReceiverCounts,
        words: Int64s,
        received_ns: int | Int64s,
        arrival: int,
        sizes: int | Int64s,
        flags: int | Int64s,
    ) -> None:
        super()._take_words(counts, words, received_ns, arrival, sizes, flags)
        heads = words[:, 0]
        if not self._all_ours(heads, words[:, 1]):
            return  # they were taken one by one
        senders, responses_ns = heads_of(heads)[1], received_ns - words[:, 2]
        for _, members, responses in self._slices:
            if counts.number in members.receivers:
                responses.add(responses_ns)
            elif len(chosen := responses_ns[np.isin(senders, members.senders)]):
                responses.add(chosen)

    def _take_one(
        self, counts: ReceiverCounts, stamp: tuple[int, ...], received_ns: int, arrival: int, size: int, flags: int
    ) -> None:
        super()._take_one(counts, stamp, received_ns, arrival, size, flags)
        magic, sender, tag, _, intended_ns, _ = stamp
        if magic == MAGIC and tag == self._tag:
            for _, members, responses in self._slices:
                if sender in members.senders or counts.number in members.receivers:
                    responses.add_one(received_ns - intended_ns)


def rows_of(log: RowSink, tag: int, slices: Mapping[str, SliceMembers], *, unpaced: bool) -> ReceivedRows:
    """The rows of a receiving process, by slice where limits ask for it."""
    return SlicedRows(log, tag, slices, unpaced=unpaced) if slices else ReceivedRows(log, tag, unpaced=unpaced)
