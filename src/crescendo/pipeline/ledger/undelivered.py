"""Which messages were still arriving when the drain ended?

A message that a subscription is owed and did not receive is lost, unless its receivers were still receiving when they
were stopped: then everything after the last number they had received may still be on its way. The same holds for a
receiver that was reconnecting when it was stopped: the system may have kept its messages. Receivers of one subscription
share its messages, each in order, so the one that is furthest behind decides. Only then, and only if messages are
missing, one more small job runs. Judges no message: `discrepancies` does.
"""

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from crescendo.pipeline import columns as c
from crescendo.pipeline.source.connections import Connections
from crescendo.pipeline.source.moments import Timeline, flagged
from crescendo.pipeline.source.per_run import UNKNOWN
from crescendo.record.manifest import Phase
from crescendo.record.schema import Flag

ARRIVING_NS = 500_000_000
"""A receiver whose last message came within this time before the end of the drain was still receiving."""

GAPS = 3
"""So was one that receives less often, if the time since its last message is at most this many of its usual gaps."""

DRAIN, DRAINING, STOPPING, AT_MOST_NS = "drain", "draining", "stopping", "at_most_ns"
DISCONNECT, RECONNECT = "disconnect", "reconnect"
STILL_ARRIVING_DDL = f"{c.SUBSCRIPTION} INT, {c.SENDER} INT, {c.LAST_SEQ} BIGINT"
_SCHEMA = pa.schema([(c.SUBSCRIPTION, pa.int32()), (c.SENDER, pa.int32()), (c.LAST_SEQ, pa.int64())])


class _Connection(msgspec.Struct):
    """The detail of an event about a connection."""

    receiver: int | None = None


@dataclass(frozen=True)
class DrainEnd:
    """When the drain began, and when receivers were stopped because it was over."""

    start_ns: int
    end_ns: int
    cut_off: frozenset[int] = frozenset()  # receivers that had no connection then

    def may_be_arriving(self, last_ns: int) -> bool:
        """Whether it is worth asking each receiver, given the time of the last arrival of all."""
        return bool(self.cut_off) or last_ns >= self.end_ns - max(ARRIVING_NS, (self.end_ns - self.start_ns) // 2)


def drain_end(timeline: Timeline, event_files: list[str], connections: Connections) -> DrainEnd | None:
    """None for a recording without a drain."""
    phase = next((phase for phase in timeline.phases if phase.name == DRAIN), None)
    if phase is None:
        return None
    cut_off: frozenset[int] = frozenset()
    end_ns = phase.end_ns  # when the last peer had stopped, which may be later than the receivers stopped reading
    if event_files:
        table = ds.dataset(event_files, format="parquet").to_table(
            columns=[c.T_NS, c.KIND, c.DETAIL],
            filter=ds.field(c.KIND).isin([DRAINING, STOPPING, DISCONNECT, RECONNECT]),
        )
        rows = table.to_pylist()
        stopped = [int(row[c.T_NS]) for row in rows if row[c.KIND] == STOPPING]
        limits = [_limit_ns(row, phase) for row in rows if row[c.KIND] == DRAINING]
        end_ns = min([end_ns, *(stopped or limits)])
        cut_off = _cut_off(rows, end_ns) & connections.reconnecting
    return DrainEnd(phase.start_ns, end_ns, cut_off)


def _cut_off(rows: list[dict[str, Any]], end_ns: int) -> frozenset[int]:
    """The receivers whose connection was lost and not back at this time."""
    connected: dict[int, bool] = {}
    for row in sorted(rows, key=lambda row: int(row[c.T_NS])):
        if row[c.KIND] in {DISCONNECT, RECONNECT} and row[c.T_NS] <= end_ns:
            with contextlib.suppress(msgspec.MsgspecError):
                number = msgspec.json.decode(row[c.DETAIL], type=_Connection).receiver
                if number is not None:
                    connected[number] = row[c.KIND] == RECONNECT
    return frozenset(number for number, is_back in connected.items() if not is_back)


def _limit_ns(row: dict[str, Any], phase: Phase) -> int:
    try:
        return int(row[c.T_NS]) + int(msgspec.json.decode(row[c.DETAIL], type=dict)[AT_MOST_NS])
    except (msgspec.DecodeError, msgspec.ValidationError, KeyError, TypeError, ValueError):
        return phase.end_ns


def last_arrivals(received: DataFrame, end: DrainEnd) -> DataFrame:
    """One row per receiver and sender: the last number, the last time, and the deliveries in the drain.

    Messages of others count too, with an unknown sender: a receiver that still works through them is receiving.
    """
    drained = F.col(c.RECEIVED_NS) >= F.lit(end.start_ns).cast("long")
    sender = F.when(flagged(Flag.CORRUPT | Flag.STRAY), F.lit(UNKNOWN)).otherwise(F.col(c.SENDER))
    return received.groupBy(
        F.col(c.RECEIVER).cast("int").alias(c.RECEIVER), sender.cast("int").alias(c.SENDER)
    ).agg(
        F.max(c.SEQ).alias(c.LAST_SEQ),
        F.max(c.RECEIVED_NS).alias(c.END_NS),
        F.count_if(drained).alias(c.MESSAGES),
    )  # fmt: skip


def still_arriving(files: list[Path], end: DrainEnd, connections: Connections) -> pa.Table:
    """The last number from each sender, in the subscriptions with a receiver that was still receiving."""
    rows = ds.dataset([str(file) for file in files], format="parquet").to_table()
    by_receiver = rows.group_by(c.RECEIVER, use_threads=False).aggregate([(c.END_NS, "max"), (c.MESSAGES, "sum")])
    receiving = {
        row[c.RECEIVER]
        for row in by_receiver.to_pylist()
        if end.end_ns - row[f"{c.END_NS}_max"] <= _idle_timeout_ns(end, row[f"{c.MESSAGES}_sum"])
    } | end.cut_off
    last: dict[tuple[int, int], int] = {}
    for row in rows.filter(pc.field(c.RECEIVER).isin(sorted(receiving))).to_pylist() if receiving else []:
        subscription = connections.subscription_of.get(row[c.RECEIVER])
        if subscription is not None and row[c.SENDER] != UNKNOWN:
            key = subscription, row[c.SENDER]
            last[key] = min(last.get(key, row[c.LAST_SEQ]), row[c.LAST_SEQ])
    for subscription in {
        connections.subscription_of[receiver] for receiver in receiving & connections.subscription_of.keys()
    }:
        for sender, owed in connections.owed_by.items():
            if subscription in owed:
                last.setdefault((subscription, sender), -1)  # none of its messages has arrived yet
    columns = zip(*((*key, seq) for key, seq in sorted(last.items())), strict=True) if last else ((), (), ())
    return pa.table([pa.array(column, kind) for column, kind in zip(columns, _SCHEMA.types, strict=True)], _SCHEMA)


def _idle_timeout_ns(end: DrainEnd, deliveries_in_drain: int) -> int:
    """How long before the end of the drain the last message of a receiver may have come."""
    if deliveries_in_drain < 2:
        return ARRIVING_NS
    return max(ARRIVING_NS, GAPS * (end.end_ns - end.start_ns) // deliveries_in_drain)
