"""By how much do latencies and arrivals change without our own delay?

Almost every message was delayed by us by exactly sent - intended, so its response without own delay is its transfer,
which is counted already. Only the messages in recorded ranges differ: each is taken out of the bucket in which it was
counted and put into the one where it belongs. So these counts are signed, and only messages in ranges reach the
aggregation. Of a message in an episode that is ours in part, the whole delay is taken out. The same is done for
settlements that were read after the sender's loop stood still. `without_own_delay` adds the corrections to the counts.
"""

from collections.abc import Sequence
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from crescendo.pipeline import columns as c
from crescendo.pipeline.latency.buckets import bucket_column
from crescendo.pipeline.latency.delay_episodes import TIME_BITS
from crescendo.pipeline.latency.message_paths import MessagePaths
from crescendo.pipeline.latency.range_join import JoinedRanges, with_delay
from crescendo.pipeline.latency.samples import lateness_ns, settle_ns, settled_messages, settlements, transfer_ns
from crescendo.pipeline.source.connections import Connections
from crescendo.pipeline.source.moments import Timeline, deliveries
from crescendo.pipeline.source.recorded_stalls import ConnectionStalls, Stall
from crescendo.pipeline.source.run_slices import SliceColumns

RESPONSE_KIND, TRANSFER_KIND, SETTLE_KIND, ARRIVALS = 0, 1, 2, 3
"""Values of the column `kind`. Arrivals have no bucket: they count the messages that enter the measure phase."""

_OWN_NS, _READ_NS, _SIGN = "own_ns", "read_ns", "sign"
_END, _AT, _EPISODE = "end", "at", "episode"
_KEYS = (c.SECOND, c.PHASE, c.KIND, c.BUCKET)
MAX_STALLS = 50
"""The longest ones of each process."""


class SharedEpisodes(NamedTuple):
    """Episodes that are ours in part, of paths and of the senders alone; None where there are none."""

    paths: MessagePaths
    origin_ns: int
    of_paths: JoinedRanges | None = None
    of_senders: JoinedRanges | None = None

    def of_deliveries(self, rows: DataFrame) -> DataFrame:
        """The rows with a column that is null unless they were due in an episode."""
        return self._joined(rows, self.of_paths, self.paths.path_column(), c.INTENDED_NS)

    def of_settlements(self, rows: DataFrame) -> DataFrame:
        """The same for settlements, by the time of the send."""
        return self._joined(rows, self.of_senders, self.paths.sender_column(), c.SENT_NS)

    def _joined(self, rows: DataFrame, ranges: JoinedRanges | None, end: Column, t_ns: str) -> DataFrame:
        if ranges is None:
            return rows.withColumn(_EPISODE, F.lit(None).cast("long"))
        since_ns = F.greatest(F.col(t_ns) - F.lit(self.origin_ns).cast("long"), F.lit(0).cast("long"))
        at = F.call_function("shiftright", since_ns, F.lit(TIME_BITS))
        return with_delay(rows.withColumn(_END, end).withColumn(_AT, at), ranges, _END, _AT, _EPISODE)


def own_lateness_ns() -> Column:
    """The own delay of a message that is in no range."""
    return F.greatest(lateness_ns(), F.lit(0))


def delivery_corrections(
    received: DataFrame,
    own: JoinedRanges | None,
    read: JoinedRanges | None,
    receiver_stalls: ConnectionStalls,
    timeline: Timeline,
    connections: Connections,
    slices: SliceColumns,
    episodes: SharedEpisodes,
) -> DataFrame:
    """Signed counts by second, phase, kind, slice and bucket, of the deliveries that are in a range or an episode.

    A receiver that stands still may hold the sender back through the system. So of a message that was held back, the
    time in which its receiver stood still may be ours too.
    """
    rows = with_delay(deliveries(received), own, c.SENDER, c.SEQ, _OWN_NS)
    rows = with_delay(rows, read, c.RECEIVER, c.ARRIVAL, _READ_NS)
    rows = episodes.of_deliveries(rows)
    shared = F.col(_EPISODE).isNotNull()
    differs = F.col(_OWN_NS).isNotNull() | F.col(_READ_NS).isNotNull() | shared
    scheduled = F.lit(1)
    if connections.unbounded:
        scheduled = connections.bounded_column(F.col(c.SENDER)).cast("int")
    if connections.is_mixed:
        differs |= scheduled == 0  # its transfer was counted, but it has no response
    rows = rows.where(differs)
    own_ns = F.coalesce(F.col(_OWN_NS), own_lateness_ns())
    read_ns = F.coalesce(F.col(_READ_NS), F.lit(0))
    # A write that was interrupted after the send time was read is in the transfer.
    in_transfer_ns = F.greatest(own_ns - own_lateness_ns(), F.lit(0)) * scheduled + read_ns
    in_transfer_ns = F.when(shared, F.greatest(transfer_ns(), F.lit(0))).otherwise(in_transfer_ns)
    held_ns = F.when(F.col(_OWN_NS).isNotNull(), _stalled_ns(receiver_stalls, c.RECEIVER, c.INTENDED_NS, c.RECEIVED_NS))
    response_ns = F.col(c.RECEIVED_NS) - F.col(c.INTENDED_NS)
    delay_ns = own_ns + F.greatest(read_ns, F.coalesce(held_ns, F.lit(0)))
    delay_ns = F.when(shared, F.greatest(response_ns, F.lit(0))).otherwise(delay_ns)
    entered = _measured(timeline, F.col(c.RECEIVED_NS) - delay_ns) - _measured(
        timeline, F.col(c.RECEIVED_NS) - own_lateness_ns()
    )
    late = (in_transfer_ns > 0).cast("int")
    changes = F.stack(
        F.lit(5),
        F.lit(RESPONSE_KIND), F.lit(-1), transfer_ns(),
        F.lit(RESPONSE_KIND), scheduled, _less(response_ns, delay_ns),
        F.lit(TRANSFER_KIND), -late, transfer_ns(),
        F.lit(TRANSFER_KIND), late, _less(transfer_ns(), in_transfer_ns),
        F.lit(ARRIVALS), entered, F.lit(0).cast("long"),
    )  # fmt: skip
    moments = _second_and_phase(timeline, F.col(c.INTENDED_NS))
    changed = rows.select(*moments, *slices.keys(), changes.alias(c.KIND, _SIGN, c.VALUE_NS))
    return _signed_counts(changed, timeline, slices.key_names(), slices.columns())


def settle_corrections(
    settled: DataFrame,
    sender_stalls: ConnectionStalls,
    timeline: Timeline,
    slices: SliceColumns,
    episodes: SharedEpisodes,
) -> DataFrame:
    """The same for settlements whose wait overlaps a time in which the loop of their sender stood still."""
    overlap_ns = _stalled_ns(sender_stalls, c.SENDER, c.SENT_NS, c.SETTLED_NS)
    rows = episodes.of_settlements(settlements(settled))
    overlap_ns = F.when(F.col(_EPISODE).isNotNull(), settle_ns()).otherwise(overlap_ns)
    rows = rows.withColumn(_READ_NS, overlap_ns).where(F.col(_READ_NS) > 0)
    weight = settled_messages()
    changes = F.stack(
        F.lit(2),
        F.lit(SETTLE_KIND), -weight, settle_ns(),
        F.lit(SETTLE_KIND), weight, _less(settle_ns(), F.col(_READ_NS)),
    )  # fmt: skip
    moments = _second_and_phase(timeline, F.col(c.SENT_NS))
    changed = rows.select(*moments, *slices.keys(receiver=False), changes.alias(c.KIND, _SIGN, c.VALUE_NS))
    return _signed_counts(changed, timeline, slices.key_names(receiver=False), slices.columns(receiver=False))


def _stalled_ns(stalls: ConnectionStalls, connection: str, from_ns: str, to_ns: str) -> Column:
    """How long the loop of this connection stood still between two times."""
    total_ns = F.lit(0).cast("long")
    for numbers, own in stalls:
        total_ns = F.when(F.col(connection).isin(*numbers), _overlap_ns(own, from_ns, to_ns)).otherwise(total_ns)
    return total_ns


def _overlap_ns(stalls: Sequence[Stall], from_ns: str, to_ns: str) -> Column:
    longest = sorted(stalls, key=lambda stall: -stall.duration_ns)[:MAX_STALLS]
    spans = F.array(
        *(
            F.struct(
                F.lit(stall.from_ns).cast("long").alias(c.START_NS),
                F.lit(stall.from_ns + stall.duration_ns).cast("long").alias(c.END_NS),
            )
            for stall in longest
        )
    )

    def add(total_ns: Column, stall: Column) -> Column:
        overlap_ns = F.least(F.col(to_ns), stall[c.END_NS]) - F.greatest(F.col(from_ns), stall[c.START_NS])
        return total_ns + F.greatest(overlap_ns, F.lit(0).cast("long"))

    return F.aggregate(spans, F.lit(0).cast("long"), add)


def _less(value_ns: Column, delay_ns: Column) -> Column:
    """The value without the delay: not below zero, because a delay may be an upper bound."""
    return F.greatest(value_ns - delay_ns, F.least(value_ns, F.lit(0)))


def _measured(timeline: Timeline, t_ns: Column) -> Column:
    return timeline.measured(t_ns).cast("int")


def _second_and_phase(timeline: Timeline, t_ns: Column) -> tuple[Column, Column]:
    return timeline.second_of(t_ns).alias(c.SECOND), timeline.phase_of(t_ns).alias(c.PHASE)


def _signed_counts(changes: DataFrame, timeline: Timeline, keys: list[str], names: list[Column]) -> DataFrame:
    """The counts by `keys` too, which `names` turns into columns."""
    added = F.when(F.col(_SIGN) > 0, F.col(c.VALUE_NS))
    return (
        changes.where(F.col(_SIGN) != 0)
        .withColumn(c.BUCKET, bucket_column(F.col(c.VALUE_NS)))
        .groupBy(*_KEYS, *keys)
        .agg(
            F.sum(_SIGN).cast("long").alias(c.COUNT),
            F.sum(F.col(c.VALUE_NS) * F.col(_SIGN)).alias(c.SUM_NS),
            F.min(added).alias(c.MIN_NS),
            F.max(added).alias(c.MAX_NS),
        )
        .withColumn(c.PHASE, timeline.phase_name(F.col(c.PHASE)))
        .select(*_KEYS, c.COUNT, c.SUM_NS, c.MIN_NS, c.MAX_NS, *names)
    )
