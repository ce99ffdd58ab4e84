"""Which recordings does `runs prune` keep, and does it delete nothing else?"""

import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from crescendo.cli.main import app
from crescendo.model.errors import ConfigError
from crescendo.model.verdict import Outcome
from crescendo.record.run_links import link_run

SAMPLE = Path(__file__).parents[1] / "samples" / "version-0.1" / "baseline"


def recorded(runs: Path, name: str, number: int, outcome: str = "pass", **changes: Any) -> Path:
    """The sample recording as another run."""
    run = runs / name
    shutil.copytree(SAMPLE, run)
    manifest = json.loads((run / "manifest.json").read_text())
    manifest |= {"run": name, "started_ns": manifest["started_ns"] + number, **changes}
    manifest["experiment"]["name"] = name.partition("-")[0]
    (run / "manifest.json").write_text(json.dumps(manifest))
    summary = json.loads((run / "summary.json").read_text())
    summary["verdict"]["outcome"] = outcome
    (run / "summary.json").write_text(json.dumps(summary))
    return run


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ten good runs of one experiment and one of another; one that failed, one in progress; and other things."""
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "runs"
    for number in range(10):
        recorded(place, f"many-{number}", number)
    recorded(place, "single-0", 0)
    recorded(place, "many-failed", -2, "fail")
    recorded(place, "many-now", -1, state="incomplete", reason="")
    (place / "notes").mkdir()
    (place / "notes" / "mine.txt").write_text("keep me")
    (place / "elsewhere").symlink_to(tmp_path)
    return place


def call(*words: str) -> int:
    return int(app(list(words), standalone_mode=False) or 0)


def left(runs: Path) -> set[str]:
    return {path.name for path in runs.iterdir()}


def test_the_last_of_each_experiment_stay_and_so_does_what_is_needed(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    link_run(runs / "many-3", Outcome.PASS)
    link_run(runs / "many-9", Outcome.FAIL)
    assert call("baseline", "set", "runs/many-0", "runs/many-1", "runs/many-2", "--metric", "rate") == 0
    before = left(runs)
    assert call("runs", "prune", "runs", "--keep-last", "2", "--dry-run") == 0
    assert "4 run(s) would be deleted" in capsys.readouterr().out
    assert left(runs) == before
    with pytest.raises(ConfigError, match="nobody can confirm it"):
        call("runs", "prune", "runs", "--keep-last", "2")
    assert left(runs) == before
    assert call("runs", "prune", "runs", "--keep-last", "2", "--yes") == 0
    assert before - left(runs) == {"many-4", "many-5", "many-6", "many-7"}
    assert (runs / "notes" / "mine.txt").exists()
    assert call("runs", "prune", "runs", "--keep-last", "2", "--yes") == 0  # again: nothing to do
    assert "0 run(s) would be deleted" in capsys.readouterr().out


def test_failed_runs_go_when_asked_and_one_in_progress_never(runs: Path) -> None:
    assert call("runs", "prune", "runs", "--keep-last", "1", "--failed", "--yes") == 0
    assert left(runs) == {"many-9", "single-0", "many-now", "notes", "elsewhere"}


def test_a_list_names_every_recording_once(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    link_run(runs / "many-9", Outcome.PASS)
    capsys.readouterr()
    assert call("runs", "list", "runs", "--json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert [run["name"] for run in listed][:3] == ["many-failed", "many-now", "many-0"]
    assert len(listed) == 13
    size = sum(file.stat().st_size for file in (runs / "single-0").rglob("*") if file.is_file())
    assert next(run for run in listed if run["name"] == "single-0")["octets"] == size
    with pytest.raises(ConfigError, match="no such directory"):
        call("runs", "list", "nowhere")


def test_links_follow_the_verdicts_and_leave_files_alone(runs: Path) -> None:
    link_run(runs / "many-0", Outcome.PASS)
    link_run(runs / "many-1", Outcome.INVALID)
    link_run(runs / "many-2", None)  # interrupted
    assert {name: os.readlink(runs / name) for name in ("last", "lastSuccessful", "lastFailed")} == {
        "last": "many-2",
        "lastSuccessful": "many-0",
        "lastFailed": "many-1",
    }
    (runs / "last").unlink()
    (runs / "last").write_text("mine")
    link_run(runs / "many-3", Outcome.PASS)
    assert (runs / "last").read_text() == "mine"
    assert (runs / "lastSuccessful").resolve() == runs / "many-3"


def test_on_a_terminal_it_asks_and_no_is_no(runs: Path) -> None:
    ours, theirs = pty.openpty()
    argv = [sys.executable, "-m", "crescendo.cli.main", "runs", "prune", "runs", "--keep-last", "9"]
    process = subprocess.Popen(argv, stdin=theirs, stderr=theirs, stdout=subprocess.DEVNULL)
    os.close(theirs)
    os.write(ours, b"no\n")
    assert process.wait(60) == 2
    os.close(ours)
    assert "many-0" in left(runs)
