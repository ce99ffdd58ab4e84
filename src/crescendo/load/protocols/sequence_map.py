"""Which of our messages is the n-th on this connection?

Protocols number messages from the start of a connection. Our sequence numbers continue across reconnects, some are sent
again, and some are never sent. Both nearly always count up by one, so a few segments describe the mapping.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator

import numpy as np

from crescendo.model.arrays import Int64s


class SequenceMap:
    """Positions on one connection, from 0, and the sequence numbers that were sent there."""

    def __init__(self) -> None:
        self._positions: list[int] = []  # where each segment begins, by position and by sequence number
        self._sequences: list[int] = []
        self.count = 0

    def sent(self, first_seq: int, count: int) -> None:
        """These messages were sent next."""
        if not self._positions or first_seq - self._sequences[-1] != self.count - self._positions[-1]:
            self._positions.append(self.count)
            self._sequences.append(first_seq)
        self.count += count

    def latest(self, first: int, last: int) -> range | None:
        """The sequence numbers from the first to the last position, if the latest segment holds them all."""
        if not self._positions or first < self._positions[-1] or not first <= last < self.count:
            return None
        offset = self._sequences[-1] - self._positions[-1]
        return range(first + offset, last + offset + 1)

    def sequences(self, ranges: Iterable[tuple[int, int]]) -> Iterator[range]:
        """The sequence numbers from each first to its last position (inclusive). Unused positions are skipped."""
        for first, last in ranges:
            yield from self._range_sequences(first, min(last, self.count - 1))

    def _range_sequences(self, first: int, last: int) -> Iterator[range]:
        segment = bisect_right(self._positions, first) - 1
        while 0 <= segment < len(self._positions) and first <= last:
            end = self._positions[segment + 1] - 1 if segment + 1 < len(self._positions) else last
            offset = self._sequences[segment] - self._positions[segment]
            yield range(first + offset, min(end, last) + offset + 1)
            first, segment = end + 1, segment + 1

    def at(self, positions: Int64s) -> range | Int64s:
        """The sequence numbers at these positions, in any order. Unused positions are skipped."""
        if (
            len(positions)
            and int(positions[-1] - positions[0]) == len(positions) - 1
            and (np.diff(positions) == 1).all()
        ):
            found_ranges = list(self.sequences(((int(positions[0]), int(positions[-1])),)))
            if len(found_ranges) == 1:
                return found_ranges[0]
        positions = positions[(positions >= 0) & (positions < self.count)]
        begins, sequences = np.array(self._positions, np.int64), np.array(self._sequences, np.int64)
        segments = np.searchsorted(begins, positions, "right") - 1
        found: Int64s = positions + (sequences - begins)[segments]
        return found

    def includes(self, seq: int) -> bool:
        """Whether this sequence number was sent here."""
        ends = [*self._positions[1:], self.count] if self._positions else []
        return any(
            first <= seq < first + end - position
            for first, position, end in zip(self._sequences, self._positions, ends, strict=True)
        )
