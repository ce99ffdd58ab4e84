"""How much longer than its messages does an unattended campaign of handoffs take?

`experiments/amqperf/handoff.yml`, repeated `CRESCENDO_BENCH_REPEATS` times (100 by default). What starts a
run (hosts, RabbitMQ, the network's baseline, peers) and what ends it (drain, seal, analysis, report) are timed apart.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

from crescendo.campaigns import campaign_session
from crescendo.campaigns.campaign_loop import CampaignView
from crescendo.campaigns.next_run import NextRun
from crescendo.control.conductor.commands import RecordEvent
from crescendo.model.campaign_file import campaign_from
from crescendo.model.experiment_file import read_mapping
from crescendo.run.analysis import Analyst
from crescendo.run.observer import RunObserver

EXPERIMENT = Path(__file__).parents[1] / "experiments" / "amqperf" / "handoff.yml"
MEASURE_S = 20.0


class _Started(RunObserver):
    """When runs started to send."""

    def __init__(self) -> None:
        self.at_s: list[float] = []

    def on_event(self, event: RecordEvent) -> None:
        if event.kind == "start":
            self.at_s.append(time.monotonic())


class _Begun(CampaignView):
    """When runs began."""

    def __init__(self) -> None:
        self.at_s: list[float] = []

    def on_next(self, planned: NextRun, levels: str, done: int, left_s: float | None) -> None:
        self.at_s.append(time.monotonic())


def main() -> int:
    repeats = int(os.environ.get("CRESCENDO_BENCH_REPEATS", "100"))
    campaign = campaign_from(
        {
            "name": "handoffs",
            "experiment": read_mapping(EXPERIMENT, "system and workload"),
            "repeat": repeats,
            "metrics": ["jitter.max", "lost", "reordered"],
        }
    )
    begun, started = _Begun(), _Started()
    with tempfile.TemporaryDirectory() as directory, Analyst() as analyst:
        done = campaign_session.run(campaign, out=Path(directory), analyst=analyst, view=begun, observer=started)
    whole_s = time.monotonic() - begun.at_s[0]
    counted, runs = done.journal.counted, len(begun.at_s)
    start_up_s = sum(start - begin for begin, start in zip(begun.at_s, started.at_s, strict=True))
    expected_s = runs * MEASURE_S + start_up_s
    print(f"{len(counted)} runs counted, {runs} run, in {whole_s:,.0f} s")
    print(f"  messages {runs * MEASURE_S:,.0f} s, start-up {start_up_s:,.0f} s ({start_up_s / runs:.1f} s per run)")
    print(f"  beyond both {whole_s / expected_s - 1:+.1%}, {(whole_s - expected_s) / runs:.1f} s per run")
    jitters_s = sorted(attempt.values["jitter.max"] / 1e9 for attempt in counted)
    if jitters_s:
        middle = jitters_s[len(jitters_s) // 2]
        print(f"  largest jitter: {jitters_s[0]:.2f} to {jitters_s[-1]:.2f} s, median {middle:.2f} s")
        print(f"  lost: {sum(attempt.values['lost'] for attempt in counted):.0f}")
    return 0 if len(counted) == repeats else 1


if __name__ == "__main__":
    sys.exit(main())
