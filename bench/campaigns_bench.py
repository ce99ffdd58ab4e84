"""How long do effects and a history take over many runs, and how heavy is the page of a large campaign?

Writes a lake of `CRESCENDO_BENCH_RUNS` runs, 10,000 by default, whose rates are drawn at random around two levels, and
compacts it; the history is read from both, and the runs of the compacted lake are also those of a 2^3 campaign.
Then a campaign of 1,000 runs, whose page is opened in Chromium.
"""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np

from crescendo.campaigns.campaign_loop import new_journal
from crescendo.campaigns.ranked_factors import campaign_effects
from crescendo.history.baseline_file import Baselines
from crescendo.history.run_history import all_runs
from crescendo.history.run_series import history_of
from crescendo.model.campaign_file import campaign_from
from crescendo.pipeline.lake.compacted import compact_lake
from crescendo.pipeline.lake.lake import Lake, LakeEntry
from crescendo.pipeline.receipts import Receipt
from crescendo.pipeline.storage.locations import Directory
from crescendo.record.campaign_journal import Attempt, AttemptState, CampaignJournal
from crescendo.record.manifest import read_manifest
from crescendo.record.summary import read_summary
from crescendo.report.campaign_page import render_campaign
from crescendo.report.history_page import render_history

SAMPLE = Path(__file__).parents[1] / "tests" / "samples" / "version-0.1" / "baseline"
PAGE_RUNS = 1_000
SERIES = 20
T = TypeVar("T")


def main() -> int:
    runs = int(os.environ.get("CRESCENDO_BENCH_RUNS", "10000"))
    with tempfile.TemporaryDirectory() as directory:
        at = Path(directory)
        _timed(f"write a lake of {runs:,} runs", lambda: _write_lake(at / "lake", runs))
        found = _timed(f"read {runs:,} runs of the lake", lambda: all_runs(at / "lake", ["rate"]))
        made = _timed("compact it", lambda: compact_lake(at / "lake", at / "compacted", lambda _: None))
        print(f"  {made.files_before:,} files in {made.files}")
        same = _timed(f"read {runs:,} runs of the compacted lake", lambda: all_runs(at / "compacted", ["rate"]))
        if same != found:
            raise SystemExit("the compacted lake has other runs than the lake")
        document = _timed(
            f"change points of {runs:,} runs in {SERIES} series",
            lambda: history_of(found, Baselines(), 0.05, place="lake", beside=at),
        )
        page = _timed("page of that history", lambda: render_history(document))
        print(f"  {len(page) / 1e6:.2f} MB")
        journal = _journal(runs, [run.values["rate"] for run in same])
        effects = _timed(f"effects of a 2^3 campaign of {runs:,} runs", lambda: campaign_effects(journal))
        print(f"  {effects.metrics[0].effects[0].sentence}")
        small = _journal(PAGE_RUNS)
        page = _timed(f"page of a campaign of {PAGE_RUNS:,} runs", lambda: _campaign_page(small))
        (at / "campaign.html").write_text(page, encoding="utf-8")
        print(f"  {len(page.encode()) / 1e6:.2f} MB")
        _open(at / "campaign.html")
    return 0


def _timed(name: str, work: Callable[[], T]) -> T:
    begun = time.perf_counter()
    result = work()
    print(f"{name}: {time.perf_counter() - begun:.2f} s", flush=True)
    return result


def _write_lake(place: Path, runs: int) -> None:
    lake, random = Lake(Directory(place)), np.random.default_rng(1)
    lake.open()
    manifest, summary = read_manifest(SAMPLE), read_summary(SAMPLE)
    for number in range(runs):
        series, at = number % SERIES, number // SERIES
        level = (1.0 if at < runs / SERIES / 2 else 0.93) * (1 + 0.01 * random.normal())
        rate = msgspec.structs.replace(summary.rate, sustained=summary.rate.sustained * level)
        name = f"run-{number:06d}"
        written = manifest.experiment | {"accept_drift": False, "repeat": series + 1}
        mine = msgspec.structs.replace(manifest, run=name, started_ns=manifest.started_ns + number, experiment=written)
        entry = LakeEntry(
            f"nightly-{series}", name, "", Receipt("", True, []), mine, msgspec.structs.replace(summary, rate=rate)
        )
        lake.add_run(entry, Directory(SAMPLE))


def _journal(runs: int, rates: Sequence[float] = ()) -> CampaignJournal:
    campaign = campaign_from(
        {
            "name": "large",
            "experiment": {"workload": {"rate": 10}},
            "factors": {"workload.rate": [10, 20], "workload.size": [100, 200], "workload.senders": [1, 2]},
            "design": "2^k",
            "metrics": ["rate", "response_p99"],
        }
    )
    random = np.random.default_rng(1)
    base = list(rates) or [1000.0] * runs
    attempts = [
        Attempt(
            at % 8, at // 8, AttemptState.COUNTED, f"large.{at % 8 + 1:03d}-{at:06d}", "pass", "", 30.0,
            {"rate": base[at] * (1 + (at % 2)) + random.normal(0, 10), "response_p99": 1e6 + random.normal(0, 1e4)},
        )
        for at in range(runs)
    ]  # fmt: skip
    return msgspec.structs.replace(new_journal(campaign), attempts=attempts, complete=True, ending="done")


def _campaign_page(journal: CampaignJournal) -> str:
    return render_campaign(journal, campaign_effects(journal))


def _open(page: Path) -> None:
    """Load the page in Chromium until its charts are drawn."""
    program = shutil.which("chromium")
    if program is None:
        print("no Chromium: load time not measured")
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_page()
        begun = time.perf_counter()
        tab.goto(page.as_uri())
        tab.wait_for_selector("html[data-ready]", state="attached")
        print(f"load in Chromium, until drawn: {time.perf_counter() - begun:.2f} s")
        browser.close()


if __name__ == "__main__":
    sys.exit(main())
