"""A campaign of two short runs on the relay, killed, stopped and continued elsewhere: no run twice, none missing."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil
import pytest
from pyspark.sql import SparkSession

from crescendo.campaigns import campaign_session
from crescendo.campaigns.ranked_factors import campaign_effects
from crescendo.control.conductor.commands import RecordEvent
from crescendo.model.campaign_file import load_campaign
from crescendo.record.campaign_journal import AttemptState, CampaignJournal, read_journal
from crescendo.report.campaign_page import CAMPAIGN_PAGE
from crescendo.run.analysis import Analyst
from crescendo.run.observer import RunObserver
from crescendo.web.campaign_process import carry_out_campaign
from crescendo.web.jobs import LIVE, Jobs, JobState
from crescendo.web.web_directory import WebDirectory

CAMPAIGN = {
    "name": "whole",
    "experiment": {
        "workload": {"rate": 200, "size": 100},
        "phases": {"warmup": "0s", "measure": "500ms", "drain": "5s"},
        "checks": {"lost": 0},
    },
    "factors": {"workload.rate": [200, 800]},
    "design": "2^k",
    "order": "written",
    "retries": 10,
    "metrics": ["rate"],
}


class StopsAtOnce(RunObserver):
    """Asks to stop as soon as a run sends."""

    def __init__(self) -> None:
        self._sends = False

    def on_event(self, event: RecordEvent) -> None:
        self._sends |= event.kind == "start"

    def interrupted(self) -> bool:
        return self._sends


def _until(reached: Callable[[], bool], timeout_s: float = 180.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not reached():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def _kill_in_second_run(file: Path, out: Path) -> None:
    """Start `crescendo campaign` as a person does, and kill it when its second run has begun."""
    directory = out / "whole-campaign"
    command = [sys.executable, "-m", "crescendo.cli.main", "campaign", str(file), "--out", str(out), "--no-fsync"]
    with (out / "output").open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as child:
        try:
            _until(lambda: child.poll() is not None or len(list(directory.glob("*/manifest.json"))) == 2)
            assert child.poll() is None, (out / "output").read_text()
            family = psutil.Process(child.pid).children(recursive=True)
        finally:
            child.kill()
    assert len(family) > 2  # the system, the peers, the analysis
    _until(lambda: not any(process.is_running() and process.status() != "zombie" for process in family))
    states = [attempt.state for attempt in read_journal(directory).attempts]
    assert states == [AttemptState.COUNTED, AttemptState.STARTED]


def _continued_in_the_queue(file: Path, out: Path) -> CampaignJournal:
    """What is left, as a job of the web server carries it out."""
    web = WebDirectory(out)
    files = Jobs(web).get(Jobs(web).add("whole", file.read_text(), by="a person", campaign="whole-campaign"))
    ended = carry_out_campaign(files, out, web.experiments, any_file=False)
    assert (ended.state, ended.outcome, ended.problem) == (JobState.DONE, "complete", "")
    shown = [json.loads(line) for line in (files.directory / LIVE).read_text().splitlines()]
    (run,) = [entry for entry in shown if entry["kind"] == "next"]
    assert (run["number"], run["count"], run["levels"]) == (2, 2, "workload.rate=800")
    steps = [entry["steps"] for entry in shown if entry["kind"] == "steps"][-1]
    assert {step["state"] for step in steps} == {"done"}
    return read_journal(out / "whole-campaign")


def _sustained(run_dir: Path) -> float:
    """Read from the file, without our classes."""
    return float(json.loads((run_dir / "summary.json").read_text())["rate"]["sustained"])


@pytest.mark.timeout(900)
def test_a_campaign_that_was_killed_and_stopped_finds_the_effect_of_the_rate(
    tmp_path: Path, spark: SparkSession
) -> None:
    file = tmp_path / "whole.yml"
    file.write_bytes(msgspec.yaml.encode(CAMPAIGN))
    _kill_in_second_run(file, tmp_path)
    campaign = load_campaign(file)
    with Analyst() as analyst:
        stopped = campaign_session.run(campaign, out=tmp_path, analyst=analyst, observer=StopsAtOnce(), durable=False)
        assert (stopped.journal.ending, len(stopped.journal.counted)) == ("interrupted", 1)
        assert stopped.journal.attempts[-1].state is AttemptState.INTERRUPTED
    journal, directory = _continued_in_the_queue(file, tmp_path), stopped.directory
    assert journal.complete, journal.ending
    assert [attempt.point for attempt in journal.counted] == [0, 1]
    interrupted = [attempt.point for attempt in journal.attempts if attempt.state is AttemptState.INTERRUPTED]
    assert interrupted == [1, 1]  # killed, then stopped
    runs = {path.name for path in directory.iterdir() if path.is_dir()}
    assert runs == {attempt.run for attempt in journal.attempts}
    (rate,) = campaign_effects(journal).metrics
    measured = {attempt.point: _sustained(directory / attempt.run) for attempt in journal.counted}
    effect = next(each for each in rate.effects if each.name == "workload.rate")
    assert effect.value == pytest.approx((measured[1] - measured[0]) / 2)
    page = (directory / CAMPAIGN_PAGE).read_text(encoding="utf-8")
    for attempt in journal.counted:
        assert f'href="{attempt.run}/report.html"' in page
        assert (directory / attempt.run / "report.html").is_file()
