"""Which of our messages is the n-th on this connection?

Protocols number what they carry from the start of a connection. Our sequence numbers go on when a connection is made
anew, some are sent again, and some are never sent. Both count up by one nearly always, so stretches say it all.
"""

from bisect import bisect_right


class Numbering:
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

    def sequences(self, first: int, last: int) -> list[tuple[int, int]]:
        """The sequence numbers at places first to last (inclusive), as stretches. What was never sent is left out."""
        last = min(last, self.count - 1)
        found = []
        stretch = bisect_right(self._places, first) - 1
        while 0 <= stretch < len(self._places) and first <= last:
            end = self._places[stretch + 1] - 1 if stretch + 1 < len(self._places) else last
            offset = self._sequences[stretch] - self._places[stretch]
            found.append((first + offset, min(end, last) + offset))
            first, stretch = end + 1, stretch + 1
        return found

    def includes(self, seq: int) -> bool:
        """Whether this sequence number was sent here."""
        ends = [*self._places[1:], self.count] if self._places else []
        return any(
            first <= seq < first + end - place
            for first, place, end in zip(self._sequences, self._places, ends, strict=True)
        )
