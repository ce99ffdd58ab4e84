"""Twenty comparisons of a system with itself, two real runs a side: no false claim, and no pass on a wide interval."""

from pathlib import Path

import pytest

import crescendo
from crescendo.cli.compare import compare as verb
from crescendo.pipeline.compare.compare import Change
from crescendo.run.analysis import Analyst

BATCHES, COMPARISONS, THRESHOLD = 4, 5, 0.05
EXPERIMENT = {
    "name": "same",
    "workload": [
        {"name": "small", "address": "queue://small", "rate": 400, "size": 100},
        {"name": "large", "address": "queue://large", "rate": 100, "size": 20_000},
    ],
    "phases": {"warmup": "500ms", "measure": "2s", "drain": "5s"},
}


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("_batch", range(BATCHES))
def test_twenty_comparisons_of_a_system_with_itself(_batch: int, tmp_path: Path) -> None:
    experiment = crescendo.experiment_from(EXPERIMENT)
    outcomes: list[str] = []
    with Analyst() as analyst:
        for number in range(COMPARISONS):
            sides = tmp_path / f"{number}-a", tmp_path / f"{number}-b"
            for side in sides * 2:  # by turns
                crescendo.run(experiment, out=side, report=False, durable=False, analyst=analyst)
            for metrics in ((), ("rate",), ("response_p99", "small.response_p99")):
                answer = crescendo.compare(*sides, threshold=THRESHOLD, metrics=metrics)
                code = verb(str(sides[0]), str(sides[1]), tmp_path, THRESHOLD * 100, list(metrics))
                outcomes += [each.outcome for each in answer.metrics]
                assert answer.outcome in {Change.SAME, Change.UNCLEAR}, answer.metrics
                assert code == (0 if answer.outcome is Change.SAME else 3)
                for each in answer.metrics if code == 0 else ():
                    known = each.change_low is not None and each.change_high is not None
                    assert each.metric == "lost" or (
                        known and -THRESHOLD <= each.change_low <= each.change_high <= THRESHOLD
                    )  # type: ignore[operator]
    print({outcome: outcomes.count(outcome) for outcome in set(outcomes)})
