"""Are validity rules and metrics wired to each other, with one finding per side of the generator?"""

from dataclasses import replace
from operator import attrgetter
from typing import Any

import pytest
from msgspec import structs

from crescendo.model.metrics import METRICS, PERCENTILES, Metric
from crescendo.model.verdict import Outcome
from crescendo.pipeline.verdict.evidence import Evidence
from crescendo.pipeline.verdict.rules import ValidityRule, every_metric
from crescendo.pipeline.verdict.validity import RULES, findings
from crescendo.pipeline.verdict.verdicts import verdict_of
from crescendo.record.table_types import Table
from crescendo.record.tables import RecoveryRow
from evidence_samples import MS, ONLY_WHERE_THEY_APPLY, ORDER, evidence, item, peer

TIMES = {"outage", "detection_time", "recovery_time", "catch_up_time"}
RECOVERED = RecoveryRow(
    fault=0, action="stop", target="system", means="", planned_ns=MS, start_ns=MS, end_ns=2 * MS, detected_ns=MS,
    outage_ns=MS, resumed=True, recovered_ns=MS, caught_up_ns=MS, until_ns=4 * MS, lost=0, lost_acknowledged=0,
    never_offered=0, redelivered=0, duplicated=0, reordered=0, p99_before_ns=None, p99_during_ns=None,
    p99_after_ns=None,
)  # fmt: skip
EVERY = pytest.mark.parametrize("metric", METRICS.values(), ids=list(METRICS))


def test_the_rules_are_those_of_the_validity_list_in_their_order() -> None:
    assert [rule.name for rule in RULES] == [*ORDER, *ONLY_WHERE_THEY_APPLY]


@EVERY
def test_every_doubt_of_a_metric_is_a_rule(metric: Metric) -> None:
    named = {rule.name for rule in RULES if rule.undermines is not every_metric}
    assert metric.undermined_by <= named


@pytest.mark.parametrize("rule", RULES, ids=attrgetter("name"))
def test_every_rule_undermines_some_metric(rule: ValidityRule) -> None:
    assert any(rule.undermines(metric) for metric in METRICS.values())


def _one_row(table: Table[Any]) -> list[Any]:
    values = {"string": "x", "bool": True}
    return table.from_columns([{each.name: values.get(str(each.arrow_type), 1) for each in table.columns}])


@pytest.mark.parametrize(
    "metric", [metric for metric in METRICS.values() if not metric.of_clients], ids=attrgetter("name")
)
def test_every_metric_has_a_value_in_a_sound_run(metric: Metric) -> None:
    is_time = metric.latency is not None or metric.name in TIMES
    given = evidence({metric.name: "<= 1s" if is_time else ">= 0"})
    percentiles_ns = {name: int(percent * MS) for name, percent in PERCENTILES.items()}
    latency = {kind: structs.replace(row, percentiles_ns=percentiles_ns) for kind, row in given.latency.items()}
    _, verdict = verdict_of(replace(given, latency=latency, recoveries=[RECOVERED], read_table=_one_row))
    (check,) = verdict.checks
    assert check.value is not None
    assert (check.outcome, check.reasons) == (Outcome.PASS, [])
    if metric.latency is not None and metric.latency.percent is not None:
        assert check.value == int(metric.latency.percent * MS)


def generator(given: Evidence) -> str:
    return item([finding.validity for finding in findings(given)], "generator kept up").detail


def test_failures_come_first_then_what_is_tolerated_then_what_is_unknown() -> None:
    peers = [
        peer("sender-0", lateness_p99_ns=1.1 * MS), peer("sender-1"),
        peer("receiver-0", busy_share=0.95), peer("receiver-1"),
    ]  # fmt: skip
    given = evidence({"response_p99": "<= 20ms", "transfer_max": "<= 1s", "rate": ">= 900"}, peers=peers)
    assert generator(given) == (
        "receivers were busy over 90% of the time (receiver-0 95%); "
        "sender lateness p99 1.1 ms is over 10% of response_p99 10 ms, but the bound holds anyway; "
        "unknown: lateness_p99_ns of sender-1, busy_share of receiver-1"
    )


def test_busy_receivers_are_tolerated_only_if_the_rate_is_checked() -> None:
    busy = [peer("sender-0", lateness_p99_ns=0.1 * MS), peer("receiver-0", busy_share=0.95)]
    checked = evidence({"response_p99": "<= 20ms", "rate": ">= 900"}, peers=busy)
    assert generator(checked).endswith("(receiver-0 95%), but the bound holds anyway")
    unchecked = evidence({"response_p99": "<= 20ms"}, peers=busy)
    assert generator(unchecked).endswith("(receiver-0 95%)")
    assert verdict_of(unchecked)[1].outcome is Outcome.PASS
