"""How long did actions of these types take, according to the logs?

Validates the query against the content of the logs, so that a wrong name or an unsuitable window gives a one-line
error, and runs it in Spark. Takes spans and rejected lines as data frames: the importers read the files.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from crescendo.model.errors import ConfigError
from crescendo.pipeline.columns import ACTION, COUNT
from crescendo.pipeline.logs.windows import Slot, time_range_of, windows

_ACTIONS_SHOWN = 12
_LINES_SHOWN = 5


@dataclass(frozen=True)
class LogQuery:
    """Which statistics to compute."""

    types: tuple[str, ...]  # prefixes of action names
    window_ns: int | None  # None: one window for the whole time
    trim_ns: int = 0  # cut off at either end


@dataclass(frozen=True)
class UnreadableLines:
    """Lines that could not be read: their number, and source, line and reason of the first ones."""

    count: int
    first: tuple[tuple[int, int, str], ...]


def run_query(spans: DataFrame, query: LogQuery) -> list[Slot]:
    """The windows of each type, in the order of the types."""
    time_range = time_range_of(spans)
    if time_range is None:
        raise ConfigError("the logs contain no actions; give a directory with lines of duration;time;action;context")
    inner = time_range.trimmed(query.trim_ns)
    slots = windows(spans, query.types, inner, query.window_ns or inner.end_ns - inner.start_ns + 1)
    seen = {slot.type for slot in slots if slot.sample is not None}
    if missing := [name for name in query.types if name not in seen]:
        known = ", ".join(name for name, _ in actions(spans, _ACTIONS_SHOWN))
        trimmed = " after --trim" if query.trim_ns else ""
        raise ConfigError(f"--type {missing[0]!r}: no action{trimmed} starts like this; the most frequent are {known}")
    return slots


def actions(spans: DataFrame, limit: int) -> list[tuple[str, int]]:
    """The names of the most frequent actions, and how often each was logged."""
    counted = spans.groupBy(ACTION).count().orderBy(F.col(COUNT).desc(), ACTION).limit(limit)
    return [(row[ACTION], row[COUNT]) for row in counted.collect()]


def unreadable_lines(rejects: Sequence[DataFrame], source: str, line: str, reason: str) -> UnreadableLines:
    """The number of rejected lines, and the first of them. `source`, `line` and `reason` are column names."""
    if not rejects:
        return UnreadableLines(0, ())
    rows = reduce(DataFrame.unionByName, rejects)
    first = rows.orderBy(source, line).select(source, line, reason).limit(_LINES_SHOWN).collect()
    return UnreadableLines(rows.count(), tuple((row[source], row[line], row[reason]) for row in first))
