"""What do these logs say about these types of actions?

Checks the question against what the logs hold, so that a wrong name or a window that does not fit is said in one
sentence, and asks Spark. Spans and rejected lines come in as frames: reading files is for the importers.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from crescendo.model.errors import ConfigError, LostError
from crescendo.pipeline.columns import ACTION, COUNT
from crescendo.pipeline.logs.windows import Slot, extent_of, windows

_NAMED = 12
_TOLD = 5


@dataclass(frozen=True)
class LogQuery:
    """What a person wants to know."""

    types: tuple[str, ...]  # beginnings of names of actions
    window_ns: int | None  # None: all the time in one
    trim_ns: int = 0  # to leave out at either end


@dataclass(frozen=True)
class UnreadableLines:
    """Lines that could not be read; of the first ones their source, line and reason."""

    count: int
    first: tuple[tuple[int, int, str], ...]


def answer(spans: DataFrame, question: LogQuery) -> list[Slot]:
    """The windows of each type, in the order of the types."""
    extent = extent_of(spans)
    if extent is None:
        raise ConfigError("the logs hold no action at all; give a directory with lines of duration;time;action;context")
    inner = extent.trimmed(question.trim_ns)
    slots = windows(spans, question.types, inner, question.window_ns or inner.end_ns - inner.start_ns + 1)
    seen = {slot.type for slot in slots if slot.sample is not None}
    if missing := [name for name in question.types if name not in seen]:
        held = ", ".join(name for name, _ in actions(spans, _NAMED))
        left = " in what --trim leaves" if question.trim_ns else ""
        raise ConfigError(f"--type {missing[0]!r}: no action{left} begins like this; the most frequent are {held}")
    return slots


def actions(spans: DataFrame, limit: int) -> list[tuple[str, int]]:
    """The names of the most frequent actions, and how often each was logged."""
    counted = spans.groupBy(ACTION).count().orderBy(F.col(COUNT).desc(), ACTION).limit(limit)
    return [(row[ACTION], row[COUNT]) for row in counted.collect()]


def unread(rejects: Sequence[DataFrame], source: str, line: str, reason: str) -> UnreadableLines:
    """How many lines were set aside, and the first of them. The names are those of the columns."""
    if not rejects:
        return UnreadableLines(0, ())
    rows = reduce(DataFrame.unionByName, rejects)
    first = rows.orderBy(source, line).select(source, line, reason).limit(_TOLD).collect()
    return UnreadableLines(rows.count(), tuple((row[source], row[line], row[reason]) for row in first))


@contextmanager
def translated(what: str) -> Iterator[None]:
    """A failure of Spark as one sentence."""
    try:
        yield
    except (PySparkException, Py4JError) as err:
        raise LostError(f"{what} did not finish: {str(err).splitlines()[0]}") from err
