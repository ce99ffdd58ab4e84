"""Which of our messages is the n-th on this connection?

Protocols number what they carry from the start of a connection. Our sequence numbers go on when a connection is made
anew, some are sent again, and some are never sent. Both count up by one nearly always, so stretches say it all.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]


class SequenceMap:
    """Places on one connection, from 0, and the sequence numbers that were sent there."""

    def __init__(self) -> None:
        self._places: list[int] = []  # where each stretch begins, by place and by sequence number
        self._sequences: list[int] = []
        self.count = 0

    def sent(self, first_seq: int, count: int) -> None:
        """These messages went out next."""
        if not self._places or first_seq - self._sequences[-1] != self.count - self._places[-1]:
            self._places.append(self.count)
            self._sequences.append(first_seq)
        self.count += count

    def latest(self, first: int, last: int) -> range | None:
        """The sequence numbers from the first to the last place, where the latest stretch holds them all."""
        if not self._places or first < self._places[-1] or not first <= last < self.count:
            return None
        offset = self._sequences[-1] - self._places[-1]
        return range(first + offset, last + offset + 1)

    def sequences(self, stretches: Iterable[tuple[int, int]]) -> Iterator[range]:
        """The sequence numbers from each first to its last place (inclusive). What was never sent is left out."""
        for first, last in stretches:
            yield from self._stretch(first, min(last, self.count - 1))

    def _stretch(self, first: int, last: int) -> Iterator[range]:
        stretch = bisect_right(self._places, first) - 1
        while 0 <= stretch < len(self._places) and first <= last:
            end = self._places[stretch + 1] - 1 if stretch + 1 < len(self._places) else last
            offset = self._sequences[stretch] - self._places[stretch]
            yield range(first + offset, min(end, last) + offset + 1)
            first, stretch = end + 1, stretch + 1

    def at(self, places: Int64s) -> range | Int64s:
        """The sequence numbers at these places, in any order. What was never sent is left out."""
        if len(places) and int(places[-1] - places[0]) == len(places) - 1 and (np.diff(places) == 1).all():
            ranges = list(self.sequences(((int(places[0]), int(places[-1])),)))
            if len(ranges) == 1:
                return ranges[0]
        places = places[(places >= 0) & (places < self.count)]
        begins, sequences = np.array(self._places, np.int64), np.array(self._sequences, np.int64)
        stretches = np.searchsorted(begins, places, "right") - 1
        found: Int64s = places + (sequences - begins)[stretches]
        return found

    def includes(self, seq: int) -> bool:
        """Whether this sequence number was sent here."""
        ends = [*self._places[1:], self.count] if self._places else []
        return any(
            first <= seq < first + end - place
            for first, place, end in zip(self._sequences, self._places, ends, strict=True)
        )
