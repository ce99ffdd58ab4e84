"""How many messages were in the system, and does that fit the rate and the time they took?

The backlog of a subscription is the number of messages sent to it minus the number it received. A lost message stays in
the backlog forever, and a duplicate delivery removes one: the backlog is counted, not estimated. Little's law says that
in a steady system the mean backlog is the rate times the mean time in the system. Where it does not hold, messages or
times are missing, or the system was not steady.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from crescendo.model.arrays import Int64s
from crescendo.pipeline.behaviour.ticks import DUE, RECEIVED, SENT, Ticks
from crescendo.pipeline.columns import END_NS, FLOW, MESSAGES, OFFSET_NS, SIDE, START_NS, TICK
from crescendo.pipeline.source.connections import Connections
from crescendo.record.manifest import Phase
from crescendo.record.summary import Latency
from crescendo.record.tables import BacklogRow, LittleRow
from crescendo.record.timeline import whole_ticks

TOLERANCE = 0.1
"""Little's law holds if both sides agree within 10 %, or within one message when there are few."""


@dataclass(frozen=True)
class SubscriptionSeries:
    """One subscription, tick by tick without gaps, from the first tick in which anything happened to it."""

    number: int
    first_tick: int
    due: Int64s
    sent: Int64s
    received: Int64s
    sent_offset_ns: Int64s  # time since the start of the tick, summed over its messages
    received_offset_ns: Int64s
    first_ns: Int64s  # first delivery of a tick; meaningless if it has none
    last_ns: Int64s

    @property
    def backlog(self) -> Int64s:
        """At the end of each tick."""
        return np.cumsum(self.sent - self.received)

    @property
    def demand(self) -> Int64s:
        """Messages due but not received, at the end of each tick. A blocked sender cannot hide them."""
        return np.cumsum(self.due - self.received)

    def area_ns(self, tick_ns: int) -> npt.NDArray[np.float64]:
        """The area under the backlog in each tick, in message-nanoseconds, exact to the nanosecond."""
        inside_ns = self.received_offset_ns - self.sent_offset_ns
        return self.backlog.astype(np.float64) * tick_ns + inside_ns


def read_subscription_series(files: list[Path], connections: Connections) -> list[SubscriptionSeries]:
    """The tick counts by subscription. Subscriptions without any traffic are omitted."""
    table = ds.dataset([str(file) for file in files], format="parquet").to_table()
    streams = []
    for number in range(len(connections.subscriptions)):
        owing = [index for index, owed in enumerate(connections.flows) if number in owed]
        sending = (pc.field(SIDE) != RECEIVED) & pc.field(FLOW).isin(owing)
        mine = table.filter(sending | ((pc.field(SIDE) == RECEIVED) & (pc.field(FLOW) == number)))
        if mine.num_rows:
            streams.append(_subscription_series(number, mine))
    return streams


def _subscription_series(number: int, rows: pa.Table) -> SubscriptionSeries:
    columns = {name: rows[name].to_numpy() for name in (SIDE, TICK, MESSAGES, OFFSET_NS, START_NS, END_NS)}
    first = int(columns[TICK].min())
    ticks = int(columns[TICK].max()) - first + 1

    def summed_by_tick(side: int, name: str) -> Int64s:
        chosen = columns[SIDE] == side
        sums = np.zeros(ticks, np.int64)
        np.add.at(sums, columns[TICK][chosen] - first, columns[name][chosen])
        return sums

    return SubscriptionSeries(
        number=number,
        first_tick=first,
        due=summed_by_tick(DUE, MESSAGES),
        sent=summed_by_tick(SENT, MESSAGES),
        received=summed_by_tick(RECEIVED, MESSAGES),
        sent_offset_ns=summed_by_tick(SENT, OFFSET_NS),
        received_offset_ns=summed_by_tick(RECEIVED, OFFSET_NS),
        first_ns=summed_by_tick(RECEIVED, START_NS),  # one row per tick, so the sum is the value itself
        last_ns=summed_by_tick(RECEIVED, END_NS),
    )


def backlog_rows(streams: list[SubscriptionSeries], ticks: Ticks, connections: Connections) -> list[BacklogRow]:
    """One row per subscription and second, or per tick if that is longer. `peak` is the highest of its ticks."""
    rows = []
    for stream in streams:
        backlog = stream.backlog
        seconds = (stream.first_tick + np.arange(backlog.size)) * ticks.length_ns // 10**9
        starts = np.flatnonzero(np.diff(seconds, prepend=seconds[0] - 1))
        ends = np.append(starts[1:], backlog.size) - 1
        for start, end in zip(starts, ends, strict=True):
            rows.append(
                BacklogRow(
                    subscription=connections.subscriptions[stream.number],
                    second=int(seconds[start]),
                    sent=int(stream.sent[start : end + 1].sum()),
                    received=int(stream.received[start : end + 1].sum()),
                    backlog=int(backlog[end]),
                    peak=int(backlog[start : end + 1].max()),
                )
            )
    return rows


def little_rows(
    streams: list[SubscriptionSeries], ticks: Ticks, measure: Phase | None, transfer: Latency | None
) -> list[LittleRow]:
    """Little's law in the measure phase over all subscriptions: one row, or none if nothing was measured."""
    if measure is None or transfer is None:
        return []
    # Only ticks that lie entirely within the phase count.
    counted = whole_ticks(measure, ticks.origin_ns, ticks.length_ns)
    if not counted:
        return []
    low, high = counted.start, counted.stop
    length_ns = (high - low) * ticks.length_ns
    area_ns, received = 0.0, 0
    for stream in streams:
        first, last = (min(max(edge - stream.first_tick, 0), stream.sent.size) for edge in (low, high))
        area_ns += float(stream.area_ns(ticks.length_ns)[first:last].sum())
        # After the last tick of a stream its backlog stays constant.
        after = high - max(low, stream.first_tick + stream.sent.size)
        area_ns += float(stream.backlog[-1]) * ticks.length_ns * max(after, 0)
        received += int(stream.received[first:last].sum())
    mean, rate = area_ns / length_ns, received / length_ns * 1e9
    expected = rate * transfer.mean_ns / 1e9
    return [
        LittleRow(
            mean_backlog=mean,
            rate=rate,
            mean_transfer_ns=transfer.mean_ns,
            rate_times_transfer=expected,
            ratio=mean / expected if expected else None,
            holds=abs(mean - expected) <= max(TOLERANCE * abs(expected), 1.0),
        )
    ]
