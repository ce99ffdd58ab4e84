"""How did the run behave over time?

Writes the tables about backlog, outages and recovery, effects of events, and steady state. All come from the tick
counts and the histogram, which are small. Jitter needs every delivery in order, so it is computed only for runs with an
outage or a lab, and not too many deliveries, or with `--full`. Computes nothing itself: the other modules of this
package do.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from crescendo.model.metrics import TRANSFER
from crescendo.pipeline import columns
from crescendo.pipeline.behaviour.backlog import (
    SubscriptionSeries,
    backlog_rows,
    little_rows,
    read_subscription_series,
)
from crescendo.pipeline.behaviour.bursts import bursts
from crescendo.pipeline.behaviour.event_effects import event_effects
from crescendo.pipeline.behaviour.outages import outages
from crescendo.pipeline.behaviour.steady import MeasuredSeries, PhaseTrend, measured_series
from crescendo.pipeline.behaviour.ticks import ticks_for
from crescendo.pipeline.columns import ACKNOWLEDGED
from crescendo.pipeline.context import AnalysisContext
from crescendo.pipeline.latency.jitter import jitter_blocks, jitter_series, jitter_tables
from crescendo.pipeline.ledger.discrepancies import LOST, UNDELIVERED
from crescendo.pipeline.ledger.ledger import Discrepancies
from crescendo.pipeline.source.ingest import Frames
from crescendo.pipeline.source.run_slices import RunSlice
from crescendo.pipeline.storage.table_store import TableStore
from crescendo.record import tables
from crescendo.record.clock_mapping import PeerTimes
from crescendo.record.schema import EVENTS, RECEIVED
from crescendo.record.summary import Latency
from crescendo.record.tables import OutageRow
from crescendo.record.timeline import MEASURE

JITTER_ROWS = 5_000_000
"""With more deliveries than this, jitter is computed only on request."""

SERIES_ROWS = 20_000
"""With more deliveries than this, the jitter of single messages is not kept: a chart could not show them."""

_JITTER_BLOCKS = ".jitter"  # intermediate table, removed when the jitter tables are written


@dataclass(frozen=True)
class Behaviour:
    """What the verdict and its remarks use: the trends of the measure phase, their sources, and all outages."""

    trends: Sequence[PhaseTrend] = ()
    outages: Sequence[OutageRow] = ()
    streams: Sequence[SubscriptionSeries] = ()

    def trends_of(
        self, context: AnalysisContext, store: TableStore, run_slice: RunSlice, subscriptions: Collection[int]
    ) -> list[PhaseTrend]:
        """The trends of one slice, which uses these subscriptions."""
        streams = [stream for stream in self.streams if stream.number in subscriptions]
        ticks, histogram = ticks_for(context.timeline, context.connections), store.files(tables.LATENCY_HISTOGRAM.name)
        return _trends(measured_series(streams, ticks, histogram, context.timeline, run_slice.counts))


def write_behaviour(
    store: TableStore, context: AnalysisContext, found: Discrepancies, latency: list[Latency]
) -> Behaviour:
    """Write the tables."""
    if not context.includes_behaviour:
        return Behaviour()
    timeline, connections = context.timeline, context.connections
    ticks = ticks_for(timeline, connections)
    streams = read_subscription_series(store.files(columns.TICKS), connections)
    store.remove(columns.TICKS)
    transfer = next((row for row in latency if (row.phase, row.kind) == (MEASURE, TRANSFER)), None)
    store.write_rows(tables.BACKLOG, backlog_rows(streams, ticks, connections))
    store.write_rows(tables.LITTLE, little_rows(streams, ticks, timeline.measure, transfer))
    histogram = store.files(tables.LATENCY_HISTOGRAM.name)
    series = measured_series(streams, ticks, histogram, timeline)
    store.write_rows(tables.STEADY_STATE, [each.row for each in series])
    interruptions = outages(streams, _lost(found), ticks, connections)
    store.write_rows(tables.OUTAGES, interruptions)
    times = PeerTimes(context.recording.manifest)
    files = context.recording.local_files(EVENTS)
    effects = event_effects(files, streams, interruptions, ticks, timeline, histogram, times)
    store.write_rows(tables.EFFECTS, effects)
    if any(outage.end_ns is not None for outage in interruptions):
        store.write_frame(tables.BURSTS.name, lambda: bursts(context.frames.received, interruptions, connections))
    unstable = bool(interruptions) or bool(context.recording.manifest.lab)
    if context.full or (unstable and context.recording.rows(RECEIVED) <= JITTER_ROWS):
        _write_jitter(store, context.frames)
        if context.recording.rows(RECEIVED) <= SERIES_ROWS:
            store.write_frame(tables.JITTER_SERIES.name, lambda: jitter_series(context.frames.received))
    return Behaviour(_trends(series), interruptions, streams)


def _trends(series: list[MeasuredSeries]) -> list[PhaseTrend]:
    return [trend for each in series if (trend := each.phase_trend) is not None]


def _write_jitter(store: TableStore, frames: Frames) -> None:
    store.write_frame(_JITTER_BLOCKS, lambda: jitter_blocks(frames.received))
    jitter, histogram = jitter_tables(store.files(_JITTER_BLOCKS))
    store.remove(_JITTER_BLOCKS)
    store.write_table(tables.JITTER.name, jitter)
    store.write_table(tables.JITTER_HISTOGRAM.name, histogram)


def _lost(found: Discrepancies) -> dict[int, int]:
    """Messages that each subscription never received."""
    lost: Counter[int] = Counter()
    for (subscription, _), kinds in found.items():
        lost[subscription] += kinds[LOST] + kinds[ACKNOWLEDGED] + kinds[UNDELIVERED]
    return dict(lost)
