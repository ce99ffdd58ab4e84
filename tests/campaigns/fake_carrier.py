"""Carries out runs of campaigns without a system: directories with manifests, and summaries with planted values."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from crescendo.model.experiment import Experiment
from crescendo.model.verdict import Outcome
from crescendo.record.summary import Rate, Summary, read_summary

SAMPLE = Path(__file__).parents[1] / "samples" / "version-0.1" / "baseline"


class Killed(BaseException):
    """What a SIGKILL is to a campaign: nothing after it runs."""


@dataclass
class FakeCarrier:
    """Every run has a directory before it is sealed. `tick` is called between steps, and may raise Killed."""

    tick: Callable[[], None] = lambda: None
    outcome: Callable[[Experiment, int], Outcome] = lambda _experiment, _number: Outcome.PASS
    rate: Callable[[Experiment], float] = lambda _experiment: 1.0
    relays: Callable[[Experiment], int] = lambda _experiment: 0
    started: list[Experiment] = field(default_factory=list)

    def run(self, experiment: Experiment, out: Path) -> tuple[Path, Summary] | None:
        self.tick()
        number = len(self.started)
        self.started.append(experiment)
        run_dir = out / f"{experiment.name}-{sum(1 for _ in out.iterdir()):06d}"
        run_dir.mkdir()
        self.tick()
        manifest = msgspec.json.decode((SAMPLE / "manifest.json").read_bytes())
        manifest["system"]["stand_ins"] = self.relays(experiment)
        (run_dir / "manifest.json").write_bytes(msgspec.json.encode({**manifest, "state": "incomplete"}))
        self.tick()
        sealed = msgspec.json.encode({**manifest, "run": run_dir.name, "state": "sealed"})
        (run_dir / "outcome").write_text(str(self.outcome(experiment, number)))
        (run_dir / "rate").write_text(str(self.rate(experiment)))
        (run_dir / "manifest.json").write_bytes(sealed)
        self.tick()
        return run_dir, self.judge(run_dir)

    def judge(self, run_dir: Path) -> Summary:
        summary = read_summary(SAMPLE)
        rate = Rate(0, 0, float((run_dir / "rate").read_text()), 10**9, 0)
        verdict = msgspec.structs.replace(summary.verdict, outcome=Outcome((run_dir / "outcome").read_text()))
        return msgspec.structs.replace(summary, run=run_dir.name, rate=rate, verdict=verdict)
