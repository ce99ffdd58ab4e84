"""What is measured as response, transfer, settle and lateness?

Each is defined here once, as a column expression over the rows of a recording; the histograms and the live tables
count them by different keys. Which rows have a sample is part of the definition. Groups nothing.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from crescendo.model.metrics import RESPONSE, TRANSFER
from crescendo.pipeline import columns as c
from crescendo.pipeline.source.connections import ConnectionColumns
from crescendo.pipeline.source.moments import first_attempts
from crescendo.record.schema import Settlement

LATENESS, ROUND_TRIP, ONE_WAY = "lateness", "round trip", "one way"


def response_ns(connections: ConnectionColumns) -> Column:
    """From the intended time to the arrival; null if the sender has no schedule."""
    # From intended, not sent: a stalled sender must not hide the stall.
    value_ns = F.col(c.RECEIVED_NS) - F.col(c.INTENDED_NS)
    # Without a schedule there is no intended time: no sample is better than a wrong one.
    return F.when(_has_schedule(connections), value_ns) if connections.any_unbounded else value_ns


def transfer_ns() -> Column:
    """From the send to the arrival."""
    return F.col(c.RECEIVED_NS) - F.col(c.SENT_NS)


def settle_ns() -> Column:
    """From the send to the settlement."""
    return F.col(c.SETTLED_NS) - F.col(c.SENT_NS)


def lateness_ns() -> Column:
    """From the intended time to the send."""
    return F.col(c.SENT_NS) - F.col(c.INTENDED_NS)


def delivery_samples(received: DataFrame, connections: ConnectionColumns, *others: Column | str) -> DataFrame:
    """Two rows per delivery: other columns, the kind as a number for `delivery_kind`, and its value.

    One scan gives both samples, and the kind stays a number until the counts are small.
    """
    values = F.stack(F.lit(2), F.lit(0), response_ns(connections), F.lit(1), transfer_ns())
    samples = received.select(*others, values.alias(c.KIND, c.VALUE_NS))
    return samples.where(F.col(c.VALUE_NS).isNotNull()) if connections.any_unbounded else samples


def delivery_kind() -> Column:
    return F.when(F.col(c.KIND) == 0, RESPONSE).otherwise(TRANSFER)


def sent_on_schedule(sent: DataFrame, connections: ConnectionColumns) -> DataFrame:
    """The rows that have a lateness. Only first attempts count: a resend is not late."""
    sent = first_attempts(sent)
    return sent.where(_has_schedule(connections)) if connections.any_unbounded else sent


def settlements(settled: DataFrame) -> DataFrame:
    """The rows that have a settle time: a message shed by the sender's own buffer was never sent."""
    return settled.where(F.col(c.OUTCOME) != int(Settlement.SHED))


def settled_messages() -> Column:
    """How many messages one row of settlements covers."""
    return F.col(c.LAST_SEQ) - F.col(c.FIRST_SEQ) + 1


def sample_sums(count: Column, total_ns: Column) -> tuple[Column, ...]:
    """The aggregates that every count of samples has: how many, their sum, the smallest and the largest."""
    return (
        count.alias(c.COUNT),
        total_ns.alias(c.SUM_NS),
        F.min(c.VALUE_NS).alias(c.MIN_NS),
        F.max(c.VALUE_NS).alias(c.MAX_NS),
    )


def _has_schedule(connections: ConnectionColumns) -> Column:
    return connections.bounded_column(F.col(c.SENDER))
