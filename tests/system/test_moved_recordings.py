"""Does a recording mean the same on another machine, to another user, without the files of its experiment?"""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from crescendo.exporters.maestro.export import export_maestro
from crescendo.pipeline.job import analyze
from crescendo.record.manifest import read_manifest
from crescendo.report.page import write_report
from table_hashes import hashes
from whole_runs import Launcher

STRANGER = 65_534
LINES = b"a\nfive!\n\n"
ARRIVALS_PER_S, SECONDS = 400, 3


@pytest.fixture
def recorded(launch: Launcher, experiment: Callable[..., Path], tmp_path: Path) -> Path:
    """A run that sends the lines of a file at the times in another; both files are deleted after it."""
    lines, trace = tmp_path / "lines.txt", tmp_path / "trace.txt"
    lines.write_bytes(LINES)
    trace.write_text("".join(f"{number / ARRIVALS_PER_S}\n" for number in range(ARRIVALS_PER_S * SECONDS)))
    path = experiment(
        workload={"size": {"file": str(lines)}},
        profile={"kind": "replay", "file": str(trace)},
        phases={"warmup": "500ms", "measure": "2s", "drain": "5s"},
    )
    session = launch.without_analysis(path)
    assert session.finish().stdout == "sealed\n"
    lines.unlink()
    trace.unlink()
    return session.run_dir()


@pytest.fixture
def stranger_home() -> Iterator[Path]:
    """A directory that another user can reach: those of pytest are private."""
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory)


def analyze_as_a_stranger(run_dir: Path) -> None:
    """Analyse in a separate process; as root, with the files of another user and as that user."""
    command = [sys.executable, "-m", "crescendo.cli.main", "analyze", str(run_dir)]
    if os.getuid() == 0:
        for path in (run_dir.parent, *run_dir.parent.rglob("*")):
            os.chown(path, STRANGER, STRANGER)
        # Only to read: this Python may be in a directory of root's.
        capability = ["--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"]
        command = ["setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups", *capability, *command]
    env = os.environ | {"HOME": str(run_dir.parent), "XDG_STATE_HOME": str(run_dir.parent / "state")}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=170, env=env, cwd=run_dir.parent, check=False
    )
    assert "VERDICT" in done.stdout, done.stderr


def test_a_recording_that_was_moved_gives_the_same_tables(
    recorded: Path, spark: SparkSession, tmp_path: Path, stranger_home: Path
) -> None:
    summary = analyze(recorded, spark, lambda _: None)
    assert summary.rate.offered == pytest.approx(2 * ARRIVALS_PER_S, rel=0.01)  # two senders replay the whole trace
    expected = hashes(recorded / "tables")
    assert len(expected) > 5

    manifest = read_manifest(recorded)
    kept = {Path(item.path).name: item for item in manifest.inputs}
    assert kept["lines.txt"].sha256 == hashlib.sha256(LINES).hexdigest()
    assert kept["lines.txt"].derived == {"lines": 3, "shortest_bytes": 0, "longest_bytes": 5, "line_bytes": 6}
    assert kept["trace.txt"].derived["arrivals"] == ARRIVALS_PER_S * SECONDS
    assert (recorded / kept["lines.txt"].kept).read_bytes() == LINES

    with tarfile.open(tmp_path / "run.tar", "w") as archive:
        archive.add(recorded, "run", filter=lambda item: None if "/tables" in item.name else item)
    shutil.rmtree(recorded)
    elsewhere = stranger_home
    with tarfile.open(tmp_path / "run.tar") as archive:
        archive.extractall(elsewhere, filter="data")
    moved = (elsewhere / "run").rename(elsewhere / "renamed")
    analyze_as_a_stranger(moved)
    assert hashes(moved / "tables") == expected
    assert export_maestro(moved, tmp_path / "exported")
    assert "offered" in write_report(moved).read_text()
