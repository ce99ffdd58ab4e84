"""Does a machine that is busy with other work ever make a healthy system fail?"""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import crescendo
from crescendo.pipeline.lake.build import build_lake
from crescendo.processes.child import end_child, launch_child
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.record.summary import read_summary

SPIN = "while True: pass"
EXPERIMENT = {
    "name": "honest",
    "workload": {"senders": 2, "receivers": 2, "rate": 500},
    "phases": {"warmup": 0, "measure": "2s", "drain": "10s"},
}
AT_ONCE = 2  # most of the time of a run is waiting, and the other one makes the machine busier still


@contextmanager
def busy() -> Iterator[None]:
    """A process that takes all the CPU it can get."""
    hog = launch_child([sys.executable, "-c", SPIN], on_fork=die_with_parent(), stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        end_child(hog, 2.0)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("runs", [10, pytest.param(200, marks=pytest.mark.soak)])
def test_honest_runs_beside_other_work_never_fail(runs: int, tmp_path: Path, spark: SparkSession) -> None:
    experiment = crescendo.experiment_from(EXPERIMENT)

    def recorded(_: int) -> Path:
        return crescendo.run(experiment, out=tmp_path / "runs", analyze=False).run_dir

    with busy(), ThreadPoolExecutor(AT_ONCE) as pool:
        run_dirs = list(pool.map(recorded, range(runs)))
    build_lake(run_dirs, tmp_path / "lake", spark, lambda _: None)
    verdicts = [read_summary(run).verdict for run in run_dirs]
    outcomes = Counter(
        f"{verdict.outcome.value} {', '.join(sorted({reason for check in verdict.checks for reason in check.reasons}))}"
        for verdict in verdicts
    )
    print(*(f"{count} × {outcome}" for outcome, count in outcomes.most_common()), sep="\n")
    assert [verdict for verdict in verdicts if verdict.outcome is crescendo.Outcome.FAIL] == []
