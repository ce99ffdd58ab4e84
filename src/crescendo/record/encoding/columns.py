"""How are rows kept until they are written, without touching each of them?

A batch shares most of its values, one clock reading, one connection, one size, and others count up. Those are kept as
stretches, one entry where the value changes, so that keeping and encoding them costs as much for a batch of a thousand
rows as for one of ten. Only what really varies from row to row is copied row by row. Knows neither files nor encodings.
"""

from array import array
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np
import numpy.typing as npt

from crescendo.record.schema import I16, I32, I64, NUMPY, TABLES, TEXT

Int64s = npt.NDArray[np.int64]
_TYPECODES = {I16: "h", I32: "i", I64: "q"}


@dataclass(frozen=True, slots=True)
class RunLengthColumn:
    """Values that hold for a while: `values[i]` up to, but not including, row `ends[i]`."""

    values: npt.NDArray[Any]
    ends: Int64s

    def expand(self) -> npt.NDArray[Any]:
        """The value of each row."""
        return self.values if len(self.values) == self.ends[-1] else np.repeat(self.values, lengths_of(self.ends))


@dataclass(frozen=True, slots=True)
class CountColumn:
    """Values that count up by one: from `firsts[i]` on, up to, but not including, row `ends[i]`."""

    firsts: npt.NDArray[Any]
    ends: Int64s

    def expand(self) -> npt.NDArray[Any]:
        """The value of each row."""
        lengths = lengths_of(self.ends)
        # Counted from row 0, where each count would have begun: sums may wrap on the way, and wrap back.
        origins = self.firsts.astype(np.int64) - (self.ends - lengths)
        return (np.repeat(origins, lengths) + np.arange(self.ends[-1])).astype(self.firsts.dtype)


ColumnData = RunLengthColumn | CountColumn | npt.NDArray[Any]


def lengths_of(ends: Int64s) -> Int64s:
    lengths = ends.copy()
    lengths[1:] -= ends[:-1]
    return lengths


def compact(values: Int64s) -> int | range | Int64s:
    """The same values as one that holds for all, or as a count, where they are."""
    first, last = int(values[0]), int(values[-1])
    if first == last and (values == first).all():
        return first
    if last - first == len(values) - 1 and (np.diff(values) == 1).all():
        return range(first, last + 1)
    return values


class ColumnBuffer:
    """One column while its block fills."""

    __slots__ = ("_capacity", "_counts", "_dtype", "_next", "_rows", "_starts", "_typecode", "_values", "_varies")

    def __init__(self, kind: str, capacity: int) -> None:
        self._capacity = capacity
        self._dtype = object if kind == TEXT else NUMPY[kind]
        self._typecode = _TYPECODES.get(kind, "")  # none: texts and fractions are kept row by row
        self._rows: Any = None  # made when first needed, then reused: fresh pages cost more than copies
        self.clear()

    def clear(self) -> None:
        self._varies = False
        self._counts = False
        self._next: Any = None  # the value that would continue the last stretch
        self._values: array[int] = array(self._typecode or "q")
        self._starts: array[int] = array("q")
        if not self._typecode:
            self._vary(0)

    def take(self, value: Any, start: int, end: int) -> None:
        """Rows `start` to `end` have this value, or those of this range or array, which is copied."""
        kind = type(value)
        if self._varies:
            self._rows[start:end] = value.start + np.arange(len(value)) if kind is range else value
        elif kind is int and not self._counts:  # here and below, what continues a stretch costs a comparison
            if value != self._next:
                self._begin(value, start)
                self._next = value
        elif kind is range and (self._counts or not start):
            if value.stop - value.start != end - start:
                raise ValueError(f"{value} for {end - start} rows")
            if value.start != self._next:
                self._begin(value.start, start)
                self._counts = True
            self._next = value.stop
        elif kind is range or self._counts or isinstance(value, np.ndarray):
            self._vary(start)
            self.take(value, start, end)
        else:
            self.take(index(value), start, end)  # any other integer; a fraction is refused, not cut

    def cut(self, rows: int) -> None:
        """Forget what came after so many rows."""
        while self._starts and self._starts[-1] >= rows:
            self._starts.pop()
            self._values.pop()
        self._counts = self._counts and bool(self._starts)
        self._next = None

    def held(self, rows: int) -> ColumnData:
        """The rows so far, in the form in which they came."""
        if self._varies:
            values: npt.NDArray[Any] = self._rows[:rows]
            return values
        return self._stretches(rows)

    def _stretches(self, rows: int) -> RunLengthColumn | CountColumn:
        ends = np.array(self._starts)
        ends[:-1] = ends[1:]
        ends[-1] = rows
        return (
            CountColumn(np.array(self._values), ends) if self._counts else RunLengthColumn(np.array(self._values), ends)
        )

    def _begin(self, value: int, start: int) -> None:
        self._values.append(value)
        self._starts.append(start)

    def _vary(self, start: int) -> None:
        """From here on, rows have values of their own."""
        if self._rows is None:
            self._rows = np.empty(self._capacity, self._dtype)
        if start:
            self._rows[:start] = self._stretches(start).expand()
        self._varies = True


class Block:
    """Columns of one table with room for a fixed number of rows."""

    def __init__(self, table: str, capacity: int) -> None:
        self.table = table
        self.capacity = capacity
        self.rows = 0
        self._columns = [ColumnBuffer(column.kind, capacity) for column in TABLES[table]]
        self._takes = [column.take for column in self._columns]

    def clear(self) -> None:
        self.rows = 0
        for column in self._columns:
            column.clear()

    def fill(self, rows: int, values: tuple[Any, ...]) -> None:
        """Add rows, all or none; arrays are copied at once."""
        if not rows:
            return
        start, end = self.rows, self.rows + rows
        try:
            for take, value in zip(self._takes, values, strict=True):
                take(value, start, end)
        except BaseException:
            for column in self._columns:
                column.cut(start)
            raise
        self.rows = end

    def columns(self) -> list[ColumnData]:
        """The filled rows, in the order of the schema."""
        return [column.held(self.rows) for column in self._columns]
