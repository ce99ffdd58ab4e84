"""How fast is the pipeline, and where does the time go?

Generates a recording, analyses it in a fresh JVM and again in a warm one, times every table by itself, and lets DuckDB
count the same on the same files: absolute numbers are this machine's, the ratios carry further. A short run is
analysed in a process of its own, because there everything is cold.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import psutil
from pyspark.sql import DataFrame, SparkSession

from bench.generate_recording import START_NS, Plan, generate
from crescendo.pipeline.accounts import accounts
from crescendo.pipeline.archive import archive_options
from crescendo.pipeline.histogram import latency_histogram
from crescendo.pipeline.ingest import frames_of, readable_recording
from crescendo.pipeline.java import use_java
from crescendo.pipeline.job import analyze
from crescendo.pipeline.messages import timeline_of
from crescendo.pipeline.parties import parties_of
from crescendo.pipeline.session import close_session, open_session
from crescendo.pipeline.tables import Shelf
from crescendo.pipeline.throughput import throughput

SHORT = Plan(messages=50_000, rate=1_000.0)
"""Ten seconds at 5,000 messages a second."""


@contextmanager
def timed(what: str, seconds: dict[str, float]) -> Iterator[None]:
    """Wall time, and beside it the CPU time of this process and its JVM: that is steadier on a shared machine."""
    start, cpu = time.perf_counter(), _cpu_seconds()
    yield
    seconds[what], seconds[f"{what}, cpu"] = time.perf_counter() - start, _cpu_seconds() - cpu


def _cpu_seconds() -> float:
    me = psutil.Process()
    times = [process.cpu_times() for process in (me, *me.children(recursive=True))]
    return float(sum(t.user + t.system for t in times))


def main(messages: int = 10_000_000) -> None:
    use_java()
    with tempfile.TemporaryDirectory(prefix="crescendo-bench-") as directory:
        clean, flawed = Path(directory) / "clean", Path(directory) / "flawed"
        clean.mkdir()
        flawed.mkdir()
        generate(clean, Plan(messages))
        generate(flawed, Plan(messages // 5, lost=500, duplicated=500))
        seconds = _spark(clean, flawed)
        with timed("duckdb", seconds):
            _duckdb(clean)
        short = _short(Path(directory) / "short")

    def line(what: str, key: str, rest: str = "") -> None:
        print(f"  {what:<38} {seconds[key]:6.2f} s {seconds[f'{key}, cpu']:7.2f} CPU s   {rest}".rstrip())

    def speed(key: str, count: int) -> str:
        return f"{count / seconds[key] / 1e6:.2f} M messages a second"

    print(f"pipeline: {messages:,} messages, sent, settled and received")
    line("session start", "start", f"class archive: {'yes' if archive_options() else 'no'}")
    for what in ("first analysis", "second analysis"):
        line(what, what, speed(what, messages))
    for what in ("check hashes and footers", "latency_histogram", "ledger accounts", "throughput"):
        line(f"  alone, warm: {what}", what)
    line(f"{messages // 5:,}, every block suspect", "flawed", speed("flawed", messages // 5))
    ratio = seconds["second analysis"] / seconds["duckdb"]
    line("the same counts by DuckDB", "duckdb", f"Spark, warm, takes {ratio:.1f} times as long")
    print(f"a short run, {SHORT.messages:,} messages, in a process of its own:", end=" ")
    print(f"start {short['start']:.2f} s, analysis {short['analysis']:.2f} s ({short['analysis, cpu']:.2f} CPU s)")


def _spark(clean: Path, flawed: Path) -> dict[str, float]:
    seconds: dict[str, float] = {}
    with timed("start", seconds):
        spark = open_session()
    try:
        for what in ("first analysis", "second analysis"):
            with timed(what, seconds):
                total = analyze(clean, spark, lambda _: None).total
            assert total.delivered == total.owed == total.settled
        _tables(clean, spark, seconds)
        with timed("flawed", seconds):
            total = analyze(flawed, spark, lambda _: None).total
        assert (total.lost, total.duplicated) == (500, 500)
    finally:
        close_session(spark)
    return seconds


def _tables(run_dir: Path, spark: SparkSession, seconds: dict[str, float]) -> None:
    with timed("check hashes and footers", seconds):
        recording = readable_recording(run_dir)
    parties, timeline = parties_of(recording.manifest), timeline_of(recording.manifest)
    frames, shelf = frames_of(spark, recording), Shelf(run_dir)
    tables: dict[str, Callable[[], DataFrame]] = {
        "latency_histogram": lambda: latency_histogram(frames.received, frames.settled, timeline, parties),
        "ledger accounts": lambda: accounts(frames, timeline, parties),
        "throughput": lambda: throughput(frames.sent, frames.received, timeline),
    }
    for name, frame in tables.items():
        with timed(name, seconds):
            shelf.write_frame(name.replace(" ", "_"), frame)


def _duckdb(run_dir: Path) -> None:
    """Histograms by second, block ledger and throughput, on as many cores."""
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


def _short(run_dir: Path) -> dict[str, float]:
    run_dir.mkdir()
    generate(run_dir, SHORT)
    command = [sys.executable, "-m", "bench.pipeline_bench", "--short", str(run_dir)]
    answer = subprocess.run(command, capture_output=True, check=True)
    seconds: dict[str, float] = json.loads(answer.stdout)
    return seconds


def _analyse_short(run_dir: Path) -> None:
    seconds: dict[str, float] = {}
    use_java()
    with timed("start", seconds):
        spark = open_session()
    with timed("analysis", seconds):
        analyze(run_dir, spark, lambda _: None)
    close_session(spark)
    print(json.dumps(seconds))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--short"]:
        _analyse_short(Path(sys.argv[2]))
    else:
        main(*(int(number) for number in sys.argv[1:2]))
