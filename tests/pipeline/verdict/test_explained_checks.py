"""Which verdict follows when our own delay is known. No Spark: values in, verdict out."""

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from crescendo.model import metrics
from crescendo.model.verdict import Outcome, stopped_check
from crescendo.pipeline.verdict.evidence import Evidence
from crescendo.pipeline.verdict.remarks import remarks_on
from crescendo.pipeline.verdict.verdicts import verdict_of
from crescendo.record.summary import Latency
from evidence_samples import MS, evidence, item, outcomes, peer

PEERS = [peer("sender-0", own_delay_max_ns=0.0), peer("receiver-0", read_delay_max_ns=0.0, busy_share=0.1)]


def without(kind: str, p99_ns: int, max_ns: int = 12 * MS, p50_ns: int = MS) -> Latency:
    return Latency("measure", kind, 1000, 1, max_ns, 1.0 * MS, 0, {"p50": p50_ns, "p99": p99_ns, "p99.9": None})


def accounted(
    checks: dict[str, Any], *less: Latency, less_rate: float | None = None, own_share: float | None = None, **more: Any
) -> Evidence:
    given = evidence(checks, peers=PEERS, **more)
    rate = structs.replace(given.rate, without_own_delay=less_rate, own_share=own_share)
    shares = {} if own_share is None else {0: own_share}
    return replace(given, without_own_delay={row.kind: row for row in less}, rate=rate, own_shares=shares)


def test_a_fail_that_own_delay_could_explain_is_invalid() -> None:
    validity, verdict = verdict_of(accounted({"response_p99": "<= 5ms"}, without("response", 2 * MS)))
    assert outcomes(verdict) == {"response_p99": "invalid"}
    # The part of a read delay that is too short to be recorded counts as ours too.
    reason = "own delay could explain it: response_p99 10 ms would be 1.9 ms without it and what overlaps it"
    assert verdict.checks[0].reasons == [reason]
    assert not item(validity, "generator kept up").holds


def test_a_fail_that_stands_without_own_delay_stays_a_fail() -> None:
    _, verdict = verdict_of(accounted({"response_p99": "<= 5ms"}, without("response", 6 * MS)))
    assert outcomes(verdict) == {"response_p99": "fail"}


def test_a_pass_stays_a_pass_and_says_that_own_delay_is_part_of_it() -> None:
    given = accounted({"response_p99": "<= 1s"}, without("response", 2 * MS))
    assert verdict_of(given)[1].outcome is Outcome.PASS
    assert remarks_on(given) == ["own delay up to 8 ms in response_p99 10 ms"]


def test_small_own_delay_is_not_worth_a_remark() -> None:
    assert remarks_on(accounted({"response_p99": "<= 1s"}, without("response", int(9.1 * MS)))) == []


def test_own_delay_is_named_although_nothing_checks_the_latency() -> None:
    given = accounted({"lost": 0}, without("response", 2 * MS))
    assert remarks_on(given) == ["own delay up to 8 ms in response_p99 10 ms"]


@pytest.mark.parametrize(("less_max_ns", "outcome"), [(4 * MS, "invalid"), (15 * MS, "fail")])
def test_the_maximum_is_judged_by_the_maximum(less_max_ns: int, outcome: str) -> None:
    _, verdict = verdict_of(accounted({"transfer_max": "<= 5ms"}, without("transfer", MS, less_max_ns)))
    assert outcomes(verdict) == {"transfer_max": outcome}


def test_own_delay_is_named_for_a_check_of_another_package_too(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = replace(metrics.metric_of("response_p99"), name="their_p99")
    monkeypatch.setattr(metrics, "plugin_metrics", lambda: {theirs.name: theirs})
    (remark,) = remarks_on(accounted({"their_p99": "<= 1s"}, without("response", 2 * MS)))
    assert " in their_p99 " in remark


def test_each_kind_is_judged_by_its_own_delay() -> None:
    checks = {"response_p99": "<= 5ms", "transfer_p99": "<= 5ms", "settle_p99": "<= 5ms"}
    less = without("response", MS), without("transfer", 9 * MS), without("settle", 10 * MS)
    _, verdict = verdict_of(accounted(checks, *less))
    assert outcomes(verdict) == {"response_p99": "invalid", "transfer_p99": "fail", "settle_p99": "fail"}


@pytest.mark.parametrize(("less_rate", "outcome"), [(995.0, "invalid"), (900.0, "fail")])
def test_a_rate_is_judged_as_if_messages_had_arrived_earlier(less_rate: float, outcome: str) -> None:
    given = accounted({"rate": ">= 0.99 of offered"}, sustained=618.0, less_rate=less_rate)
    assert outcomes(verdict_of(given)[1]) == {"rate": outcome}
    assert remarks_on(given) == [f"own delay up to {less_rate - 618:.0f} msg/s in rate 618 msg/s"]


def test_a_cap_on_a_rate_that_own_delay_kept_low_is_invalid() -> None:
    given = accounted({"rate": "<= 700"}, sustained=618.0, less_rate=995.0)
    assert outcomes(verdict_of(given)[1]) == {"rate": "invalid"}


def test_an_unbounded_sender_that_the_system_never_held_back_measures_itself() -> None:
    given = accounted({"rate": "> 0", "transfer_p99": "<= 1s"}, rate=0, less_rate=10_000.0, own_share=0.97)
    _, verdict = verdict_of(given)
    assert outcomes(verdict) == {"rate": "invalid", "transfer_p99": "pass"}
    assert "the sustained rate is the generator's, not the system's" in verdict.checks[0].reasons[0]


@pytest.mark.parametrize(("bound", "outcome"), [(">= 1500", "invalid"), (">= 2500", "fail"), (">= 900", "pass")])
def test_an_unbounded_rate_is_judged_by_the_time_the_generator_took_for_itself(bound: str, outcome: str) -> None:
    given = accounted({"rate": bound}, rate=0, sustained=1000.0, less_rate=2000.0, own_share=0.5)
    assert outcomes(verdict_of(given)[1]) == {"rate": outcome}
    assert remarks_on(given) == [
        "own delay up to 50% of the measure phase: the generator's own time, although unbounded"
    ]


def test_one_unbounded_group_does_not_hide_the_own_delay_of_a_bounded_one() -> None:
    given = accounted({"response_p99": "<= 5ms"}, without("response", MS), rate=0, own_share=0.0)
    assert outcomes(verdict_of(given)[1]) == {"response_p99": "invalid"}


def test_a_limit_that_own_delay_could_have_exceeded_does_not_fail_the_run() -> None:
    ours = stopped_check("response_p90", 300 * MS, 200 * MS, "receiver-0", 20.0 * MS)
    assert ours.outcome is Outcome.INVALID
    assert "own delay could explain it" in ours.reasons[-1]
    assert stopped_check("response_p90", 300 * MS, 200 * MS, "receiver-0", 290.0 * MS).outcome is Outcome.FAIL


def test_losses_that_no_check_judges_are_said_beside_the_verdict() -> None:
    given = evidence({"rate": "> 0"}, counts={"lost_unacknowledged": 3, "delivered": 997})
    assert remarks_on(given) == ["3 unacknowledged messages were lost; no check judges them"]
    assert remarks_on(evidence({"lost": "<= 5"}, counts={"lost_unacknowledged": 3, "delivered": 997})) == []
