"""Runs and campaigns with known answers, for pages that show many of them."""

import itertools
import json
import shutil
from pathlib import Path

import msgspec

from crescendo.campaigns.campaign_loop import new_journal
from crescendo.model.campaign_file import campaign_from
from crescendo.record.campaign_journal import Attempt, AttemptState, CampaignJournal

SAMPLE = Path(__file__).parents[1] / "samples" / "version-0.1" / "baseline"


def planted_run(directory: Path, number: int, factor: float) -> None:
    """The sample recording as another run, this many seconds later and this many times as fast."""
    shutil.copytree(SAMPLE, directory)
    manifest = json.loads((directory / "manifest.json").read_text())
    manifest |= {"run": directory.name, "started_ns": manifest["started_ns"] + number * 10**9}
    (directory / "manifest.json").write_text(json.dumps(manifest))
    summary = json.loads((directory / "summary.json").read_text())
    summary["rate"]["sustained"] *= factor
    summary["verdict"]["outcome"] = "pass"
    (directory / "summary.json").write_text(json.dumps(summary))


def planted_campaign(directory: Path) -> CampaignJournal:
    """Two factors and two repeats: each sender carries 500 messages per second, whatever their size."""
    directory.mkdir()
    factors = {"workload.senders": [2, 8], "workload.size": [256, 4096]}
    document = {"name": "growth", "experiment": {"workload": {"rate": 10}}, "factors": factors, "metrics": ["rate"],
                "repeat": 2}  # fmt: skip
    campaign = campaign_from(document)
    attempts = [
        Attempt(
            point.number, repeat, AttemptState.COUNTED, "", "pass", "", 1.0,
            {"rate": 500.0 * float(point.levels[0]) + (1 if repeat else -1)},
        )
        for point, repeat in itertools.product(campaign.points, range(2))
    ]  # fmt: skip
    return msgspec.structs.replace(new_journal(campaign), attempts=attempts, complete=True, ending="all runs are done")
