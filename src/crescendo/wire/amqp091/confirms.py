"""Which published messages has the broker confirmed?

Messages are numbered from 1 in the order of publishing. A confirm names one number or all up to one, in any order; this
module turns confirms into ranges of newly confirmed numbers. It keeps one number, plus those confirmed out of order.
"""

import numpy as np
import numpy.typing as npt

from crescendo.model.errors import PeerError

TagRange = tuple[int, int]


class Confirms:
    """The confirms of one channel."""

    def __init__(self) -> None:
        self.published = 0
        self._confirmed_up_to = 0  # every number up to this one is confirmed
        self._early: set[int] = set()  # confirmed out of order, above an unconfirmed number

    @property
    def unconfirmed(self) -> int:
        """How many published messages are not confirmed yet."""
        return self.published - self._confirmed_up_to - len(self._early)

    def confirm_one(self, number: int) -> list[TagRange]:
        return self._confirm_range(number, number)

    def confirm_up_to(self, last: int) -> list[TagRange]:
        """Confirm all numbers up to this one; 0 means all published ones."""
        last = last or self.published
        if last > self.published:
            raise self._unknown(last)
        first = self._confirmed_up_to + 1
        if first > last:
            return []
        self._confirmed_up_to = last
        if not self._early:
            return [(first, last)]
        ranges = self._without_early(first, last)
        self._advance()
        return ranges

    def confirm_each(self, numbers: npt.NDArray[np.uint64]) -> list[TagRange]:
        """Confirm many single numbers, which are nearly always consecutive."""
        breaks = np.flatnonzero(np.diff(numbers) != 1) + 1
        starts = numbers[np.concatenate(([0], breaks))].tolist()
        ends = numbers[np.concatenate((breaks - 1, [-1]))].tolist()
        return [
            tag_range for start, end in zip(starts, ends, strict=True) for tag_range in self._confirm_range(start, end)
        ]

    def confirm_run(self, numbers: npt.NDArray[np.uint64], multiples: npt.NDArray[np.bool_]) -> list[TagRange]:
        """Apply consecutive confirms, some of them multiple; adjacent ranges are merged."""
        if not multiples.any():
            return self.confirm_each(numbers)
        ranges: list[TagRange] = []
        for number, multiple in zip(numbers.tolist(), multiples.tolist(), strict=True):
            for first, last in self.confirm_up_to(number) if multiple else self.confirm_one(number):
                if ranges and ranges[-1][1] == first - 1:
                    first = ranges.pop()[0]  # noqa: PLW2901 - the range grows to the left
                ranges.append((first, last))
        return ranges

    def _confirm_range(self, first: int, last: int) -> list[TagRange]:
        if not 1 <= first <= last <= self.published:
            raise self._unknown(last)
        if first <= self._confirmed_up_to or (self._early and not self._early.isdisjoint(range(first, last + 1))):
            raise PeerError(f"message {first} or one shortly after it was confirmed twice")
        if first == self._confirmed_up_to + 1:
            self._confirmed_up_to = last
            self._advance()
        else:
            self._early.update(range(first, last + 1))
        return [(first, last)]

    def _advance(self) -> None:
        while self._early and self._confirmed_up_to + 1 in self._early:
            self._confirmed_up_to += 1
            self._early.remove(self._confirmed_up_to)

    def _without_early(self, first: int, last: int) -> list[TagRange]:
        # Iterates over the numbers, not the set: in total one step per message, whatever the broker sends.
        ranges: list[TagRange] = []
        start = first
        for number in range(first, last + 1):
            if number in self._early:
                self._early.remove(number)
                if start < number:
                    ranges.append((start, number - 1))
                start = number + 1
        if start <= last:
            ranges.append((start, last))
        return ranges

    def _unknown(self, number: int) -> PeerError:
        return PeerError(f"a confirm for message {number}; {self.published} were published")
