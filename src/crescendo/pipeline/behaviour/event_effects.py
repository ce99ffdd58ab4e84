"""What followed a fault, a cure, a broken connection or something that an agent did?

Shows rate, p99, backlog and any nearby outage in the five seconds before and after each event. This is correlation, not
causation: two events in the same second get the same figures.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc

from crescendo.model.metrics import RESPONSE, TRANSFER
from crescendo.pipeline.behaviour.backlog import SubscriptionSeries
from crescendo.pipeline.behaviour.recorded_events import read_events
from crescendo.pipeline.behaviour.ticks import Ticks
from crescendo.pipeline.columns import BUCKET, DETAIL, KIND, SECOND, SOURCE, T_NS
from crescendo.pipeline.latency.group_sums import group_sums
from crescendo.pipeline.latency.quantiles import group_statistics
from crescendo.pipeline.source.moments import Timeline
from crescendo.record.clock_mapping import PeerTimes
from crescendo.record.schema import AGENT_EVENTS
from crescendo.record.table_types import column_name
from crescendo.record.tables import EffectRow, OutageRow, SampleStatistics

EVENT_KINDS = ("fault", "cure", "disconnect", "reconnect", "lost", "failed", *AGENT_EVENTS)
AROUND_S = 5
MAX_EVENTS = 1000
"""The first ones. More than this means that a connection is flapping."""


def event_effects(
    event_files: list[str],
    streams: list[SubscriptionSeries],
    outages: list[OutageRow],
    ticks: Ticks,
    timeline: Timeline,
    histogram: list[Path],
    times: PeerTimes,
) -> list[EffectRow]:
    """One row per event, ordered by time."""
    rows = read_events(event_files, EVENT_KINDS, times)[:MAX_EVENTS]
    effects = []
    for row in rows:
        t_ns = row[T_NS]
        second = timeline.second_at(t_ns)
        flow, outage = _flow(streams, ticks, t_ns), _nearby_outage(outages, t_ns)
        effects.append(
            EffectRow(
                t_ns=t_ns,
                second=second,
                source=row[SOURCE],
                kind=row[KIND],
                detail=row[DETAIL],
                rate_before=flow.rate_before,
                rate_after=flow.rate_after,
                p99_before_ns=p99_between(histogram, second - AROUND_S, second),
                p99_after_ns=p99_between(histogram, second, second + AROUND_S),
                backlog_before=flow.backlog_before,
                backlog_peak=flow.backlog_peak,
                outage_start_ns=None if outage is None else outage.start_ns,
                outage_gap_ns=None if outage is None else outage.gap_ns,
            )
        )
    return effects


class _Flow(NamedTuple):
    rate_before: float
    rate_after: float
    backlog_before: int
    backlog_peak: int


def _flow(streams: list[SubscriptionSeries], ticks: Ticks, t_ns: int) -> _Flow:
    """Deliveries and backlog in whole ticks before and after. The tick of the event itself counts as after."""
    at = (t_ns - ticks.origin_ns) // ticks.length_ns
    width = max(AROUND_S * 10**9 // ticks.length_ns, 1)
    before, after, waiting = 0, 0, np.zeros(width + 1, np.int64)
    for stream in streams:
        index = at - stream.first_tick
        before += int(stream.received[max(index - width, 0) : max(index, 0)].sum())
        after += int(stream.received[max(index, 0) : max(index + width, 0)].sum())
        ends = np.clip(index + np.arange(width + 1), 0, stream.sent.size)
        waiting += np.concatenate([[0], stream.backlog])[ends]
    seconds = width * ticks.length_ns / 1e9
    return _Flow(before / seconds, after / seconds, int(waiting[0]), int(waiting.max()))


def p99_between(histogram: list[Path], first: int, end: int) -> int | None:
    """The p99 of the responses, or else of the transfers, from one second up to another."""
    for kind in (RESPONSE, TRANSFER) if histogram else ():
        within = (pc.field(SECOND) >= first) & (pc.field(SECOND) < end) & (pc.field(KIND) == kind)
        counts = group_sums(histogram, [BUCKET], where=within)
        if counts.num_rows:
            p99: int | None = group_statistics(counts, [])[column_name(SampleStatistics.p99)][0].as_py()
            return p99
    return None


def _nearby_outage(outages: list[OutageRow], t_ns: int) -> OutageRow | None:
    """The longest outage that overlaps the time from one second before the event to five seconds after it."""
    overlapping = [
        each
        for each in outages
        if each.start_ns <= t_ns + AROUND_S * 10**9 and each.start_ns + each.gap_ns >= t_ns - 10**9
    ]
    return max(overlapping, key=lambda each: each.gap_ns, default=None)
