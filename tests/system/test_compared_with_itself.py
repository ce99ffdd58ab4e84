"""Twenty comparisons of a broker with itself, two real runs a side: no false claim, and no pass on a wide interval."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import crescendo
from crescendo.cli.compare import compare as verb
from crescendo.pipeline.compare.compare import Change
from crescendo.systems.instance import RunningInstance

COMPARISONS, AT_ONCE, THRESHOLD = 20, 4, 0.05
GATES: tuple[tuple[str, ...], ...] = (
    (),
    ("rate",),
    ("rate", "response_p99"),
    ("small.response_p99", "large.response_p99"),
)
"""Metrics that a build may name: all of them, one, and groups of two."""

LOAD = [
    {"name": "small", "address": "queue://small-{run}", "rate": 800, "size": 100},
    {"name": "large", "address": "queue://large-{run}", "rate": 600, "size": 5_000},
]


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("spark")
def test_twenty_comparisons_of_a_broker_with_itself(rabbitmq: RunningInstance, tmp_path: Path) -> None:
    """The runs are just long enough for intervals of their own; several comparisons at once make them less alike."""
    document = {
        "system": {"url": rabbitmq.endpoints["amqp091"]},
        "workload": [{**group, "protocol": "amqp091"} for group in LOAD],
        "phases": {"warmup": "1s", "measure": "11s", "drain": "5s"},
    }

    def measured(number: int) -> tuple[Path, Path]:
        # A lake refuses two runs of one name, and those of one experiment that start in the same second have one.
        experiment = crescendo.experiment_from({"name": f"same-{number}", **document})
        sides = tmp_path / f"{number}-a", tmp_path / f"{number}-b"
        for side in sides * 2:  # by turns
            crescendo.run(experiment, out=side, analyze=False, durable=False)
        return sides

    with ThreadPoolExecutor(AT_ONCE) as pool:
        compared = list(pool.map(measured, range(COMPARISONS)))
    crescendo.analyze_all([side for sides in compared for side in sides], lake=tmp_path / "lake")
    said: Counter[str] = Counter()
    for before, after in compared:
        for metrics in GATES:
            answer = crescendo.compare(before, after, threshold=THRESHOLD, metrics=metrics)
            code = verb(str(before), str(after), tmp_path, THRESHOLD * 100, list(metrics))
            said[f"{'+'.join(metrics) or 'all'} exit {code}"] += 1
            said.update(f"metric {each.outcome}" for each in answer.metrics)
            claims = [each for each in answer.metrics if each.outcome in {Change.BETTER, Change.WORSE}]
            assert not claims, claims
            assert code == (0 if answer.outcome is Change.SAME else 3)
            for each in answer.metrics if code == 0 else ():
                assert each.metric == "lost" or _is_within(each.change_low, each.change_high), each
    print(f"\n{dict(sorted(said.items()))}")


def _is_within(low: float | None, high: float | None) -> bool:
    return low is not None and high is not None and -THRESHOLD <= low <= high <= THRESHOLD
