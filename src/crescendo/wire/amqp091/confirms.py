"""Which published messages has the other side confirmed?

Numbers count from 1 in the order of publishing. Confirms come for one number or for all up to one, in any order; this
turns them into stretches of numbers that nobody confirmed before. It keeps one number, plus those confirmed ahead of
their turn.
"""

import numpy as np
import numpy.typing as npt

from crescendo.model.errors import PeerError

Stretch = tuple[int, int]


class Confirms:
    """The confirms of one channel."""

    def __init__(self) -> None:
        self.published = 0
        self._below = 0  # everything up to this number is confirmed
        self._early: set[int] = set()  # confirmed, but above a number that is not

    @property
    def open(self) -> int:
        """How many messages nobody has confirmed."""
        return self.published - self._below - len(self._early)

    def one(self, number: int) -> list[Stretch]:
        return self._stretch(number, number)

    def up_to(self, last: int) -> list[Stretch]:
        """All up to this number; up to 0 means all there are."""
        last = last or self.published
        if last > self.published:
            raise self._unknown(last)
        first = self._below + 1
        if first > last:
            return []
        self._below = last
        if not self._early:
            return [(first, last)]
        stretches = self._without_early(first, last)
        self._absorb()
        return stretches

    def each(self, numbers: npt.NDArray[np.uint64]) -> list[Stretch]:
        """One confirm a number, many at once; nearly always they are consecutive."""
        breaks = np.flatnonzero(np.diff(numbers) != 1) + 1
        starts = numbers[np.concatenate(([0], breaks))].tolist()
        ends = numbers[np.concatenate((breaks - 1, [-1]))].tolist()
        return [stretch for start, end in zip(starts, ends, strict=True) for stretch in self._stretch(start, end)]

    def run(self, numbers: npt.NDArray[np.uint64], multiples: npt.NDArray[np.bool_]) -> list[Stretch]:
        """Confirms that came one after the other, some of them for all up to their number; neighbours are joined."""
        if not multiples.any():
            return self.each(numbers)
        stretches: list[Stretch] = []
        for number, multiple in zip(numbers.tolist(), multiples.tolist(), strict=True):
            for first, last in self.up_to(number) if multiple else self.one(number):
                if stretches and stretches[-1][1] == first - 1:
                    first = stretches.pop()[0]  # noqa: PLW2901 - the stretch grows to the left
                stretches.append((first, last))
        return stretches

    def _stretch(self, first: int, last: int) -> list[Stretch]:
        if not 1 <= first <= last <= self.published:
            raise self._unknown(last)
        if first <= self._below or (self._early and not self._early.isdisjoint(range(first, last + 1))):
            raise PeerError(f"message {first} or one close behind it was confirmed twice")
        if first == self._below + 1:
            self._below = last
            self._absorb()
        else:
            self._early.update(range(first, last + 1))
        return [(first, last)]

    def _absorb(self) -> None:
        while self._early and self._below + 1 in self._early:
            self._below += 1
            self._early.remove(self._below)

    def _without_early(self, first: int, last: int) -> list[Stretch]:
        # Walks the numbers, not the set: the sum of all walks is the count of messages, whatever the other side does.
        stretches: list[Stretch] = []
        start = first
        for number in range(first, last + 1):
            if number in self._early:
                self._early.remove(number)
                if start < number:
                    stretches.append((start, number - 1))
                start = number + 1
        if start <= last:
            stretches.append((start, last))
        return stretches

    def _unknown(self, number: int) -> PeerError:
        return PeerError(f"a confirm for message {number}, where {self.published} were published")
