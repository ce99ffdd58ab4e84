"""Gate a build on a verdict: a test that runs an experiment and asserts on its result.

    pytest examples/run_and_assert.py

Point `system` at your own broker, e.g. {"url": "amqp://user:password@host:5672"}. Asserting on `passed` alone is
enough for a gate; the other assertions show what else there is.
"""

from pathlib import Path

import crescendo

EXPERIMENT = crescendo.experiment_from(
    {
        "name": "gate",
        "system": {"kind": "loopback"},
        "workload": {"senders": 1, "receivers": 1, "rate": 500, "size": 256},
        "phases": {"warmup": "500ms", "measure": "2s", "drain": "5s"},
        "checks": {"lost": 0, "duplicated": 0, "rate": ">= 0.8 of offered", "response_p99": "<= 2s"},
    }
)


def test_the_broker_carries_the_load(tmp_path: Path) -> None:
    result = crescendo.run(EXPERIMENT, out=tmp_path)
    assert result.passed, result.verdict
    assert result.summary is not None
    assert result.summary.total.lost == 0
    assert {check.metric for check in result.summary.verdict.checks} >= {"lost", "rate"}
    assert result.report is not None
    assert result.report.exists()
