"""How are rows buffered until they are written, without touching each of them?

The rows of a batch share most of their values (one clock reading, one connection, one size), and other columns count
up. Both are kept as runs, one entry where the value changes, so that buffering and encoding a batch of a thousand rows
costs as much as one of ten. Only columns that vary from row to row are copied row by row. Knows neither files nor
encodings.
"""

from array import array
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np
import numpy.typing as npt

from crescendo.model.arrays import Int64s
from crescendo.record.schema import I16, I32, I64, NUMPY, TABLES, TEXT

_TYPECODES = {I16: "h", I32: "i", I64: "q"}


@dataclass(frozen=True, slots=True)
class RunLengthColumn:
    """Runs of equal values: `values[i]` up to, but not including, row `ends[i]`."""

    values: npt.NDArray[Any]
    ends: Int64s

    def expand(self) -> npt.NDArray[Any]:
        """The value of each row."""
        return self.values if len(self.values) == self.ends[-1] else np.repeat(self.values, lengths_of(self.ends))


@dataclass(frozen=True, slots=True)
class CountColumn:
    """Runs of values that count up by one: from `firsts[i]` on, up to, but not including, row `ends[i]`."""

    firsts: npt.NDArray[Any]
    ends: Int64s

    def expand(self) -> npt.NDArray[Any]:
        """The value of each row."""
        lengths = lengths_of(self.ends)
        # Where each run would have begun at row 0: sums may wrap, and wrap back.
        origins = self.firsts.astype(np.int64) - (self.ends - lengths)
        return (np.repeat(origins, lengths) + np.arange(self.ends[-1])).astype(self.firsts.dtype)


ColumnData = RunLengthColumn | CountColumn | npt.NDArray[Any]


def lengths_of(ends: Int64s) -> Int64s:
    lengths = ends.copy()
    lengths[1:] -= ends[:-1]
    return lengths


def compact(values: Int64s) -> int | range | Int64s:
    """The same values as a single value or a range, where possible."""
    first, last = int(values[0]), int(values[-1])
    if first == last and (values == first).all():
        return first
    if last - first == len(values) - 1 and (np.diff(values) == 1).all():
        return range(first, last + 1)
    return values


class ColumnBuffer:
    """One column of a block that is being filled."""

    __slots__ = ("_capacity", "_counts", "_dtype", "_next", "_rows", "_starts", "_typecode", "_values", "_varies")

    def __init__(self, kind: str, capacity: int) -> None:
        self._capacity = capacity
        self._dtype = object if kind == TEXT else NUMPY[kind]
        self._typecode = _TYPECODES.get(kind, "")  # empty: texts and floats are kept row by row
        self._rows: Any = None  # allocated when first needed, then reused: fresh pages cost more than copies
        self.clear()

    def clear(self) -> None:
        self._varies = False
        self._counts = False
        self._next: Any = None  # the value that would continue the last run
        self._values: array[int] = array(self._typecode or "q")
        self._starts: array[int] = array("q")
        if not self._typecode:
            self._vary(0)

    def take(self, value: Any, start: int, end: int) -> None:
        """Set rows `start` to `end` to this value, or to those of this range or array, which is copied."""
        kind = type(value)
        if self._varies:
            self._rows[start:end] = value.start + np.arange(len(value)) if kind is range else value
        elif kind is int and not self._counts:  # here and below, continuing a run costs one comparison
            if value != self._next:
                self._start_run(value, start)
                self._next = value
        elif kind is range and (self._counts or not start):
            if value.stop - value.start != end - start:
                raise ValueError(f"{value} for {end - start} rows")
            if value.start != self._next:
                self._start_run(value.start, start)
                self._counts = True
            self._next = value.stop
        elif kind is range or self._counts or isinstance(value, np.ndarray):
            self._vary(start)
            self.take(value, start, end)
        else:
            self.take(index(value), start, end)  # any other integer; a float is rejected, not truncated

    def truncate(self, rows: int) -> None:
        """Discard everything after the first `rows` rows."""
        while self._starts and self._starts[-1] >= rows:
            self._starts.pop()
            self._values.pop()
        self._counts = self._counts and bool(self._starts)
        self._next = None

    def data(self, rows: int) -> ColumnData:
        """The rows so far, in the form in which they were added."""
        if self._varies:
            values: npt.NDArray[Any] = self._rows[:rows]
            return values
        return self._as_runs(rows)

    def _as_runs(self, rows: int) -> RunLengthColumn | CountColumn:
        ends = np.array(self._starts)
        ends[:-1] = ends[1:]
        ends[-1] = rows
        return (
            CountColumn(np.array(self._values), ends) if self._counts else RunLengthColumn(np.array(self._values), ends)
        )

    def _start_run(self, value: int, start: int) -> None:
        self._values.append(value)
        self._starts.append(start)

    def _vary(self, start: int) -> None:
        """Switch to one value per row."""
        if self._rows is None:
            self._rows = np.empty(self._capacity, self._dtype)
        if start:
            self._rows[:start] = self._as_runs(start).expand()
        self._varies = True


class Block:
    """The columns of one table, with a fixed capacity in rows."""

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
        """Add rows, all or none; arrays are copied."""
        if not rows:
            return
        start, end = self.rows, self.rows + rows
        try:
            for take, value in zip(self._takes, values, strict=True):
                take(value, start, end)
        except BaseException:
            for column in self._columns:
                column.truncate(start)
            raise
        self.rows = end

    def columns(self) -> list[ColumnData]:
        """The filled rows, in schema order."""
        return [column.data(self.rows) for column in self._columns]
