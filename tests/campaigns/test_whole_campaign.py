"""A campaign of four short runs on the relay, stopped in its third run and continued: none twice, none missing."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from crescendo.campaigns import campaign_session
from crescendo.control.conductor.commands import RecordEvent
from crescendo.model.campaign_file import campaign_from
from crescendo.record.campaign_journal import AttemptState, read_journal
from crescendo.run.analysis import Analyst
from crescendo.run.observer import RunObserver

CAMPAIGN = {
    "name": "whole",
    "experiment": {
        "workload": {"rate": 200, "size": 100},
        "phases": {"warmup": "0s", "measure": "500ms", "drain": "5s"},
        "checks": {"lost": 0},
    },
    "factors": {"workload.rate": [200, 800], "workload.size": [100, 1000]},
    "design": "2^k",
    "retries": 10,
    "metrics": ["rate"],
}


class StopsInThird(RunObserver):
    """Asks to stop as soon as the third run sends."""

    def __init__(self) -> None:
        self._starts = 0

    def on_event(self, event: RecordEvent) -> None:
        self._starts += event.kind == "start"

    def interrupted(self) -> bool:
        return self._starts == 3


def _sustained(run_dir: Path) -> float:
    """Read from the file, without our classes."""
    return float(json.loads((run_dir / "summary.json").read_text())["rate"]["sustained"])


@pytest.mark.timeout(900)
def test_a_stopped_campaign_continues_and_finds_the_effect_of_the_rate(tmp_path: Path, spark: SparkSession) -> None:
    campaign = campaign_from(CAMPAIGN)
    with Analyst() as analyst:
        stopped = campaign_session.run(campaign, out=tmp_path, analyst=analyst, observer=StopsInThird(), durable=False)
        assert (stopped.journal.ending, len(stopped.journal.counted)) == ("interrupted", 2)
        assert stopped.journal.attempts[-1].state is AttemptState.INTERRUPTED
        finished = campaign_session.run(campaign, out=tmp_path, analyst=analyst, durable=False)
    journal = finished.journal
    assert journal.complete, journal.ending
    assert journal == read_journal(finished.directory)
    assert sorted(attempt.point for attempt in journal.counted) == [0, 1, 2, 3]
    runs = {path.name for path in finished.directory.iterdir() if path.is_dir()}
    assert runs == {attempt.run for attempt in journal.attempts}
    (rate,) = finished.effects.metrics
    measured = {attempt.point: _sustained(finished.directory / attempt.run) for attempt in journal.counted}
    low, high = measured[0] + measured[1], measured[2] + measured[3]  # the points in the order of the file
    effect = next(each for each in rate.effects if each.name == "workload.rate")
    assert effect.value == pytest.approx((high - low) / 4)
    page = finished.report.read_text(encoding="utf-8")
    for attempt in journal.counted:
        assert f'href="{attempt.run}/report.html"' in page
        assert (finished.directory / attempt.run / "report.html").is_file()
