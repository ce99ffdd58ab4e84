"""How did the run behave over time?

Writes the tables about backlog, outages and recovery, effects of events, and steady state. All come from the tick
counts and the histogram, which are small; only what faults cost needs the messages again. Jitter needs every delivery
in order, so it is computed only for runs with an outage or a lab and not too many deliveries, or with `--full`.
Computes nothing itself: the other modules of this package do.
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
from crescendo.pipeline.behaviour.recorded_events import CURE, DISCONNECT, FAULT, fault_windows, read_events
from crescendo.pipeline.behaviour.recovery import FaultEffects, fault_effects, missing_at_earlier_rate, recovery_rows
from crescendo.pipeline.behaviour.recovery_counts import read_counts, recovery_counts
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
from crescendo.record.recorded_experiment import offered_rate
from crescendo.record.schema import EVENTS, RECEIVED
from crescendo.record.summary import Latency
from crescendo.record.tables import OutageRow, RecoveryRow
from crescendo.record.timeline import MEASURE

JITTER_ROWS = 5_000_000
"""With more deliveries than this, jitter is computed only on request."""

SERIES_ROWS = 20_000
"""With more deliveries than this, the jitter of single messages is not kept: a chart could not show them."""

_JITTER_BLOCKS, _COUNTS = ".jitter", ".recovery"  # intermediate tables, removed when theirs are written


@dataclass(frozen=True)
class Behaviour:
    """What the verdict and its remarks use: the trends of the measure phase, their sources, and all outages."""

    trends: Sequence[PhaseTrend] = ()
    outages: Sequence[OutageRow] = ()
    streams: Sequence[SubscriptionSeries] = ()
    recoveries: Sequence[RecoveryRow] | None = None  # None: not computed
    effects: Sequence[FaultEffects] = ()  # of the same faults

    def trends_of(
        self, context: AnalysisContext, store: TableStore, run_slice: RunSlice, subscriptions: Collection[int]
    ) -> list[PhaseTrend]:
        """The trends of one slice, which uses these subscriptions."""
        streams = [stream for stream in self.streams if stream.number in subscriptions]
        ticks, histogram = ticks_for(context.timeline, context.connections), store.files(tables.LATENCY_HISTOGRAM.name)
        return _trends(measured_series(streams, ticks, histogram, context.timeline, run_slice.counts))

    def outages_of(self, subscriptions: Collection[str]) -> list[OutageRow]:
        return [outage for outage in self.outages if outage.subscription in subscriptions]

    def recoveries_of(self, subscriptions: Collection[str]) -> list[RecoveryRow] | None:
        """What each fault did to these subscriptions; None if that was not computed."""
        if self.recoveries is None:
            return None
        return [effect.row_of(row, subscriptions) for row, effect in zip(self.recoveries, self.effects, strict=True)]


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
    recoveries, of_faults = _write_recoveries(store, context, streams, _lost(found))
    if any(outage.end_ns is not None for outage in interruptions):
        store.write_frame(tables.BURSTS.name, lambda: bursts(context.frames.received, interruptions, connections))
    unstable = bool(interruptions) or bool(context.recording.manifest.lab)
    if context.full or (unstable and context.recording.rows(RECEIVED) <= JITTER_ROWS):
        _write_jitter(store, context.frames)
        if context.recording.rows(RECEIVED) <= SERIES_ROWS:
            store.write_frame(tables.JITTER_SERIES.name, lambda: jitter_series(context.frames.received))
    return Behaviour(_trends(series), interruptions, streams, recoveries, of_faults)


def _write_recoveries(
    store: TableStore,
    context: AnalysisContext,
    streams: list[SubscriptionSeries],
    lost: dict[int, int],
) -> tuple[list[RecoveryRow], list[FaultEffects]]:
    """Only a run with faults has this table."""
    manifest, timeline = context.recording.manifest, context.timeline
    events = read_events(context.recording.local_files(EVENTS), (FAULT, CURE, DISCONNECT), PeerTimes(manifest))
    windows = fault_windows(events)
    if not windows:
        return [], []
    ticks = ticks_for(timeline, context.connections)
    end_ns = max(phase.end_ns for phase in timeline.phases)
    interruptions = outages(streams, lost, ticks, context.connections, lost_aside=True)
    found = fault_effects(windows, interruptions, streams, ticks, end_ns)
    ranges = store.spark_path(tables.LEDGER_RANGES.name)
    store.write_frame(_COUNTS, lambda: recovery_counts(context, [each.span for each in found], ranges))
    counts = read_counts(store.files(_COUNTS))
    store.remove(_COUNTS)
    load_end_ns = end_ns if timeline.measure is None else timeline.measure.end_ns
    unoffered = {} if offered_rate(manifest) else missing_at_earlier_rate(found, streams, ticks, load_end_ns)
    histogram = store.files(tables.LATENCY_HISTOGRAM.name)
    rows = recovery_rows(found, counts, unoffered, events, timeline, histogram)
    store.write_rows(tables.RECOVERY, rows)
    return rows, found


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
