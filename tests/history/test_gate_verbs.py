"""`baseline` and `gate` on recordings, from the command line."""

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crescendo.cli.main import app
from crescendo.history.baseline_file import read_baselines
from crescendo.history.fingerprints import fingerprint
from crescendo.model.errors import ConfigError
from crescendo.model.verdict import Outcome
from crescendo.pipeline.lake.lake import Lake, LakeEntry
from crescendo.pipeline.receipts import Receipt
from crescendo.pipeline.storage.locations import Directory
from crescendo.record.campaign_journal import Attempt, AttemptState, CampaignJournal, DesignPoint, write_journal
from crescendo.record.manifest import read_manifest
from crescendo.record.run_links import link_run
from crescendo.record.summary import read_summary

SAMPLE = Path(__file__).parents[1] / "samples" / "version-0.1" / "baseline"


def copied(directory: Path, name: str, number: int, factor: float, changes: dict[str, Any] | None = None) -> Path:
    """The sample recording as another run, this many times as fast."""
    run = directory / name
    shutil.copytree(SAMPLE, run)
    manifest = json.loads((run / "manifest.json").read_text())
    manifest |= {"run": name, "started_ns": manifest["started_ns"] + number}
    manifest["experiment"] |= changes or {}
    (run / "manifest.json").write_text(json.dumps(manifest))
    summary = json.loads((run / "summary.json").read_text())
    summary["rate"]["sustained"] *= factor
    summary["verdict"]["outcome"] = "pass"
    (run / "summary.json").write_text(json.dumps(summary))
    return run


def call(*words: str) -> int:
    """The exit code."""
    return int(app(list(words), standalone_mode=False) or 0)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for number, factor in enumerate((1.0, 1.002, 0.999)):
        copied(tmp_path / "runs", f"good-{number}", number, factor)
        copied(tmp_path / "runs", f"same-{number}", 10 + number, factor * 1.001)
        copied(tmp_path / "runs", f"slow-{number}", 20 + number, factor * 0.8)
    return tmp_path


def test_a_gate_passes_equal_runs_and_fails_slow_ones(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("baseline", "set", "runs/good-*", "--metric", "rate", "--note", "release 1") == 0
    assert call("baseline", "list") == 0
    assert "release 1" in capsys.readouterr().out
    assert call("gate", "runs/same-*") == 0
    assert "GATE no difference · 3 runs · baseline of 3" in capsys.readouterr().out
    assert call("gate", "runs/slow-*", "--junit", "junit.xml", "--markdown", "gate.md") == 1
    output = capsys.readouterr().out
    assert "since slow-0" in output
    assert 'failures="1"' in (place / "junit.xml").read_text()
    assert "slow-0" in (place / "gate.md").read_text()
    assert call("gate", "runs/slow-0") == 3  # one run is not enough
    assert call("baseline", "dismiss", "runs/slow-0", "rate", "--note", "new disks") == 0
    assert "dismissed: rate since slow-0 · new disks" in _listed(capsys)


def test_a_confirmed_change_keeps_failing_and_quotes_its_note(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("baseline", "set", "runs/good-*", "--metric", "rate") == 0
    assert call("baseline", "dismiss", "runs/slow-0", "rate", "--note", "new disks") == 0
    assert call("baseline", "confirm", "runs/slow-0", "rate", "--note", "commit 1234") == 0
    listed = _listed(capsys)
    assert "confirmed: rate since slow-0 · commit 1234" in listed
    assert "dismissed" not in listed
    assert call("gate", "runs/slow-*") == 1
    assert "since slow-0, which was confirmed (commit 1234)" in capsys.readouterr().out


def test_a_history_of_a_directory_and_of_a_lake_is_the_same(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = Lake(Directory(place / "lake"))
    lake.open()
    for run in sorted((place / "runs").iterdir()):
        entry = LakeEntry("quick", run.name, str(run), Receipt("", True, []), read_manifest(run), read_summary(run))
        lake.add_run(entry, Directory(run))
    assert call("history", "runs", "--metric", "rate") == 0
    printed = capsys.readouterr().out
    assert "-20.0% since slow-0: worse" in printed
    assert (place / "runs" / "history.html").is_file()
    assert call("history", "lake", "--metric", "rate", "--out", "history.html") == 0
    assert capsys.readouterr().out.splitlines()[:-1] == printed.splitlines()[:-1]
    assert call("runs", "compact", "lake", "compacted") == 0
    capsys.readouterr()
    assert call("history", "compacted", "--metric", "rate", "--out", "history.html") == 0
    assert capsys.readouterr().out.splitlines()[:-1] == printed.splitlines()[:-1]
    assert call("baseline", "set", "runs/good-*", "--metric", "rate") == 0
    assert call("gate", "runs/slow-*", "--history", "lake") == 1
    assert call("gate", "runs/slow-*", "--history", "compacted") == 1
    with pytest.raises(ConfigError, match="it holds no analysed run"):
        call("history", "runs", "--experiment", "other")


def test_links_to_runs_are_not_repeats(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither in a directory, nor in a pattern, nor as the shell expands one."""
    runs = place / "single"
    link_run(copied(runs, "only-0", 0, 1.0), Outcome.PASS)
    assert sorted(path.name for path in runs.iterdir()) == ["last", "lastSuccessful", "only-0"]
    for selectors in (["single"], ["single/*"], ["single/only-0", "single/last", "single/lastSuccessful"]):
        with pytest.raises(ConfigError, match="needs 3 or more runs that are not invalid, and there are 1"):
            call("baseline", "set", *selectors)
    assert call("baseline", "set", "runs/good-*", "--metric", "rate") == 0
    assert call("gate", "single/last", "--json") == 3
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["runs"] == ["only-0"]


def test_of_a_campaign_only_the_counted_runs_are_compared(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A campaign that was stopped and continued also has a recording without a verdict, and perhaps invalid ones."""
    directory = place / "runs" / "good-campaign"
    for number in range(5):
        copied(directory, f"good.001-{number}", 30 + number, 1.0 + number / 1000)
    (directory / "good.001-3" / "summary.json").unlink()
    states = [*[AttemptState.COUNTED] * 3, AttemptState.INTERRUPTED, AttemptState.INVALID]
    attempts = [Attempt(0, number, state, f"good.001-{number}") for number, state in enumerate(states)]
    journal = CampaignJournal("good", "", "full", [], [DesignPoint([], [])], ["rate"])
    write_journal(directory, msgspec.structs.replace(journal, attempts=attempts))
    for selector in ("runs/good-campaign", "runs/good-campaign/good.001-*"):
        assert call("baseline", "set", selector, "--metric", "rate", "--baselines", "one.json") == 0
        (baseline,) = read_baselines(place / "one.json").baselines.values()
        assert [run.name for run in baseline.runs] == [f"good.001-{number}" for number in range(3)]
    write_journal(directory, msgspec.structs.replace(journal, attempts=attempts[3:]))
    with pytest.raises(ConfigError, match="has counted none of these runs"):
        call("gate", "runs/good-campaign")


def _listed(capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert call("baseline", "list") == 0
    return capsys.readouterr().out


def test_runs_of_other_settings_or_machines_have_no_baseline(place: Path) -> None:
    assert call("baseline", "set", "runs/good-*", "--metric", "rate") == 0
    copied(place / "runs", "other", 30, 1.0, {"accept_drift": True})
    with pytest.raises(ConfigError, match="there is no baseline with the fingerprint"):
        call("gate", "runs/other")


def test_a_fingerprint_ignores_what_a_regression_test_varies(tmp_path: Path) -> None:
    runs = {
        name: read_manifest(copied(tmp_path, name, 0, 1.0, changes))
        for name, changes in {
            "plain": {},
            "renamed": {"name": "other", "seed": 5},
            "later": {"a_key_of_a_later_version": None, "another": {"inside": None}},
            "other-system": {"system": {"kind": "artemis", "version": "1"}},
            "other-version": {"system": {"kind": "artemis", "version": "2"}},
        }.items()
    }
    prints = {name: fingerprint(manifest) for name, manifest in runs.items()}
    assert prints["plain"] == prints["renamed"] == prints["later"] != prints["other-system"] == prints["other-version"]


def test_counts_are_refused(place: Path) -> None:
    with pytest.raises(ConfigError, match="put a check on counts"):
        call("baseline", "set", "runs/good-*", "--metric", "lost")
