"""How does a recording become tables and a verdict?

The jobs that read the recording run in parallel: while one is planned or compiled, another computes. Later steps read
their small results. The summary is written last, so a run that has one has all its tables. Expensive tables are
computed only when they would not be empty, or on request. Decides nothing else.
"""

import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from crescendo.model.schedule import offered
from crescendo.pipeline import columns as c
from crescendo.pipeline.behaviour.behaviour_tables import write_behaviour
from crescendo.pipeline.context import AnalysisContext, open_context
from crescendo.pipeline.latency.table import connection_latency_table, latencies, latency_table
from crescendo.pipeline.ledger import block_sums
from crescendo.pipeline.ledger.balance import Balance, read_balance
from crescendo.pipeline.ledger.discrepancies import discrepancies
from crescendo.pipeline.ledger.ledger import Discrepancies, ledger, read_discrepancies
from crescendo.pipeline.ledger.narrowing import MIN_ROWS, SEGMENT_BITS, narrow, rows_in_segments
from crescendo.pipeline.plugin_tables import write_plugin_tables
from crescendo.pipeline.receipts import RECEIPT, write_receipt
from crescendo.pipeline.scans import scans
from crescendo.pipeline.source.connections import experiment_of
from crescendo.pipeline.source.imported_counts import ImportedCounts
from crescendo.pipeline.source.ingest import (
    LocatedRecording,
    read_parquet,
    readable_recording,
    remote_recording,
    without_unreadable,
)
from crescendo.pipeline.source.moments import Timeline
from crescendo.pipeline.spark.errors import SPARK_ERRORS, spark_errors
from crescendo.pipeline.spark.session import close_session
from crescendo.pipeline.storage.hadoop import HadoopLocation
from crescendo.pipeline.storage.locations import Directory
from crescendo.pipeline.storage.table_store import TableStore
from crescendo.pipeline.traffic.inspector_gaps import inspector_gaps
from crescendo.pipeline.traffic.spans import spans_table
from crescendo.pipeline.verdict import driver_tables
from crescendo.pipeline.verdict.evidence import Evidence
from crescendo.pipeline.verdict.verdicts import verdict_of
from crescendo.record import tables
from crescendo.record.documents import encode_document
from crescendo.record.manifest import State
from crescendo.record.reader import Recording
from crescendo.record.schema import EVENTS, READINGS, RECEIVED, SENT, SPANS
from crescendo.record.summary import SUMMARY, Latency, Ledger, Rate, Summary
from crescendo.record.timeline import MEASURE, OUTSIDE

Progress = Callable[[str], None]
Finish = Callable[[Path, Summary], Summary]
"""Completes the summary of a local run with facts that are not in its recording, before the summary is written."""

_INSPECTOR = "inspector"
_SUSPECTS, _SEGMENTS = ".suspects", ".segments"  # intermediate; removed once the ledger ranges are written
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
    with tempfile.TemporaryDirectory(prefix="crescendo-desk-") as scratch_dir:
        location = HadoopLocation(run, spark, Path(scratch_dir))
        return analyze_recording(remote_recording(location, Path(scratch_dir), spark), spark, progress, full=full)


def analyze_recording(
    recording: LocatedRecording,
    spark: SparkSession,
    progress: Progress,
    *,
    full: bool = False,
    finish: Finish | None = None,
) -> Summary:
    """The same for a recording that is already open."""
    location = recording.location
    for stale in (RECEIPT, SUMMARY):
        location.remove(stale)
    with spark_errors(f"the analysis of {location}"):
        summary = _tabulate_readable(recording, spark, progress, full)
    if finish is not None and isinstance(location, Directory):
        summary = finish(location.path, summary)
    location.write(SUMMARY, encode_document(summary))
    write_receipt(location, recording, full=full)
    return summary


def _tabulate_readable(recording: LocatedRecording, spark: SparkSession, progress: Progress, full: bool) -> Summary:
    """Write the tables; if a job fails on corrupt pages behind a valid hash and footer, retry without that part."""
    try:
        return tabulate(open_context(recording, spark, full=full), TableStore(recording.location), progress)
    except (*SPARK_ERRORS, pa.ArrowException, OSError):
        progress("searching for the unreadable part")
        readable = without_unreadable(recording)
        if len(readable.parts) == len(recording.parts):
            raise
    return tabulate(open_context(readable, spark, full=full), TableStore(readable.location), progress)


def tabulate(context: AnalysisContext, store: TableStore, progress: Progress) -> Summary:
    """Write every table to the store, and judge the run."""
    recording, manifest, connections = context.recording, context.recording.manifest, context.connections
    progress(f"counting {recording.rows(SENT):,} messages sent and {recording.rows(RECEIVED):,} received")
    _scan(store, context)
    balance = read_balance(store.files(c.BLOCK_SUMS), connections)
    store.remove(c.BLOCK_SUMS)
    found = _discrepancies(store, context, balance, progress)
    latency = _latencies(store, context)
    progress("computing behaviour over time")
    write_behaviour(store, context, found, latency)
    progress("judging")
    rows = ledger(balance, found, connections)
    evidence = Evidence(
        manifest=manifest,
        experiment=experiment_of(manifest),
        damaged=recording.damaged,
        unlisted=balance.unlisted,
        total=rows[0],
        rate=_rate(balance, rows[0], context.timeline, offered(experiment_of(manifest)), context.imported_counts),
        latency={row.kind: row for row in latency if row.phase == MEASURE},
        aggregates=context.imported_counts,
    )
    validity, verdict = verdict_of(evidence)
    store.write_rows(tables.LEDGER, driver_tables.ledger_rows(rows))
    store.write_rows(tables.CHECKS, driver_tables.check_rows(verdict.checks))
    write_plugin_tables(store, context, progress)
    return Summary(
        run=manifest.run,
        state=State(manifest.state).value,
        verdict=verdict,
        validity=validity,
        rate=evidence.rate,
        latency=latency,
        ledger=rows,
        clock_bound_ns=max((clock.bound_ns for clock in manifest.clocks), default=0),
        batch_share=_batch_share(recording),
    )


def _scan(store: TableStore, context: AnalysisContext) -> None:
    """Run every job that reads the whole recording."""
    frames = scans(context)
    with ThreadPoolExecutor(len(frames)) as pool:
        # Building a DataFrame costs as much as a small job, so that runs in parallel too.
        writing = [pool.submit(store.write_frame, name, frame) for name, frame in frames.items()]
        try:
            for written in writing:
                written.result()
        except KeyboardInterrupt:  # leaving the pool waits for jobs in progress, so end those first
            pool.shutdown(wait=False, cancel_futures=True)
            close_session(context.spark, at_once=True)
            raise
    recording = context.recording
    # A run without inspectors has no table of their gaps.
    if recording.files(READINGS) or any(peer.role == _INSPECTOR for peer in recording.manifest.peers):
        store.write_rows(tables.READING_GAPS, inspector_gaps(recording.local_files(EVENTS)))
    if recording.files(SPANS):
        store.write_table(tables.SPANS.name, spans_table(store.files(tables.SPAN_HISTOGRAM.name)))


def _latencies(store: TableStore, context: AnalysisContext) -> list[Latency]:
    table = latency_table(store.files(tables.LATENCY_HISTOGRAM.name))
    scopes = [table]
    if context.full:
        scopes.append(
            connection_latency_table(store.files(c.CONNECTION_HISTOGRAM), context.recording.manifest.connections)
        )
        store.remove(c.CONNECTION_HISTOGRAM)
    store.write_table(tables.LATENCY.name, pa.concat_tables(scopes))
    return latencies(table, [*dict.fromkeys(phase.name for phase in context.timeline.phases), OUTSIDE])


def _discrepancies(store: TableStore, context: AnalysisContext, balance: Balance, progress: Progress) -> Discrepancies:
    rows, bits = balance.suspect_rows, block_sums.BLOCK_BITS
    if not rows:
        store.write_rows(tables.LEDGER_RANGES, [])
        return {}
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
        lambda: discrepancies(context.frames, suspects, context.connections, rows, bits),
    )
    for name in (_SUSPECTS, _SEGMENTS):
        store.remove(name)
    return read_discrepancies(store.files(tables.LEDGER_RANGES.name), context.connections)


def _read(store: TableStore, context: AnalysisContext, name: str) -> DataFrame:
    return read_parquet(context.spark, _SUSPECTS_DDL, [str(file) for file in store.files(name)])


def _rate(balance: Balance, total: Ledger, timeline: Timeline, offered: float, imported: ImportedCounts | None) -> Rate:
    measure = timeline.measure
    duration_ns = measure.end_ns - measure.start_ns if measure else 0
    if duration_ns <= 0:
        return Rate(offered=offered, sent=0.0, sustained=0.0, duration_ns=0, bytes_per_second=0.0)
    seconds = duration_ns / 1e9
    if imported is not None:
        return Rate(offered, imported.measured_sent / seconds, imported.measured_received / seconds, duration_ns, 0.0)
    fan_out = total.owed / total.sent if total.owed else 1.0
    return Rate(
        offered=offered,
        sent=balance.total_sent(block_sums.MEASURED) / seconds,
        sustained=balance.total_received(block_sums.MEASURED) / seconds / fan_out,
        duration_ns=duration_ns,
        bytes_per_second=balance.total_received(block_sums.MEASURED_BYTES) / seconds / fan_out,
    )


def _batch_share(recording: Recording) -> float | None:
    """The share of messages on the batch path: each peer's share, weighted by the rows that peer recorded."""
    shares = {peer.id: peer.statistics.batch_share for peer in recording.manifest.peers}
    rows = [(shares.get(part.peer), part.rows) for part in recording.parts if part.table in {SENT, RECEIVED}]
    known = [(share, count) for share, count in rows if share is not None]
    weight = sum(count for _, count in known)
    return sum(share * count for share, count in known) / weight if weight else None
