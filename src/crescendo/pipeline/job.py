"""How does a recording become tables and a verdict?

The jobs that read the recording run side by side: while one is planned or compiled, another computes. What follows
reads their small results. The summary is written last, so a run that has one has all its tables. Decides nothing.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from crescendo.model.errors import LostError
from crescendo.model.schedule import offered
from crescendo.pipeline import accounts, columns, results
from crescendo.pipeline.balance import Balance, read_balance
from crescendo.pipeline.discrepancies import discrepancies
from crescendo.pipeline.evidence import Evidence
from crescendo.pipeline.gaps import GAPS_SCHEMA, gaps
from crescendo.pipeline.histogram import latency_histogram
from crescendo.pipeline.ingest import Frames, frame_of, frames_of, read_parquet, readable_recording
from crescendo.pipeline.latency import latencies
from crescendo.pipeline.ledger import Discrepancies, ledger, read_discrepancies
from crescendo.pipeline.messages import MEASURE, OUTSIDE, Timeline, timeline_of
from crescendo.pipeline.parties import Parties, experiment_of, parties_of
from crescendo.pipeline.readings import metric_columns, reading_summary, readings
from crescendo.pipeline.tables import Shelf
from crescendo.pipeline.throughput import throughput
from crescendo.pipeline.verdicts import verdict_of
from crescendo.record.manifest import State
from crescendo.record.reader import Recording
from crescendo.record.schema import EVENTS, READINGS, RECEIVED, SENT
from crescendo.record.summary import SUMMARY, Ledger, Rate, Summary, write_summary

Progress = Callable[[str], None]
Tables = dict[str, Callable[[], DataFrame]]

_INSPECTOR = "inspector"
_ACCOUNTS, _SUSPECTS = ".accounts", ".suspects"  # on the way to the ledger; removed when it is written
_SUSPECT = f"{columns.SUBSCRIPTION} INT, {columns.SENDER} INT, {columns.BLOCK} BIGINT"


def analyze(run_dir: Path, spark: SparkSession, progress: Progress) -> Summary:
    """Write `tables/` and `summary.json` of a run. Raises LostError when Spark gives up."""
    progress("checking the recording")
    recording = readable_recording(run_dir)
    (run_dir / SUMMARY).unlink(missing_ok=True)
    try:
        summary = _analysed(recording, spark, progress)
    except (PySparkException, Py4JError) as err:
        raise LostError(f"the analysis of {run_dir} did not finish: {str(err).splitlines()[0]}") from err
    write_summary(run_dir, summary)
    return summary


def _analysed(recording: Recording, spark: SparkSession, progress: Progress) -> Summary:
    manifest = recording.manifest
    parties, timeline = parties_of(manifest), timeline_of(manifest)
    shelf = Shelf(recording.path)
    frames = frames_of(spark, recording)
    progress(f"counting {recording.rows(SENT):,} messages sent and {recording.rows(RECEIVED):,} received")
    _write_side_by_side(
        shelf,
        {
            columns.HISTOGRAM: lambda: latency_histogram(frames.received, frames.settled, timeline, parties),
            _ACCOUNTS: lambda: accounts.accounts(frames, timeline, parties),
            columns.THROUGHPUT: lambda: throughput(frames.sent, frames.received, timeline),
            **_inside(shelf, recording, spark, timeline),
        },
    )
    balance = read_balance(shelf.files(_ACCOUNTS), parties)
    shelf.remove(_ACCOUNTS)
    found = _discrepancies(shelf, spark, frames, balance, parties, progress)
    progress("judging")
    lines = ledger(balance, found, parties)
    phases = [*dict.fromkeys(phase.name for phase in timeline.phases), OUTSIDE]
    latency = latencies(shelf.files(columns.HISTOGRAM), phases)
    evidence = Evidence(
        manifest=manifest,
        experiment=experiment_of(manifest),
        damaged=recording.damaged,
        unlisted=balance.unlisted,
        total=lines[0],
        rate=_rate(balance, lines[0], timeline, offered(experiment_of(manifest))),
        latency={row.kind: row for row in latency if row.phase == MEASURE},
    )
    validity, verdict = verdict_of(evidence)
    shelf.write_rows(columns.LATENCY, results.LATENCY_SCHEMA, results.latency_rows(latency))
    shelf.write_rows(columns.LEDGER, results.LEDGER_SCHEMA, results.ledger_rows(lines))
    shelf.write_rows(columns.CHECKS, results.CHECKS_SCHEMA, results.check_rows(verdict.checks))
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


def _inside(shelf: Shelf, recording: Recording, spark: SparkSession, timeline: Timeline) -> Tables:
    """The tables of what inspectors saw. A run without inspectors has none of them, and pays for none."""
    run, files = recording.manifest.run, recording.files(READINGS)
    if not files and all(peer.role != _INSPECTOR for peer in recording.manifest.peers):
        return {}
    shelf.write_rows(columns.READING_GAPS, GAPS_SCHEMA, gaps(recording.files(EVENTS)))
    if not files:
        return {}
    recorded = frame_of(spark, recording, READINGS)
    return {
        columns.READINGS: lambda: readings(recorded, run, metric_columns(files)),
        columns.READING_SUMMARY: lambda: reading_summary(recorded, run, timeline),
    }


def _write_side_by_side(shelf: Shelf, frames: Tables) -> None:
    with ThreadPoolExecutor(len(frames)) as pool:
        # Describing a frame costs as much as a small job, so that too is done side by side.
        for written in [pool.submit(shelf.write_frame, name, frame) for name, frame in frames.items()]:
            written.result()


def _discrepancies(
    shelf: Shelf, spark: SparkSession, frames: Frames, balance: Balance, parties: Parties, progress: Progress
) -> Discrepancies:
    if not balance.suspect_rows:
        shelf.write_rows(columns.RANGES, results.RANGES_SCHEMA, [])
        return {}
    progress(f"looking at {balance.suspect_rows:,} rows, message by message")
    shelf.write_rows(_SUSPECTS, results.SUSPECTS_SCHEMA, results.suspect_rows(balance.suspects))
    suspects = read_parquet(spark, _SUSPECT, [str(file) for file in shelf.files(_SUSPECTS)])
    shelf.write_frame(columns.RANGES, lambda: discrepancies(frames, suspects, parties, balance.suspect_rows))
    shelf.remove(_SUSPECTS)
    return read_discrepancies(shelf.files(columns.RANGES), parties)


def _rate(balance: Balance, total: Ledger, timeline: Timeline, offered: float) -> Rate:
    measure = timeline.measure
    duration_ns = measure.end_ns - measure.start_ns if measure else 0
    if duration_ns <= 0:
        return Rate(offered=offered, sent=0.0, sustained=0.0, duration_ns=0, bytes_per_second=0.0)
    seconds = duration_ns / 1e9
    fan_out = total.owed / total.sent if total.owed else 1.0
    return Rate(
        offered=offered,
        sent=balance.total_sent(accounts.MEASURED) / seconds,
        sustained=balance.total_received(accounts.MEASURED) / seconds / fan_out,
        duration_ns=duration_ns,
        bytes_per_second=balance.total_received(accounts.MEASURED_BYTES) / seconds / fan_out,
    )


def _batch_share(recording: Recording) -> float | None:
    """The share of messages on the batch path: each peer's own, weighted by the rows it recorded."""
    shares = {peer.id: peer.statistics.get("batch_share") for peer in recording.manifest.peers}
    rows = [(shares.get(part.peer), part.rows) for part in recording.parts if part.table in {SENT, RECEIVED}]
    known = [(share, count) for share, count in rows if share is not None]
    weight = sum(count for _, count in known)
    return sum(share * count for share, count in known) / weight if weight else None
