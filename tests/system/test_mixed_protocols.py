"""Does the ledger join senders of one protocol with receivers of another?"""

from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from crescendo.model.verdict import Outcome
from whole_runs import Launcher, judged

pytestmark = pytest.mark.timeout(400)  # a broker, a run that may take 150 s on a busy machine, and its analysis

# What ActiveMQ Classic makes of messages that came over AMQP is in docs/protocols.md.
CELLS = {
    "artemis": list(permutations(("amqp10", "stomp", "openwire", "core"), 2)),
    "activemq": [("openwire", "stomp"), ("stomp", "openwire"), ("openwire", "amqp10")],
}
RATE = 50


def groups_of(sending: str, receiving: str, rate: int) -> list[dict[str, Any]]:
    """One sender and one receiver of the same queue, in two groups because a group has one protocol."""
    name = f"{sending}-to-{receiving}"
    shared = {"address": f"queue://{name}", "size": 256, "settle": "at-least-once"}
    return [
        {**shared, "name": f"{name}-out", "protocol": sending, "senders": 1, "receivers": 0, "rate": rate},
        {**shared, "name": f"{name}-in", "protocol": receiving, "senders": 0, "receivers": 1},
    ]


@pytest.mark.parametrize(
    ("kind", "rate", "measure_s"),
    [
        ("artemis", RATE, 2),
        pytest.param("activemq", RATE, 2, marks=pytest.mark.soak),
        pytest.param("artemis", 500, 30, marks=pytest.mark.soak),
    ],
)
def test_stamps_survive_every_pair_of_protocols_and_the_ledger_is_all_zero(
    kind: str, rate: int, measure_s: int, launch: Launcher, experiment: Callable[..., Path], spark: SparkSession
) -> None:
    cells = CELLS[kind]
    path = experiment(
        system={"kind": kind},
        workload=[group for cell in cells for group in groups_of(*cell, rate)],
        phases={"warmup": "0s", "measure": f"{measure_s}s", "drain": "20s"},
        checks={"lost": 0, "duplicated": 0, "corrupt": 0, "reordered": 0},
    )
    session = launch.without_analysis(path)
    ended = session.finish(150)
    assert (ended.returncode, ended.stdout) == (0, "sealed\n"), ended.stderr
    summary = judged(session, spark)
    assert summary.verdict.outcome is Outcome.PASS, summary.verdict
    total, count = summary.total, len(cells) * rate * measure_s
    assert (total.sent, total.settled, total.delivered, total.stray) == (count, count, count, 0)
