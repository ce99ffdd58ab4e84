"""Does a search find what a system sustains over OpenWire and over Core?

A consumer that takes 280 messages a second is what limits it, so the answer is known: between 240 and 360.
"""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import crescendo
from crescendo.model.verdict import Outcome
from crescendo.systems.instance import RunningInstance


@pytest.mark.soak
@pytest.mark.parametrize("protocol", ["openwire", "core"])
def test_a_search_over_the_jms_family_ends_with_a_bracket(
    protocol: str, artemis: RunningInstance, spark: SparkSession, tmp_path: Path
) -> None:
    load = {"address": "queue://searched-{run}", "protocol": protocol, "rate": 100, "receive_rate": 280}
    experiment = crescendo.experiment_from(
        {
            "name": "searched",
            "system": {"url": artemis.endpoints[protocol]},
            "workload": load,
            "phases": {"warmup": "0s", "measure": "1s", "drain": "100ms", "drain_limit": "100ms"},
            "search": {
                "from": 240,
                "to": 360,
                "resolution": "50%",
                "confirm": "1 of 1",
                "limits": {"rate": ">= 0.9 of offered"},
            },
        }
    )
    found = crescendo.search(experiment, out=tmp_path, durable=False)
    tries = [(each.rate, each.outcome) for each in found.result.tries if each.outcome is not Outcome.INVALID]
    assert tries == [(240, Outcome.PASS), (360, Outcome.FAIL)], found.result.tries
    answer = found.result.answer
    assert answer is not None
    assert (answer.rate, answer.above, answer.complete) == (240, 360, True)
    assert found.report is not None
