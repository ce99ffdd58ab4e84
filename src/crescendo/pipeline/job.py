"""How does a recording become tables and a verdict?

The jobs that read the recording run side by side: while one is planned or compiled, another computes. What follows
reads their small results. The summary is written last, so a run that has one has all its tables. Dear tables are made
where there is something to see in them, or when they are asked for. Decides nothing else.
"""

import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from crescendo.model.errors import LostError
from crescendo.model.schedule import offered
from crescendo.pipeline import columns
from crescendo.pipeline.behaviour.tables import write_behaviour
from crescendo.pipeline.context import AnalysisContext, open_context
from crescendo.pipeline.lake.receipts import RECEIPT, write_receipt
from crescendo.pipeline.latency.table import connection_latency_table, latencies, latency_table
from crescendo.pipeline.ledger import block_sums
from crescendo.pipeline.ledger.balance import Balance, read_balance
from crescendo.pipeline.ledger.discrepancies import discrepancies
from crescendo.pipeline.ledger.ledger import Discrepancies, ledger, read_discrepancies
from crescendo.pipeline.ledger.narrowing import PIECE_BITS, WORTH_ROWS, narrow, rows_in
from crescendo.pipeline.scans import ACCOUNTS, PARTY_HISTOGRAM, scans
from crescendo.pipeline.source.connections import experiment_of
from crescendo.pipeline.source.imported_counts import ImportedCounts
from crescendo.pipeline.source.ingest import (
    LocatedRecording,
    read_parquet,
    readable_recording,
    remote_recording,
    without_unreadable,
)
from crescendo.pipeline.source.moments import MEASURE, OUTSIDE, Phases
from crescendo.pipeline.spark.session import close_session
from crescendo.pipeline.storage.hadoop import HadoopLocation, first_words
from crescendo.pipeline.storage.table_store import TableStore
from crescendo.pipeline.traffic.inspector_gaps import GAPS_SCHEMA, inspector_gaps
from crescendo.pipeline.traffic.spans import spans_table
from crescendo.pipeline.verdict import driver_tables
from crescendo.pipeline.verdict.evidence import Evidence
from crescendo.pipeline.verdict.verdicts import verdict_of
from crescendo.record.manifest import State
from crescendo.record.reader import Recording
from crescendo.record.schema import EVENTS, READINGS, RECEIVED, SENT, SPANS
from crescendo.record.summary import SUMMARY, Latency, Ledger, Rate, Summary

Progress = Callable[[str], None]

_INSPECTOR = "inspector"
_SUSPECTS, _PIECES = ".suspects", ".pieces"  # on the way to the ledger; removed when it is written
_SUSPECT = f"{columns.SUBSCRIPTION} INT, {columns.SENDER} INT, {columns.BLOCK} BIGINT"


def analyze(run: Path | str, spark: SparkSession, progress: Progress, *, full: bool = False) -> Summary:
    """Write `tables/` and `summary.json` of a run, a directory or a URL. Raises LostError when Spark gives up.

    `full` asks for every table, however dear; without it long runs go without some, as docs/pipeline.md says.
    """
    progress("checking the recording")
    if isinstance(run, Path):
        return analyze_recording(readable_recording(run), spark, progress, full=full)
    with tempfile.TemporaryDirectory(prefix="crescendo-desk-") as desk:
        place = HadoopLocation(run, spark, Path(desk))
        return analyze_recording(remote_recording(place, Path(desk), spark), spark, progress, full=full)


def analyze_recording(
    recording: LocatedRecording, spark: SparkSession, progress: Progress, *, full: bool = False
) -> Summary:
    """The same for a recording that is open already."""
    place = recording.place
    for stale in (RECEIPT, SUMMARY):
        place.remove(stale)
    try:
        summary = _in_spite_of_bad_parts(recording, spark, progress, full)
    except (PySparkException, Py4JError) as err:
        raise LostError(f"the analysis of {place} did not finish: {first_words(err)}") from err
    place.write(SUMMARY, msgspec.json.format(msgspec.json.encode(summary), indent=1))
    write_receipt(place, recording, full=full)
    return summary


def _in_spite_of_bad_parts(recording: LocatedRecording, spark: SparkSession, progress: Progress, full: bool) -> Summary:
    """A part may have the right hash and footer and rubbish in between: then it is found, and left out."""
    try:
        return tabulate(open_context(recording, spark, full=full), TableStore(recording.place), progress)
    except (PySparkException, Py4JError, pa.ArrowException, OSError):
        progress("looking for the part that cannot be read")
        readable = without_unreadable(recording)
        if len(readable.parts) == len(recording.parts):
            raise
    return tabulate(open_context(readable, spark, full=full), TableStore(readable.place), progress)


def tabulate(context: AnalysisContext, store: TableStore, progress: Progress) -> Summary:
    """Put every table on the shelf, and judge."""
    recording, manifest, connections = context.recording, context.recording.manifest, context.connections
    progress(f"counting {recording.rows(SENT):,} messages sent and {recording.rows(RECEIVED):,} received")
    _scan(store, context)
    balance = read_balance(store.files(ACCOUNTS), connections)
    store.remove(ACCOUNTS)
    found = _discrepancies(store, context, balance, progress)
    latency = _latencies(store, context)
    progress("looking at how it went over time")
    write_behaviour(store, context, found, latency)
    progress("judging")
    lines = ledger(balance, found, connections)
    evidence = Evidence(
        manifest=manifest,
        experiment=experiment_of(manifest),
        damaged=recording.damaged,
        unlisted=balance.unlisted,
        total=lines[0],
        rate=_rate(balance, lines[0], context.timeline, offered(experiment_of(manifest)), context.aggregates),
        latency={row.kind: row for row in latency if row.phase == MEASURE},
        aggregates=context.aggregates,
    )
    validity, verdict = verdict_of(evidence)
    store.write_rows(columns.LEDGER, driver_tables.LEDGER_SCHEMA, driver_tables.ledger_rows(lines))
    store.write_rows(columns.CHECKS, driver_tables.CHECKS_SCHEMA, driver_tables.check_rows(verdict.checks))
    return Summary(
        run=manifest.run,
        state=State(manifest.state).value,
        verdict=verdict,
        validity=validity,
        rate=evidence.rate,
        latency=latency,
        ledger=lines,
        clock_bound_ns=max((clock.bound_ns for clock in manifest.clocks), default=0),
        batch_share=_batch_share(recording),
    )


def _scan(store: TableStore, context: AnalysisContext) -> None:
    """Everything that reads the recording as a whole."""
    tables = scans(context)
    with ThreadPoolExecutor(len(tables)) as pool:
        # Describing a frame costs as much as a small job, so that too is done side by side.
        writing = [pool.submit(store.write_frame, name, frame) for name, frame in tables.items()]
        try:
            for written in writing:
                written.result()
        except KeyboardInterrupt:  # leaving the pool waits for what is under way, so that must end first
            pool.shutdown(wait=False, cancel_futures=True)
            close_session(context.spark, at_once=True)
            raise
    recording = context.recording
    # A run without inspectors has no table of what they could not see.
    if recording.files(READINGS) or any(peer.role == _INSPECTOR for peer in recording.manifest.peers):
        store.write_rows(columns.READING_GAPS, GAPS_SCHEMA, inspector_gaps(recording.local_files(EVENTS)))
    if recording.files(SPANS):
        store.write_table(columns.SPANS, spans_table(store.files(columns.SPAN_HISTOGRAM)))


def _latencies(store: TableStore, context: AnalysisContext) -> list[Latency]:
    table = latency_table(store.files(columns.HISTOGRAM))
    tables = [table]
    if context.full:
        tables.append(connection_latency_table(store.files(PARTY_HISTOGRAM), context.recording.manifest.connections))
        store.remove(PARTY_HISTOGRAM)
    store.write_table(columns.LATENCY, pa.concat_tables(tables))
    return latencies(table, [*dict.fromkeys(phase.name for phase in context.timeline.phases), OUTSIDE])


def _discrepancies(store: TableStore, context: AnalysisContext, balance: Balance, progress: Progress) -> Discrepancies:
    rows, bits = balance.suspect_rows, block_sums.BLOCK_BITS
    if not rows:
        store.write_rows(columns.RANGES, driver_tables.RANGES_SCHEMA, [])
        return {}
    store.write_rows(_SUSPECTS, driver_tables.SUSPECTS_SCHEMA, driver_tables.suspect_rows(balance.suspects))
    suspects = _read(store, context, _SUSPECTS)
    if rows > WORTH_ROWS:
        progress(f"narrowing {rows:,} rows down")
        store.write_frame(_PIECES, lambda: narrow(context.frames, suspects, context.connections))
        pieces = sum(pq.ParquetFile(file).metadata.num_rows for file in store.files(_PIECES))
        rows, bits, suspects = balance.late + rows_in(pieces), PIECE_BITS, _read(store, context, _PIECES)
    progress(f"looking at {rows:,} rows, message by message")
    store.write_frame(columns.RANGES, lambda: discrepancies(context.frames, suspects, context.connections, rows, bits))
    for name in (_SUSPECTS, _PIECES):
        store.remove(name)
    return read_discrepancies(store.files(columns.RANGES), context.connections)


def _read(store: TableStore, context: AnalysisContext, name: str) -> DataFrame:
    return read_parquet(context.spark, _SUSPECT, [str(file) for file in store.files(name)])


def _rate(balance: Balance, total: Ledger, timeline: Phases, offered: float, kept: ImportedCounts | None) -> Rate:
    measure = timeline.measure
    duration_ns = measure.end_ns - measure.start_ns if measure else 0
    if duration_ns <= 0:
        return Rate(offered=offered, sent=0.0, sustained=0.0, duration_ns=0, bytes_per_second=0.0)
    seconds = duration_ns / 1e9
    if kept is not None:
        return Rate(offered, kept.measured_sent / seconds, kept.measured_received / seconds, duration_ns, 0.0)
    fan_out = total.owed / total.sent if total.owed else 1.0
    return Rate(
        offered=offered,
        sent=balance.total_sent(block_sums.MEASURED) / seconds,
        sustained=balance.total_received(block_sums.MEASURED) / seconds / fan_out,
        duration_ns=duration_ns,
        bytes_per_second=balance.total_received(block_sums.MEASURED_BYTES) / seconds / fan_out,
    )


def _batch_share(recording: Recording) -> float | None:
    """The share of messages on the batch path: each peer's own, weighted by the rows it recorded."""
    shares = {peer.id: peer.statistics.get("batch_share") for peer in recording.manifest.peers}
    rows = [(shares.get(part.peer), part.rows) for part in recording.parts if part.table in {SENT, RECEIVED}]
    known = [(share, count) for share, count in rows if share is not None]
    weight = sum(count for _, count in known)
    return sum(share * count for share, count in known) / weight if weight else None
