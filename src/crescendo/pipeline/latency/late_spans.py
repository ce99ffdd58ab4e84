"""From when to when were messages late, and by how much was that our own delay?

A message is late from its intended time to its arrival. Messages of one path that are late for 2^k ns and more, and due
within the same 2^k ns, are late at the same time; so one row can stand for them, and nothing is lost by it. Only long
delays are looked at. `delay_episodes` joins the rows.
"""

import math

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from crescendo.pipeline import columns as c
from crescendo.pipeline.latency.message_paths import MessagePaths
from crescendo.pipeline.latency.range_join import JoinedRanges, with_delay
from crescendo.pipeline.latency.samples import lateness_ns
from crescendo.pipeline.source.moments import deliveries

LEAST_OCTAVE = 23
"""Delays below 2^23 ns, 8 ms, are left out: there are many, and subtracting them one by one is enough."""

MAX_ROWS = 1 << 20
"""With more rows of one octave, the least octave is a higher one."""

PATH, OCTAVE, LONGEST_OWN_NS = "path", "octave", "longest_own_ns"
_OWN_NS, _READ_NS = "own_ns", "read_ns"


def least_octave(duration_ns: int, paths: int) -> int:
    """The shortest delay that counts, as a power of two: longer in a long run with many paths."""
    return max(LEAST_OCTAVE, math.ceil(math.log2(max(duration_ns, 1) * paths / MAX_ROWS)))


def late_spans(
    received: DataFrame, own: JoinedRanges | None, read: JoinedRanges | None, paths: MessagePaths, least: int
) -> DataFrame:
    """One row per path, octave of the delay and time: when it began and ended, and the longest own delay in it."""
    late_ns = F.col(c.RECEIVED_NS) - F.col(c.INTENDED_NS)
    rows = deliveries(received).where(late_ns >= F.lit(1 << least).cast("long"))
    rows = with_delay(rows, own, c.SENDER, c.SEQ, _OWN_NS)
    rows = with_delay(rows, read, c.RECEIVER, c.ARRIVAL, _READ_NS)
    own_ns = F.coalesce(F.col(_OWN_NS), F.greatest(lateness_ns(), F.lit(0)))
    octave = _octave(late_ns)
    return (
        rows.groupBy(
            paths.path_column().alias(PATH),
            octave.alias(OCTAVE),
            F.call_function("shiftright", F.col(c.INTENDED_NS), octave).alias(c.BLOCK),
        )
        .agg(
            F.min(c.INTENDED_NS).alias(c.START_NS),
            F.max(c.RECEIVED_NS).alias(c.END_NS),
            F.max(F.greatest(own_ns, F.col(_READ_NS))).alias(LONGEST_OWN_NS),
        )
        .select(PATH, OCTAVE, c.START_NS, c.END_NS, LONGEST_OWN_NS)
    )


def _octave(value_ns: Column) -> Column:
    return (F.ln(value_ns.cast("double")) * (1 / math.log(2))).cast("int")
