"""How does a recording become tables and a verdict?

The jobs that read the recording run in parallel: while one is planned or compiled, another computes. Later steps read
their small results. The summary is written last, so a run that has one has all its tables. Expensive tables are
computed only when they would not be empty, or on request. Decides nothing else.
"""

import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from crescendo.model.errors import CrescendoError
from crescendo.pipeline import columns as c
from crescendo.pipeline.behaviour.behaviour_tables import write_behaviour
from crescendo.pipeline.context import AnalysisContext, open_context
from crescendo.pipeline.joint_scan import JOINT_TABLES, can_join, scan_together
from crescendo.pipeline.latency.correction_scan import build_corrections
from crescendo.pipeline.latency.table import connection_latency_table, latencies, latency_table
from crescendo.pipeline.ledger import block_sums
from crescendo.pipeline.ledger.balance import Balance, read_balance
from crescendo.pipeline.ledger.discrepancies import LOST, discrepancies
from crescendo.pipeline.ledger.ledger import Discrepancies, ledger, read_discrepancies
from crescendo.pipeline.ledger.narrowing import MIN_ROWS, SEGMENT_BITS, narrow, rows_in_segments
from crescendo.pipeline.ledger.still_queued import still_queued, without_queued
from crescendo.pipeline.ledger.undelivered import (
    DRAIN,
    STILL_ARRIVING_DDL,
    drain_end,
    last_arrivals,
    still_arriving,
)
from crescendo.pipeline.plugin_tables import write_plugin_tables
from crescendo.pipeline.receipts import RECEIPT, write_receipt
from crescendo.pipeline.scans import scans
from crescendo.pipeline.source.foreign_messages import foreign_messages
from crescendo.pipeline.source.imported_counts import ImportedCounts
from crescendo.pipeline.source.ingest import (
    LocatedRecording,
    read_parquet,
    readable_recording,
    remote_recording,
    without_unreadable,
)
from crescendo.pipeline.source.moments import Timeline
from crescendo.pipeline.spark.errors import SPARK_ERRORS, jvm_death, spark_errors
from crescendo.pipeline.spark.evaluation import evaluation_for
from crescendo.pipeline.spark.parallel_jobs import run_parallel
from crescendo.pipeline.storage.hadoop import HadoopLocation
from crescendo.pipeline.storage.locations import Directory, Location
from crescendo.pipeline.storage.table_store import COLLECTED_ROWS, TableStore
from crescendo.pipeline.traffic.inspector_gaps import inspector_gaps
from crescendo.pipeline.traffic.spans import spans_table
from crescendo.pipeline.verdict import driver_tables
from crescendo.pipeline.verdict.evidence import Evidence
from crescendo.pipeline.verdict.own_delay_evidence import own_delay_of, with_own_delay
from crescendo.pipeline.verdict.remarks import remarks_on
from crescendo.pipeline.verdict.slice_evidence import SliceSources, slice_evidence, slice_result
from crescendo.pipeline.verdict.verdicts import verdict_of
from crescendo.record import tables
from crescendo.record.documents import encode_document
from crescendo.record.kept_recording import kept_recording
from crescendo.record.manifest import Manifest, State, clock_bound_ns
from crescendo.record.reader import Recording
from crescendo.record.recorded_experiment import experiment_of, offered_rate
from crescendo.record.schema import EVENTS, READINGS, RECEIVED, SENT, SPANS
from crescendo.record.summary import SUMMARY, Latency, Ledger, Rate, Summary
from crescendo.record.timeline import MEASURE, OUTSIDE

Progress = Callable[[str], None]
Finish = Callable[[Path, Summary], Summary]
"""Completes the summary of a local run with facts that are not in its recording, before the summary is written."""

_INSPECTOR = "inspector"
_SUSPECTS, _SEGMENTS, _ARRIVING = (
    ".suspects",
    ".segments",
    ".arriving",
)  # intermediate; removed once the ledger ranges are written
_SUSPECTS_DDL = f"{c.SUBSCRIPTION} INT, {c.SENDER} INT, {c.BLOCK} BIGINT"


def analyze(
    run: Path | str, spark: SparkSession, progress: Progress, *, full: bool = False, finish: Finish | None = None
) -> Summary:
    """Write `tables/` and `summary.json` of a run, a directory or a URL. Raises LostError when Spark fails.

    `full` requests every table, however expensive; docs/pipeline.md lists the tables that are omitted without it.
    """
    progress("checking the recording")
    if isinstance(run, Path):
        return analyze_recording(readable_recording(run), spark, progress, full=full, finish=finish)
    with (
        tempfile.TemporaryDirectory(prefix="crescendo-scratch-") as scratch_dir,
        spark_errors(f"the analysis of {run}"),
    ):
        location = HadoopLocation(run, spark, Path(scratch_dir))
        return analyze_recording(remote_recording(location, Path(scratch_dir), spark), spark, progress, full=full)


def analyze_recording(
    recording: LocatedRecording,
    spark: SparkSession,
    progress: Progress,
    *,
    full: bool = False,
    finish: Finish | None = None,
    scanned: "ScannedRun | None" = None,
) -> Summary:
    """The same for a recording that is already open; `scanned` if its messages have been counted with others."""
    location = recording.location
    if scanned is None:
        _remove_results(location)
    kept = kept_recording(str(location), "analyze")
    with spark_errors(f"the analysis of {location}", cure=kept), evaluation_for(_rows([recording]), spark):
        summary = _tabulate_readable(recording, spark, progress, full, scanned)
    if finish is not None and isinstance(location, Directory):
        summary = finish(location.path, summary)
    location.write(SUMMARY, encode_document(summary))
    write_receipt(location, recording, full=full)
    return summary


@dataclass(frozen=True)
class ScannedRun:
    """A run whose messages have been counted, and the store with those of its tables."""

    context: AnalysisContext
    store: TableStore


def scanned_together(recordings: Sequence[LocatedRecording], spark: SparkSession) -> list[ScannedRun | None]:
    """Count the messages of these recordings with one set of jobs; None for each that has to be scanned alone."""
    contexts = [_context_or_none(each, spark) for each in recordings]
    joined = [context for context in contexts if context is not None and can_join(context)]
    if len(joined) < 2:
        return [None] * len(contexts)
    for context in joined:
        _remove_results(context.recording.location)
    stores = [_store(context.recording) for context in joined]
    try:
        with evaluation_for(_rows([context.recording for context in joined]), spark):
            scan_together(joined, stores)
    except (*SPARK_ERRORS, pa.ArrowException, OSError) as err:
        if jvm_death(err):
            raise
        return [None] * len(contexts)  # one by one, it turns out which of them cannot be read
    scanned = {id(context): ScannedRun(context, store) for context, store in zip(joined, stores, strict=True)}
    return [scanned.get(id(context)) for context in contexts]


def _context_or_none(recording: LocatedRecording, spark: SparkSession) -> AnalysisContext | None:
    """None for a recording that cannot be analysed; why not is reported when it is analysed by itself."""
    try:
        return open_context(recording, spark, full=False)
    except (CrescendoError, pa.ArrowException, OSError):
        return None


def _store(recording: LocatedRecording) -> TableStore:
    return TableStore(recording.location, collects=_rows([recording]) <= COLLECTED_ROWS)


def _rows(recordings: Sequence[Recording]) -> int:
    return sum(part.rows for recording in recordings for part in recording.parts)


def _remove_results(location: Location) -> None:
    for stale in (RECEIPT, SUMMARY):
        location.remove(stale)


def _tabulate_readable(
    recording: LocatedRecording, spark: SparkSession, progress: Progress, full: bool, scanned: ScannedRun | None
) -> Summary:
    """Write the tables; if a job fails on corrupt pages behind a valid hash and footer, retry without that part."""
    try:
        if scanned is not None:
            return tabulate(scanned.context, scanned.store, progress, written=JOINT_TABLES)
        return tabulate(open_context(recording, spark, full=full), _store(recording), progress)
    except (*SPARK_ERRORS, pa.ArrowException, OSError) as err:
        if jvm_death(err):
            raise
        progress("searching for the unreadable part")
        readable = without_unreadable(recording)
        if len(readable.parts) == len(recording.parts):
            raise
    return tabulate(open_context(readable, spark, full=full), _store(readable), progress)


def tabulate(
    context: AnalysisContext, store: TableStore, progress: Progress, *, written: Collection[str] = ()
) -> Summary:
    """Write every table to the store except those that are `written` already, and judge the run."""
    recording, manifest, connections = context.recording, context.recording.manifest, context.connections
    progress(f"counting {recording.rows(SENT):,} messages sent and {recording.rows(RECEIVED):,} received")
    _scan(store, context, written)
    balance = read_balance(store.files(c.BLOCK_SUMS), connections)
    store.remove(c.BLOCK_SUMS)
    found, queued = _without_queued(_discrepancies(store, context, balance, progress), context)
    latency = _latencies(store, context)
    progress("computing behaviour over time")
    behaviour = write_behaviour(store, context, found, latency)
    rows = ledger(balance, found, connections)
    store.write_rows(tables.LEDGER, driver_tables.ledger_rows(rows))
    write_plugin_tables(store, context, progress)
    progress("judging")
    own = own_delay_of(store, context, balance, latency)
    rate = _rate(balance, rows[0], context.timeline, offered_rate(manifest), context.imported_counts)
    evidence = Evidence(
        manifest=manifest,
        experiment=experiment_of(manifest),
        damaged=recording.damaged,
        unlisted=balance.unlisted,
        total=rows[0],
        rate=with_own_delay(rate, own, rows[0], _unsent(manifest)),
        latency={row.kind: row for row in latency if row.phase == MEASURE},
        aggregates=context.imported_counts,
        without_own_delay=None if own is None else {row.kind: row for row in own.latency},
        own_shares={} if own is None else own.shares,
        stopped_without_ns=None if own is None else own.stopped_without_ns,
        arrived_at_edge=round(balance.total_received(block_sums.EDGE) / _fan_out(rows[0])),
        held={connections.subscriptions[number]: count for number, count in queued.items()},
        others=foreign_messages(recording.local_files(EVENTS)),
        shared_topics=sorted({connections.subscriptions[number].rpartition("#")[0] for number in balance.shared}),
        trends=behaviour.trends,
        outages=behaviour.outages,
        recoveries=behaviour.recoveries,
        read_table=store.rows,
    )
    slices = slice_evidence(evidence, SliceSources(store, context, balance, found, behaviour))
    for name in (c.OWN_RANGES, c.READ_RANGES, c.PATH_EPISODES, c.SENDER_EPISODES, c.CORRECTIONS):
        store.remove(name)
    validity, verdict = verdict_of(evidence, slices)
    store.write_rows(tables.CHECKS, driver_tables.check_rows(verdict.checks))
    return Summary(
        run=manifest.run,
        state=State(manifest.state).value,
        verdict=verdict,
        validity=validity,
        rate=evidence.rate,
        latency=latency,
        ledger=rows,
        clock_bound_ns=clock_bound_ns(manifest.clocks),
        batch_share=_batch_share(recording),
        without_own_delay=[] if own is None else own.latency,
        remarks=remarks_on(evidence, slices),
        slices=[slice_result(each) for each in slices],
    )


def _scan(store: TableStore, context: AnalysisContext, written: Collection[str]) -> None:
    """Run every job that reads the whole recording."""
    if not written:
        _ = context.frames  # read once, before several threads ask for them
    frames = scans(context)
    frames[c.CORRECTIONS] = lambda: build_corrections(context, store)
    jobs = [partial(store.write_frame, name, frame) for name, frame in frames.items() if name not in written]
    run_parallel(jobs, context.spark)
    recording = context.recording
    # A run without inspectors has no table of their gaps.
    if recording.files(READINGS) or any(peer.role == _INSPECTOR for peer in recording.manifest.peers):
        store.write_rows(tables.READING_GAPS, inspector_gaps(recording.local_files(EVENTS)))
    if recording.files(SPANS):
        store.write_table(tables.SPANS.name, spans_table(store.files(tables.SPAN_HISTOGRAM.name)))


def _latencies(store: TableStore, context: AnalysisContext) -> list[Latency]:
    statistics = latency_table(store.files(tables.LATENCY_HISTOGRAM.name))
    scopes = [statistics.table]
    if context.full:
        scopes.append(
            connection_latency_table(store.files(c.CONNECTION_HISTOGRAM), context.recording.manifest.connections)
        )
        store.remove(c.CONNECTION_HISTOGRAM)
    store.write_table(tables.LATENCY.name, pa.concat_tables(scopes))
    return latencies(statistics, [*dict.fromkeys(phase.name for phase in context.timeline.phases), OUTSIDE])


def _discrepancies(store: TableStore, context: AnalysisContext, balance: Balance, progress: Progress) -> Discrepancies:
    rows, bits = balance.suspect_rows, block_sums.BLOCK_BITS
    if not rows:
        store.write_rows(tables.LEDGER_RANGES, [])
        return {}
    arriving = _still_arriving(store, context, balance)
    store.write_table(_SUSPECTS, driver_tables.suspect_table(balance.suspects))
    suspects = _read(store, context, _SUSPECTS)
    if rows > MIN_ROWS:
        progress(f"narrowing down {rows:,} rows")
        store.write_frame(_SEGMENTS, lambda: narrow(context.frames, suspects, context.connections))
        segments = sum(pq.ParquetFile(file).metadata.num_rows for file in store.files(_SEGMENTS))
        rows, bits = balance.out_of_order + rows_in_segments(segments), SEGMENT_BITS
        suspects = _read(store, context, _SEGMENTS)
    progress(f"comparing {rows:,} rows, message by message")
    store.write_frame(
        tables.LEDGER_RANGES.name,
        lambda: discrepancies(context.frames, suspects, context.connections, rows, bits, arriving),
    )
    for name in (_SUSPECTS, _SEGMENTS, _ARRIVING):
        store.remove(name)
    return read_discrepancies(store.files(tables.LEDGER_RANGES.name), context.connections)


def _without_queued(found: Discrepancies, context: AnalysisContext) -> tuple[Discrepancies, dict[int, int]]:
    """The discrepancies, less what the system itself still counts in its queues."""
    drain = next((phase for phase in context.timeline.phases if phase.name == DRAIN), None)
    missing = any(counts[kind] for counts in found.values() for kind in (c.ACKNOWLEDGED, LOST))
    if drain is None or not missing:
        return found, {}
    recording = context.recording
    files = recording.local_files(READINGS)
    return without_queued(found, still_queued(recording.manifest, context.connections, files, drain.start_ns))


def _still_arriving(store: TableStore, context: AnalysisContext, balance: Balance) -> DataFrame | None:
    """What was still arriving when the drain ended; None if nothing is missing, or if deliveries had stopped."""
    end = drain_end(context.timeline, context.recording.local_files(EVENTS), context.connections)
    if end is None or not balance.missing or not end.may_be_arriving(balance.last_ns):
        return None
    store.write_frame(_ARRIVING, lambda: last_arrivals(context.frames.received, end))
    found = still_arriving(store.files(_ARRIVING), end, context.connections)
    store.remove(_ARRIVING)
    if not found.num_rows:
        return None
    store.write_table(_ARRIVING, found)
    return _read(store, context, _ARRIVING, STILL_ARRIVING_DDL)


def _read(store: TableStore, context: AnalysisContext, name: str, ddl: str = _SUSPECTS_DDL) -> DataFrame:
    return read_parquet(context.spark, ddl, [str(file) for file in store.files(name)])


def _rate(balance: Balance, total: Ledger, timeline: Timeline, offered: float, imported: ImportedCounts | None) -> Rate:
    measure = timeline.measure
    duration_ns = measure.end_ns - measure.start_ns if measure else 0
    if duration_ns <= 0:
        return Rate(offered=offered, sent=0.0, sustained=0.0, duration_ns=0, bytes_per_second=0.0)
    seconds = duration_ns / 1e9
    if imported is not None:
        return Rate(offered, imported.measured_sent / seconds, imported.measured_received / seconds, duration_ns, 0.0)
    fan_out = _fan_out(total)
    return Rate(
        offered=offered,
        sent=balance.total_sent(block_sums.MEASURED) / seconds,
        sustained=balance.total_received(block_sums.MEASURED) / seconds / fan_out,
        duration_ns=duration_ns,
        bytes_per_second=balance.total_received(block_sums.MEASURED_BYTES) / seconds / fan_out,
    )


def _unsent(manifest: Manifest) -> float:
    """Messages that were due and that senders did not send for reasons of their own."""
    return sum(peer.statistics.unsent_own or 0.0 for peer in manifest.peers)


def _fan_out(total: Ledger) -> float:
    return total.owed / total.sent if total.owed else 1.0


def _batch_share(recording: Recording) -> float | None:
    """The share of messages on the batch path: each peer's share, weighted by the rows that peer recorded."""
    shares = {peer.id: peer.statistics.batch_share for peer in recording.manifest.peers}
    rows = [(shares.get(part.peer), part.rows) for part in recording.parts if part.table in {SENT, RECEIVED}]
    known = [(share, count) for share, count in rows if share is not None]
    weight = sum(count for _, count in known)
    return sum(share * count for share, count in known) / weight if weight else None
