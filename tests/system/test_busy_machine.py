"""Does a machine that is busy with other work ever make a healthy system fail?"""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
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
    "phases": {"warmup": "500ms", "measure": "2s", "drain": "10s"},
}


@contextmanager
def busy() -> Iterator[None]:
    """Two processes that take all the CPU they can get."""
    hogs = [
        launch_child([sys.executable, "-c", SPIN], on_fork=die_with_parent(), stdout=subprocess.DEVNULL)
        for _ in range(2)
    ]
    try:
        yield
    finally:
        for hog in hogs:
            end_child(hog, 2.0)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("runs", [pytest.param(10, marks=pytest.mark.quiet), pytest.param(200, marks=pytest.mark.soak)])
def test_honest_runs_beside_other_work_never_fail(runs: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    experiment = crescendo.experiment_from(EXPERIMENT)
    with busy():
        recorded = [crescendo.run(experiment, out=tmp_path / "runs", analyze=False).run_dir for _ in range(runs)]
    spark: SparkSession = request.getfixturevalue("spark")  # only now: what is measured is over
    build_lake(recorded, tmp_path / "lake", spark, lambda _: None)
    verdicts = [read_summary(run).verdict for run in recorded]
    outcomes = Counter(
        f"{verdict.outcome.value} {', '.join(sorted({reason for check in verdict.checks for reason in check.reasons}))}"
        for verdict in verdicts
    )
    assert [verdict for verdict in verdicts if verdict.outcome is crescendo.Outcome.FAIL] == [], outcomes
