"""What is said about messages that arrived too late to count. No Spark: counts in, verdict out."""

from dataclasses import replace
from typing import Any

import pytest

from crescendo.pipeline.verdict.remarks import remarks_on
from crescendo.pipeline.verdict.verdicts import verdict_of
from crescendo.record.manifest import Phase
from crescendo.record.tables import OutageRow
from evidence_samples import evidence, outcomes


@pytest.mark.parametrize("metric", ["lost", "lost_acknowledged", "lost_unacknowledged"])
def test_undelivered_messages_make_a_check_on_losses_invalid_and_name_the_cure(metric: str) -> None:
    given = evidence({metric: 0}, counts={"delivered": 900, "undelivered": 100})
    _, verdict = verdict_of(given)
    assert outcomes(verdict) == {metric: "invalid"}
    assert verdict.checks[0].value == 0
    assert verdict.checks[0].reasons == [
        "100 messages were still arriving when the drain ended: undelivered, not lost; make phases.drain, or "
        "phases.drain_limit, longer"
    ]
    assert remarks_on(given) == ["100 messages were still arriving when the drain ended: undelivered, not lost"]


def test_proven_losses_are_not_hidden_behind_undelivered_messages() -> None:
    counts = {"delivered": 899, "undelivered": 100, "lost_acknowledged": 1}
    assert outcomes(verdict_of(evidence({"lost": 0}, counts=counts))[1]) == {"lost": "fail"}
    assert outcomes(verdict_of(evidence({"lost": "<= 5"}, counts=counts))[1]) == {"lost": "invalid"}


@pytest.mark.parametrize(
    ("edge", "more", "outcome"),
    [(200, {}, "pass"), (100, {}, "fail"), (0, {}, "fail"), (-200, {}, "fail"), (200, {"rate": 0.0}, "fail")],
)
def test_a_rate_is_judged_by_what_was_due_in_the_measure_phase_and_arrived(
    edge: int, more: dict[str, Any], outcome: str
) -> None:
    # 1,000 messages per second for ten seconds: 150 are missing.
    given = replace(evidence({"rate": ">= 1000"}, sustained=985.0, **more), arrived_at_edge=edge)
    _, verdict = verdict_of(given)
    assert outcomes(verdict) == {"rate": outcome}
    assert verdict.checks[0].value == (1005.0 if outcome == "pass" else 985.0)
    said = "200 messages that were due in the measure phase arrived within 100 ms of its end; rate is judged with them"
    assert remarks_on(given) == ([said] if outcome == "pass" else [])


def test_what_arrived_at_the_edge_changes_nothing_for_a_rate_that_holds_or_is_capped() -> None:
    for check, outcome in ((">= 980", "pass"), ("<= 990", "pass"), ("<= 980", "fail")):
        given = replace(evidence({"rate": check}, sustained=985.0), arrived_at_edge=200)
        _, verdict = verdict_of(given)
        assert (outcomes(verdict), verdict.checks[0].value) == ({"rate": outcome}, 985.0)
        assert remarks_on(given) == []


def test_deliveries_that_stopped_in_the_measure_phase_are_a_remark_beside_a_pass() -> None:
    second = 10**9
    phases = [Phase("warmup", 0, 2 * second), Phase("measure", 2 * second, 12 * second)]
    given = evidence({"lost": 0}, phases=phases)

    def outage(start_ns: int, gap_ns: int, subscription: str = "queue://q") -> OutageRow:
        return OutageRow(subscription, start_ns, start_ns + gap_ns, gap_ns, 1000.0, None, 0.0, None, None, None)

    in_warmup, short, long = outage(second // 2, second), outage(5 * second, second), outage(8 * second, 2 * second)
    assert remarks_on(replace(given, outages=[in_warmup])) == []
    assert remarks_on(replace(given, outages=[in_warmup, short])) == [
        "deliveries stopped once in the measure phase, for 1 s at 5.0 s"
    ]
    of_both = outage(5 * second + second // 100, second, "topic://t#0")
    assert remarks_on(replace(given, outages=[short, of_both])) == remarks_on(replace(given, outages=[short]))
    stopped = replace(given, outages=[in_warmup, short, of_both, long])
    assert remarks_on(stopped) == ["deliveries stopped 2 times in the measure phase, the longest time for 2 s at 8.0 s"]
    assert outcomes(verdict_of(stopped)[1]) == {"lost": "pass"}
