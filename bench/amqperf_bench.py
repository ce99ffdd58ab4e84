"""How much longer than its messages does an unattended campaign of handoffs take?

`experiments/amqperf/handoff.yml`, repeated `CRESCENDO_BENCH_REPEATS` times (100 by default). What starts a
run (hosts, RabbitMQ, the network's baseline, peers) and what ends it (drain, seal, analysis, report) are timed apart,
without the first run, which also warms up Spark. `CRESCENDO_BENCH_MEASURE_S` shortens the runs of 20 s: what is beyond
the messages hardly depends on their length.
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
FULL_S = 20.0
MEASURE_S = float(os.environ.get("CRESCENDO_BENCH_MEASURE_S", FULL_S))


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
    experiment = read_mapping(EXPERIMENT, "system and workload")
    experiment["phases"]["measure"] = f"{int(1000 * MEASURE_S)}ms"
    experiment["faults"][0] |= {"at": f"{int(400 * MEASURE_S)}ms", "within": f"{int(100 * MEASURE_S)}ms"}
    campaign = campaign_from(
        {
            "name": "handoffs",
            "experiment": experiment,
            "repeat": repeats,
            "metrics": ["jitter.max", "lost", "reordered"],
        }
    )
    begun, started = _Begun(), _Started()
    with tempfile.TemporaryDirectory() as directory, Analyst() as analyst:
        done = campaign_session.run(campaign, out=Path(directory), analyst=analyst, view=begun, observer=started)
        over_s = time.monotonic()
    counted, runs = done.journal.counted, len(begun.at_s)
    print(f"{len(counted)} runs counted, {runs} run, in {over_s - begun.at_s[0]:,.0f} s")
    if runs > 1:
        start_up_s = sum(start - begin for begin, start in zip(begun.at_s[1:], started.at_s[1:], strict=True))
        start_up_s /= runs - 1
        beyond_s = (over_s - begun.at_s[1]) / (runs - 1) - start_up_s - MEASURE_S
        share = beyond_s / (FULL_S + start_up_s)
        parts = f"messages {MEASURE_S:g} s, start-up {start_up_s:.1f} s, the rest {beyond_s:.1f} s"
        print(f"  per run after the first: {parts}")
        print(f"  the rest is {share:.1%} of {FULL_S:g} s and a start-up")
    jitters_s = sorted(attempt.values["jitter.max"] / 1e9 for attempt in counted)
    if jitters_s:
        middle = jitters_s[len(jitters_s) // 2]
        print(f"  largest jitter: {jitters_s[0]:.2f} to {jitters_s[-1]:.2f} s, median {middle:.2f} s")
        print(f"  lost: {sum(attempt.values['lost'] for attempt in counted):.0f}")
    return 0 if len(counted) == repeats else 1


if __name__ == "__main__":
    sys.exit(main())
