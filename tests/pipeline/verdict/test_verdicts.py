"""Which verdict follows from doubtful evidence. No Spark: values in, verdict out."""

from dataclasses import replace
from typing import Any

import pytest

from crescendo.model.verdict import Outcome
from crescendo.pipeline.verdict.verdicts import verdict_of
from crescendo.record.manifest import Clock, ExceededLimit, State
from crescendo.record.tables import BacklogRow
from evidence_samples import MS, ORDER, RECEIVER, SENDER, evidence, item, outcomes, peer


def test_sound_evidence_within_its_bounds_passes() -> None:
    validity, verdict = verdict_of(evidence({"lost": 0, "response_p99": "<= 20ms", "rate": ">= 0.99 of offered"}))
    assert [entry.name for entry in validity] == ORDER
    assert all(entry.holds for entry in validity)
    assert verdict.outcome is Outcome.PASS
    assert outcomes(verdict) == {"lost": "pass", "response_p99": "pass", "rate": "pass"}


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("recording complete", {"state": State.INCOMPLETE, "reason": "conductor died"}),
        ("recording complete", {"state": State.INTERRUPTED}),
        ("every part intact", {"damaged": {"sent/sender-0-00000.parquet": "does not match its hash"}}),
        ("every peer finished", {"peers": [peer("sender-0", "lost"), RECEIVER]}),
        ("every peer finished", {"peers": [SENDER, peer("receiver-0", "failed")]}),
        ("every peer finished", {"peers": [SENDER, RECEIVER, peer("agent-north", "failed")]}),
    ],
)
def test_missing_evidence_undermines_every_check_except_proven_failures(name: str, broken: dict[str, Any]) -> None:
    checks = {"lost": 0, "rate": "> 0", "settle_p99": "<= 1s", "duplicated": 0}
    validity, verdict = verdict_of(evidence(checks, **broken))
    assert [entry.name for entry in validity if not entry.holds] == [name]
    assert set(outcomes(verdict).values()) == {"invalid"}
    assert verdict.outcome is Outcome.INVALID
    assert all(item(validity, name).detail in check.reasons for check in verdict.checks)

    _, proven = verdict_of(evidence(checks, counts={"duplicated": 1}, **broken))
    assert proven.outcome is Outcome.FAIL
    assert outcomes(proven) == {"lost": "invalid", "rate": "invalid", "settle_p99": "invalid", "duplicated": "fail"}


def test_a_lost_peer_is_named() -> None:
    validity, verdict = verdict_of(evidence({"lost": 0}, peers=[peer("sender-0", "lost"), RECEIVER]))
    assert item(validity, "every peer finished").detail == "sender-0 was lost: no heartbeat"
    assert verdict.checks[0].reasons == ["sender-0 was lost: no heartbeat"]


def test_losses_with_a_lost_peer_are_not_held_against_the_system() -> None:
    lost = {"lost_unacknowledged": 5, "delivered": 995}
    _, verdict = verdict_of(evidence({"lost": 0}, counts=lost, peers=[SENDER, peer("receiver-0", "lost")]))
    assert verdict.outcome is Outcome.INVALID


def test_nothing_sent_says_nothing_about_the_system() -> None:
    validity, verdict = verdict_of(evidence(None, counts={"sent": 0, "owed": 0, "delivered": 0}, sustained=0.0))
    assert item(validity, "load was sent").detail == "nothing was sent"
    assert verdict.outcome is Outcome.INVALID
    assert verdict.reasons == ["nothing was sent"]


def test_a_system_that_delivers_nothing_fails_its_checks() -> None:
    gone = {"delivered": 0, "lost_unacknowledged": 1000}
    _, verdict = verdict_of(evidence(None, counts=gone, sustained=0.0))
    assert verdict.outcome is Outcome.FAIL
    _, unasked = verdict_of(evidence({"duplicated": 0}, counts=gone, sustained=0.0))
    assert unasked.outcome is Outcome.INVALID


def test_an_unbounded_sender_that_was_never_blocked_measures_itself() -> None:
    free = [peer("sender-0", blocked_share=0.01), RECEIVER]
    validity, verdict = verdict_of(evidence({"rate": "> 0", "transfer_p99": "<= 1s"}, rate=0, peers=free))
    assert not item(validity, "generator kept up").holds
    assert outcomes(verdict) == {"rate": "invalid", "transfer_p99": "pass"}
    assert "the sustained rate is the generator's, not the system's" in verdict.checks[0].reasons[0]


def test_an_unbounded_sender_that_was_blocked_measures_the_system() -> None:
    held = [peer("sender-0", blocked_share=0.06), RECEIVER]
    _, verdict = verdict_of(evidence({"rate": "> 0"}, rate=0, peers=held))
    assert verdict.outcome is Outcome.PASS


def test_lateness_near_a_judged_percentile_undermines_its_failure_alone() -> None:
    late = [peer("sender-0", lateness_p99_ns=1.1 * MS), RECEIVER]
    # p50 is 1 ms, p99 is 10 ms and a tenth of that 1 ms; the maximum is not a percentile.
    checks = {"response_p50": "<= 500us", "response_p99": "<= 5ms", "transfer_max": "<= 5ms", "rate": "> 0"}
    validity, verdict = verdict_of(evidence(checks, peers=late))
    assert not item(validity, "generator kept up").holds
    assert outcomes(verdict) == {
        "response_p50": "invalid", "response_p99": "invalid", "transfer_max": "fail", "rate": "pass",
    }  # fmt: skip
    _, slow = verdict_of(evidence({"response_p99": "<= 5ms"}, peers=late, p99_ns=12 * MS))
    assert slow.outcome is Outcome.FAIL


def test_a_bound_that_holds_despite_a_slow_generator_passes() -> None:
    late = [peer("sender-0", lateness_p99_ns=1.1 * MS), peer("receiver-0", busy_share=0.91)]
    _, verdict = verdict_of(evidence({"response_p99": "<= 20ms", "rate": ">= 900"}, peers=late))
    assert verdict.outcome is Outcome.PASS


def test_transfer_proves_nothing_with_a_late_sender() -> None:
    late = [peer("sender-0", lateness_p99_ns=1.1 * MS), RECEIVER]
    _, verdict = verdict_of(evidence({"transfer_p99": "<= 20ms"}, peers=late))
    assert verdict.outcome is Outcome.INVALID


def test_a_busy_receiver_undermines_failures_of_latency_and_rate_but_not_the_ledger() -> None:
    busy = [SENDER, peer("receiver-0", busy_share=0.91)]
    checks = {"lost": 0, "rate": ">= 2000", "transfer_max": "<= 5ms"}
    validity, verdict = verdict_of(evidence(checks, peers=busy))
    assert "receiver-0 91%" in item(validity, "generator kept up").detail
    assert outcomes(verdict) == {"lost": "pass", "rate": "invalid", "transfer_max": "invalid"}
    _, idle = verdict_of(evidence(checks))
    assert outcomes(idle) == {"lost": "pass", "rate": "fail", "transfer_max": "fail"}


def test_unreported_statistics_are_listed_as_unknown() -> None:
    validity, verdict = verdict_of(evidence({"rate": "> 0"}, peers=[peer("sender-0"), peer("receiver-0")]))
    generator = item(validity, "generator kept up")
    assert generator.holds
    assert generator.detail == "unknown: lateness_p99_ns of sender-0, busy_share of receiver-0"
    assert verdict.outcome is Outcome.PASS


def test_clocks_further_apart_than_a_latency_undermine_it_unless_one_clock_timed_both_ends() -> None:
    checks = {"response_p99": "<= 1s", "response_max": "<= 1s", "settle_p99": "<= 1s", "lost": 0}
    validity, verdict = verdict_of(evidence(checks, clocks=[Clock("a", 0), Clock("b", 0, bound_ns=11 * MS)]))
    assert not item(validity, "clock bound").holds
    assert outcomes(verdict) == {
        "response_p99": "invalid", "response_max": "pass", "settle_p99": "pass", "lost": "pass",
    }  # fmt: skip


def test_a_withheld_percentile_cannot_be_judged() -> None:
    validity, verdict = verdict_of(evidence({"response_p99.9": "<= 1s", "response_max": "<= 1s"}))
    assert not item(validity, "enough samples").holds
    assert outcomes(verdict) == {"response_p99.9": "invalid", "response_max": "pass"}
    assert verdict.checks[0].value is None
    assert "10 are needed" in verdict.checks[0].reasons[0]


def test_a_latency_that_was_not_measured_is_invalid_and_says_why() -> None:
    _, verdict = verdict_of(evidence({"response_p99": "<= 1s"}, rate=0, kinds=("transfer",)))
    assert outcomes(verdict) == {"response_p99": "invalid"}
    assert "unbounded" in verdict.checks[0].reasons[0]
    _, unsettled = verdict_of(evidence({"settle_p99": "<= 1s"}, kinds=("response", "transfer")))
    assert unsettled.checks[0].reasons == ["no settle latency was recorded in the measure phase"]


@pytest.mark.parametrize(
    ("bound", "sustained", "outcome"),
    [
        (">= 0.99 of offered", 0.0, "invalid"),  # of one message that was due
        (">= 1000", 999.95, "invalid"),
        (">= 1000", 999.85, "fail"),
        (">= 1000", 1000.0, "pass"),
        ("<= 999", 999.05, "fail"),  # more arrived than may: an observed fact
    ],
)
def test_one_message_at_the_edge_of_the_phase_fails_no_rate(bound: str, sustained: float, outcome: str) -> None:
    """The phase lasts 10 s, so a message is 0.1 per second."""
    given = evidence({"rate": bound}, rate=0.1 if "offered" in bound else 1000.0, sustained=sustained)
    validity, verdict = verdict_of(given)
    assert outcomes(verdict) == {"rate": outcome}
    assert item(validity, "enough samples").holds == (outcome != "invalid")


def test_a_share_of_an_unbounded_rate_is_not_a_bound() -> None:
    _, verdict = verdict_of(evidence({"rate": ">= 0.5 of offered"}, rate=0))
    assert verdict.outcome is Outcome.INVALID


def test_a_lost_acknowledged_message_is_judged_even_without_a_check() -> None:
    lost = {"lost_acknowledged": 1, "delivered": 999}
    _, verdict = verdict_of(evidence({"rate": "> 0"}, counts=lost))
    assert outcomes(verdict) == {"rate": "pass", "lost_acknowledged": "fail"}
    _, allowed = verdict_of(evidence({"lost": "<= 5"}, counts=lost))
    assert allowed.outcome is Outcome.PASS
    _, unacknowledged = verdict_of(evidence({"rate": "> 0"}, counts={"lost_unacknowledged": 1, "delivered": 999}))
    assert unacknowledged.outcome is Outcome.PASS


def test_a_run_that_stopped_on_its_limit_fails() -> None:
    stopped = ExceededLimit("response_p90", 300 * MS, 200 * MS, "receiver-0")
    _, verdict = verdict_of(evidence({"lost": 0}, exceeded=stopped))
    assert verdict.outcome is Outcome.FAIL
    assert outcomes(verdict) == {"lost": "pass", "response_p90": "fail"}
    assert "receiver-0" in verdict.checks[-1].reasons[0]


@pytest.mark.parametrize(("peak", "outcome"), [(40, "pass"), (41, "fail")])
def test_a_number_of_a_published_table_is_judged(peak: int, outcome: str) -> None:
    rows = {"backlog": [BacklogRow("q", 0, 50, 10, 40, 12), BacklogRow("q", 1, 50, 50, 40, peak)]}
    found = replace(
        evidence({"backlog_peak": "<= 40"}), recoveries=[], read_table=lambda table: rows.get(table.name, [])
    )
    assert outcomes(verdict_of(found)[1]) == {"backlog_peak": outcome}


def test_a_table_without_rows_and_behaviour_that_was_not_computed_are_named() -> None:
    sound = evidence({"backlog_peak": "<= 40"})
    reasons = [verdict_of(each)[1].checks[0].reasons for each in (replace(sound, recoveries=[]), sound)]
    assert reasons == [
        ["the table backlog of this run has no such value"],
        ["the recording is not complete, so its behaviour over time was not computed"],
    ]
