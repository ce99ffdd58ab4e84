"""How long does a person wait for a verdict, before the first message and after the last?

Times `crescendo analyze` in a cold process, further runs of one call, and a whole `crescendo run`: from the command to
the first message, and from the last message to the printed verdict. The yardstick, taken in the same measurement, is a
bare default Spark session with eight tiny grouped counts. Needs a quiet machine; CRESCENDO_BENCH_TURNS sets how often
each is measured (the median counts). Then many small runs in one call against one of them alone, in CPU seconds, which
are steadier on a shared machine.
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.dataset as ds
from msgspec.structs import replace

from bench.generate_recording import Plan, generate
from bench.results import compare, keep
from crescendo.pipeline.spark.java import use_java
from crescendo.record.manifest import write_manifest

TURNS = "CRESCENDO_BENCH_TURNS"
SIZES = (14_000, 1_000_000)
FURTHER = 4
"""Runs of one call; the first one pays for the start."""

MANY, MANY_MESSAGES = 64, 10_000
WANTED_COLD, WANTED_FURTHER_S, WANTED_MANY = 0.6, 1.5, 20

BARE = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
for number in range(2, 10):
    spark.range(1000).selectExpr(f"id % {number} AS key").groupBy("key").count().collect()
spark.stop()
"""
EXPERIMENT = """
name: verdict
system: {kind: loopback}
workload: {address: 'queue://verdict-{run}', protocol: amqp10, senders: 2, receivers: 2, size: 256, rate: 1000}
phases: {warmup: 1s, measure: 6s, drain: 10s}
checks: {lost: 0}
"""


def main() -> None:
    use_java()
    turns = int(os.environ.get(TURNS, "3"))
    with tempfile.TemporaryDirectory(prefix="crescendo-bench-") as directory:
        folder = Path(directory)
        (folder / "experiment.yml").write_text(EXPERIMENT)
        runs = {
            messages: [_generated(folder / f"{messages}-{n}", messages, n) for n in range(FURTHER)]
            for messages in SIZES
        }
        bare, cold, together, waits = [], {size: [] for size in SIZES}, {size: [] for size in SIZES}, []  # type: ignore[var-annotated]
        for turn in range(turns):  # in turns, so that a slow minute of the machine touches all of them
            bare.append(_seconds([sys.executable, "-c", BARE]))
            for size in SIZES:
                cold[size].append(_seconds(_crescendo("analyze", str(runs[size][0]))))
                lake = ["--lake", str(folder / f"lake-{size}-{turn}")]
                for run in runs[size]:
                    (run / "analysis.json").unlink(missing_ok=True)  # so that no run is taken as it is
                command = _crescendo("analyze", *map(str, runs[size]), *lake)
                together[size].append(_seconds(command, f"{FURTHER} computed, 0 unchanged, 0 set aside"))
            waits.append(_waits(folder))
        many = [_generated(folder / f"many-{n}", MANY_MESSAGES, n) for n in range(MANY)]
        alone_cpu = statistics.median(_cpu_seconds(_crescendo("analyze", str(many[0]))) for _ in range(turns))
        (many[0] / "analysis.json").unlink()
        lake = ["--lake", str(folder / "lake-many")]
        many_cpu = _cpu_seconds(
            _crescendo("analyze", *map(str, many), *lake), f"{MANY} computed, 0 unchanged, 0 set aside"
        )
    yardstick = statistics.median(bare)
    _keep(bare, cold, together, waits)
    print(f"a bare default session with eight tiny grouped counts: {yardstick:.2f} s")
    for size in SIZES:
        alone, further = statistics.median(cold[size]), statistics.median(together[size])
        print(f"crescendo analyze, {size:,} messages, cold: {alone:.2f} s, {alone / yardstick:.2f} of that", end="; ")
        print(f"each further run of one call: {(further - alone) / (FURTHER - 1):.2f} s")
    before, after = (statistics.median(column) for column in zip(*waits, strict=True))
    _print_many(many_cpu, alone_cpu)
    print(f"crescendo run, 14,000 messages: {before:.2f} s before the first message, {after:.2f} s after the last")


def _keep(
    bare: list[float],
    cold: dict[int, list[float]],
    together: dict[int, list[float]],
    waits: list[tuple[float, float]],
) -> None:
    for size in SIZES:
        what, pairs = f"analyze, {size:,} messages, cold", list(zip(cold[size], bare, strict=True))
        compare("verdict", what, "s", "a bare session with eight counts", pairs, wanted=WANTED_COLD)
        further = (statistics.median(together[size]) - statistics.median(cold[size])) / (FURTHER - 1)
        keep("verdict", f"each further run of {size:,} messages in one call", "s", further, most=WANTED_FURTHER_S)
    keep("verdict", "from the last message to the verdict", "s", statistics.median(w[1] for w in waits), most=3.0)
    keep("verdict", "waiting before and after messages", "s", statistics.median(map(sum, waits)), most=6.0)


def _print_many(many: float, alone: float) -> None:
    further = (many - alone) / (MANY - 1)
    what = f"{MANY} runs of {MANY_MESSAGES:,} messages in one call"
    compare("verdict", what, "CPU s", "one by one", [(many, alone * MANY)], wanted=1 / WANTED_MANY)
    print(
        f"{MANY} runs of {MANY_MESSAGES:,} messages in one call: {many:.1f} CPU s; one alone: {alone:.1f} CPU s",
        end="; ",
    )
    print(f"one by one costs {alone * MANY / many:.1f} times as much; each further run {further:.2f} CPU s")


def _generated(run_dir: Path, messages: int, seed: int) -> Path:
    run_dir.mkdir()
    manifest = generate(run_dir, Plan(messages, rate=1_000.0 if messages < 100_000 else 100_000.0, seed=seed + 1))
    write_manifest(run_dir, replace(manifest, run=run_dir.name))  # runs of one lake have different names
    return run_dir


def _crescendo(*arguments: str) -> list[str]:
    return [str(Path(sys.executable).with_name("crescendo")), *arguments]


def _seconds(command: list[str], printed: str = "") -> float:
    """How long a command takes. One that does not print this did something else, and its time means nothing."""
    start = time.perf_counter()
    # A verdict other than pass has another exit code; a recording without load of its own may be invalid.
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in {0, 1, 3} or "Traceback" in done.stderr or printed not in done.stdout:
        raise RuntimeError(done.stdout + done.stderr)
    return time.perf_counter() - start


def _cpu_seconds(command: list[str], printed: str = "") -> float:
    """How much CPU time a command and its children take."""

    def used() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = used()
    _seconds(command, printed)
    return used() - before


def _waits(folder: Path) -> tuple[float, float]:
    """Seconds before the first message and after the last one, until the verdict is printed."""
    out = folder / f"run-{time.monotonic_ns()}"
    start_ns, verdict_ns = time.monotonic_ns(), 0
    command = _crescendo("run", str(folder / "experiment.yml"), "--out", str(out))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        for line in process.stdout or ():
            if line.startswith("VERDICT"):
                verdict_ns = time.monotonic_ns()
    (run_dir,) = out.iterdir()
    sent, received = (ds.dataset(run_dir / table, format="parquet") for table in ("sent", "received"))
    first_ns = pc.min(sent.to_table(columns=["sent_ns"])["sent_ns"]).as_py()
    last_ns = pc.max(received.to_table(columns=["received_ns"])["received_ns"]).as_py()
    return (first_ns - start_ns) / 1e9, (verdict_ns - last_ns) / 1e9


if __name__ == "__main__":
    main()
