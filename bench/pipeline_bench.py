"""What does the pipeline cost, and how does that scale with the number of messages?

Generates recordings of 1, 10 and 100 million messages and analyses each in a process of its own: the core (histograms
by second, ledger, throughput) cold and warm, the full set, and every table by itself; with the peak memory of the JVM
and of the driver. DuckDB then computes the core on the same files. Absolute numbers hold for this machine only; ratios
and slopes are more general. CRESCENDO_BENCH_MESSAGES=1000000 (or several, with commas) sets other sizes.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import psutil
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from bench.generate_recording import START_NS, Plan, generate
from bench.results import compare, keep
from crescendo.pipeline.columns import BLOCK_SUMS
from crescendo.pipeline.context import AnalysisContext, open_context
from crescendo.pipeline.job import analyze, tabulate
from crescendo.pipeline.latency.second_histogram import latency_histogram
from crescendo.pipeline.ledger.balance import read_balance
from crescendo.pipeline.ledger.block_sums import block_sums
from crescendo.pipeline.ledger.ledger import ledger
from crescendo.pipeline.source.ingest import readable_recording
from crescendo.pipeline.source.run_slices import NO_SLICES
from crescendo.pipeline.spark.class_archive import archive_options
from crescendo.pipeline.spark.java import use_java
from crescendo.pipeline.spark.session import close_session, open_session
from crescendo.pipeline.storage.table_store import TableStore
from crescendo.pipeline.traffic.throughput import throughput
from crescendo.record.manifest import read_manifest
from crescendo.record.tables import LATENCY_HISTOGRAM, THROUGHPUT

MESSAGES = (1_000_000, 10_000_000, 100_000_000)
SIZES = "CRESCENDO_BENCH_MESSAGES"
WANTED = {10_000_000: 4.0, 100_000_000: 2.5}
"""How many times as long as DuckDB, at most."""

FLAWED_MESSAGES = 2_000_000
SHORT = Plan(messages=50_000, rate=1_000.0)
"""Ten seconds at 5,000 messages per second."""

Measured = dict[str, Any]


@contextmanager
def timed(what: str, seconds: dict[str, float]) -> Iterator[None]:
    """Measure wall time, and the CPU time of this process and its JVM, which is steadier on a shared machine."""
    start, cpu = time.perf_counter(), _cpu_seconds()
    yield
    seconds[what], seconds[f"{what}, cpu"] = time.perf_counter() - start, _cpu_seconds() - cpu


def _cpu_seconds() -> float:
    me = psutil.Process()
    times = [process.cpu_times() for process in (me, *me.children(recursive=True))]
    return float(sum(t.user + t.system for t in times))


def main(*sizes: int) -> None:
    sizes = sizes or tuple(int(float(text)) for text in os.environ.get(SIZES, "").split(",") if text) or MESSAGES
    use_java()
    warm: list[tuple[int, float]] = []
    with tempfile.TemporaryDirectory(prefix="crescendo-bench-") as directory:
        for messages in sizes:
            run_dir = _generated(Path(directory) / str(messages), Plan(messages))
            found = _in_own_process("--measure", run_dir)
            with timed("duckdb", found["seconds"]):
                _duckdb(run_dir)
            _print(messages, sum(part.octets for part in read_manifest(run_dir).files), found)
            warm.append((messages, found["seconds"]["core, warm"]))
        flawed = _in_own_process(
            "--flawed", _generated(Path(directory) / "flawed", Plan(FLAWED_MESSAGES, lost=500, duplicated=500))
        )
        short = _in_own_process("--short", _generated(Path(directory) / "short", SHORT))["seconds"]
    print(f"{FLAWED_MESSAGES:,} messages, every block suspect: ", end="")
    print(f"{flawed['seconds']['flawed']:.1f} s ({flawed['seconds']['flawed, cpu']:.1f} CPU s), in a cold JVM")
    print(f"a short run, {SHORT.messages:,} messages, in a process of its own:", end=" ")
    print(f"start {short['start']:.2f} s, analysis {short['analysis']:.2f} s ({short['analysis, cpu']:.2f} CPU s)")
    if len(warm) > 1:
        slope, constant = np.polyfit(*np.array(warm).T, 1)
        print(f"cost against size, core, warm: {slope * 1e6:.2f} s per million messages, {constant:.1f} s at any size")


def _generated(run_dir: Path, plan: Plan) -> Path:
    run_dir.mkdir()
    generate(run_dir, plan)
    return run_dir


def _print(messages: int, octets: int, found: Measured) -> None:
    seconds, memory = found["seconds"], found["megabytes"]

    def line(what: str, key: str, rest: str = "") -> None:
        print(f"  {what:<40} {seconds[key]:8.2f} s {seconds[f'{key}, cpu']:8.2f} CPU s   {rest}".rstrip())

    def speed(key: str) -> str:
        return f"{messages / seconds[key] / 1e6:.2f} M messages per second"

    print(f"pipeline: {messages:,} messages, sent, settled and received, in {octets / 1e6:,.0f} MB")
    line("session start", "start", f"class archive: {'yes' if archive_options() else 'no'}")
    line("check hashes and footers", "check")
    for what in ("core, cold", "core, warm", "full"):
        line(what, what, speed(what))
    for table in found["tables"]:
        line(f"  alone: {table.lstrip('.')}", table)  # a leading dot marks an intermediate table
    what = f"{messages:,} messages, the core, warm"
    pair = (seconds["core, warm, cpu"], seconds["duckdb, cpu"])
    compare("pipeline", what, "CPU s", "DuckDB", [pair], wanted=WANTED.get(messages))
    keep("pipeline", f"peak memory of the JVM, {messages:,} messages, full set", "MB", memory["jvm, full"])
    ratio = seconds["core, warm"] / seconds["duckdb"]
    line("the core by DuckDB", "duckdb", f"Spark, warm, takes {ratio:.1f} times as long")
    for when in ("core", "full"):
        jvm, driver = memory[f"jvm, {when}"], memory[f"driver, {when}"]
        print(f"  peak memory, {when:<27} {jvm:8,.0f} MB JVM, {driver:,.0f} MB driver")


# -- in a process of its own ----------------------------------------------------------------------------------------


def _in_own_process(what: str, run_dir: Path) -> Measured:
    command = [sys.executable, "-m", "bench.pipeline_bench", what, str(run_dir)]
    answer = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    found: Measured = json.loads(answer.stdout)
    return found


def _measure(run_dir: Path, what: str) -> Measured:
    seconds: dict[str, float] = {}
    megabytes: dict[str, float] = {}
    tables: list[str] = []
    use_java()
    with timed("start", seconds):
        spark = open_session()
    try:
        if what == "--short":
            with timed("analysis", seconds):
                analyze(run_dir, spark, lambda _: None)
        elif what == "--flawed":
            with timed("flawed", seconds):
                total = analyze(run_dir, spark, lambda _: None).total
            assert (total.lost, total.duplicated) == (500, 500)
        else:
            tables = _costs(run_dir, spark, seconds, megabytes)
    finally:
        close_session(spark)
    return {"seconds": seconds, "megabytes": megabytes, "tables": tables}


def _costs(run_dir: Path, spark: SparkSession, seconds: dict[str, float], megabytes: dict[str, float]) -> list[str]:
    def peak(when: str) -> None:
        me = psutil.Process()
        jvm = next(child for child in me.children() if child.name() == "java")
        megabytes[f"jvm, {when}"], megabytes[f"driver, {when}"] = _peak_megabytes(jvm), _peak_megabytes(me)

    with timed("check", seconds):
        recording = readable_recording(run_dir)
    for what in ("core, cold", "core, warm"):
        with timed(what, seconds):
            _core(open_context(recording, spark, full=False), TableStore(run_dir))
    peak("core")
    work = open_context(recording, spark, full=True)
    with timed("full", seconds):
        total = tabulate(work, TableStore(run_dir), lambda _: None).total
    assert total.delivered == total.owed == total.settled
    peak("full")
    store = TimedTableStore(run_dir, seconds)
    tabulate(work, store, lambda _: None)
    return store.written


def _core(work: AnalysisContext, store: TableStore) -> None:
    """The part that every analysis starts with, and that DuckDB computes too."""
    frames, timeline, parties = work.frames, work.timeline, work.connections
    tables: dict[str, Callable[[], DataFrame]] = {
        LATENCY_HISTOGRAM.name: lambda: latency_histogram(
            frames.received, frames.settled, timeline, parties, NO_SLICES
        ),
        BLOCK_SUMS: lambda: block_sums(frames, timeline, parties),
        THROUGHPUT.name: lambda: throughput(frames.sent, frames.received, timeline),
    }
    with ThreadPoolExecutor(len(tables)) as pool:
        for written in [pool.submit(store.write_frame, name, frame) for name, frame in tables.items()]:
            written.result()
    total = ledger(read_balance(store.files(BLOCK_SUMS), parties), {}, parties)[0]
    assert total.delivered == total.owed == total.settled


class TimedTableStore(TableStore):
    """Writes one table at a time, and records its cost."""

    def __init__(self, run_dir: Path, seconds: dict[str, float]) -> None:
        super().__init__(run_dir)
        self.written: list[str] = []
        self._seconds = seconds
        self._lock = threading.Lock()
        self._last, self._last_cpu = time.perf_counter(), _cpu_seconds()

    def write_frame(self, name: str, frame: Callable[[], DataFrame]) -> None:
        with self._lock:
            super().write_frame(name, frame)
            self._record_cost(name)

    def write_table(self, name: str, table: pa.Table) -> None:
        with self._lock:
            super().write_table(name, table)
            self._record_cost(name)

    def _record_cost(self, name: str) -> None:
        now, cpu = time.perf_counter(), _cpu_seconds()
        self._seconds[name], self._seconds[f"{name}, cpu"] = now - self._last, cpu - self._last_cpu
        self._last, self._last_cpu = now, cpu
        self.written.append(name)


def _peak_megabytes(process: psutil.Process) -> float:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


def _duckdb(run_dir: Path) -> None:
    """Histograms by second, block ledger and throughput, on the same number of cores."""
    database = duckdb.connect()

    def histogram(table: str, at: str, start: str, end: str, weight: str) -> None:
        database.execute(
            f"""SELECT ({at} - {START_NS}) // 1000000000 AS second,
            greatest(floor(log2(greatest(v, 1)))::INT - 8, 0) AS e, e * 256 + (v >> e) AS bucket,
            sum({weight}), sum(v * {weight}), min(v), max(v)
            FROM (SELECT *, {end} - {start} AS v FROM '{run_dir}/{table}/*.parquet') GROUP BY ALL"""  # noqa: S608
        ).fetchall()

    histogram("received", "intended_ns", "intended_ns", "received_ns", "1")
    histogram("received", "intended_ns", "sent_ns", "received_ns", "1")
    histogram("settled", "sent_ns", "sent_ns", "settled_ns", "(last_seq - first_seq + 1)")
    for table, connection, at in (("sent", "sender", "sent_ns"), ("received", "receiver", "received_ns")):
        source = f"'{run_dir}/{table}/*.parquet'"
        database.execute(
            f"SELECT sender, seq >> 16, count(*), sum(seq & 65535), bit_xor(hash(seq)) FROM {source} GROUP BY ALL"  # noqa: S608
        ).fetchall()
        database.execute(
            f"SELECT ({at} - {START_NS}) // 1000000000, {connection}, count(*), sum(size) FROM {source} GROUP BY ALL"  # noqa: S608
        ).fetchall()


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1].startswith("--"):
        print(json.dumps(_measure(Path(sys.argv[2]), sys.argv[1])))
    else:
        main(*(int(float(number)) for number in sys.argv[1:]))
