"""What is said about destinations that were not as the run needs them. No Spark: counts in, verdict out."""

from dataclasses import replace
from typing import Any

import pytest

from crescendo.pipeline.ledger.still_queued import without_queued
from crescendo.pipeline.source.foreign_messages import ForeignMessages, ForeignRun
from crescendo.pipeline.source.imported_counts import ImportedCounts
from crescendo.pipeline.verdict.remarks import remarks_on
from crescendo.pipeline.verdict.verdicts import verdict_of
from evidence_samples import evidence, item, outcomes

EMPTY = "destination was empty"
COPIES = "every receiver of a topic got its own copy"
RUNS = [ForeignRun("0000abcd", 239_017, "max-1")]


def others(**changes: Any) -> ForeignMessages:
    return ForeignMessages(**({"address": "queue://max", "messages": 239_017, "runs": RUNS} | changes))


@pytest.mark.parametrize(
    "check", [{"lost": 0}, {"rate": ">= 999"}, {"response_p99": "<= 1ms"}, {"transfer_max": "<= 1ms"}]
)
def test_with_messages_of_others_in_front_a_check_is_invalid_and_never_fails(check: dict[str, Any]) -> None:
    given = evidence(check, counts={"lost_acknowledged": 1600, "stray": 239_017}, sustained=10.0)
    validity, verdict = verdict_of(replace(given, others=[others()]))
    assert set(outcomes(verdict).values()) == {"invalid"}
    row = item(validity, EMPTY)
    assert not row.holds
    assert row.detail.startswith(
        "239,017 messages of run max-1 were in the way of queue://max; empty it first (purge: true)"
    )


def test_a_destination_that_held_messages_before_the_run_was_not_empty() -> None:
    left = others(messages=1, runs=[], unstamped=1, before=True)
    validity, verdict = verdict_of(replace(evidence({"lost": 0}), others=[left]))
    assert outcomes(verdict) == {"lost": "invalid"}
    assert "queue://max held messages of another program before the run" in item(validity, EMPTY).detail


def test_what_was_purged_is_said_and_undermines_nothing() -> None:
    validity, verdict = verdict_of(replace(evidence({"lost": 0}), others=[others(before=True, purged=True)]))
    assert outcomes(verdict) == {"lost": "pass"}
    assert item(validity, EMPTY).detail == "239,017 messages were purged from queue://max"


def test_strays_of_an_older_recording_are_in_the_way_too() -> None:
    validity, verdict = verdict_of(evidence({"lost": 0}, counts={"stray": 7}))
    assert outcomes(verdict) == {"lost": "invalid"}
    assert "7 messages of another run were in the way" in item(validity, EMPTY).detail


def test_shared_topics_are_never_losses() -> None:
    given = replace(evidence({"lost": 0}, counts={"lost_acknowledged": 500}), shared_topics=["topic://quick"])
    validity, verdict = verdict_of(given)
    assert outcomes(verdict) == {"lost": "invalid"}
    assert "quick is a queue (an anycast address?)" in item(validity, COPIES).detail


def test_what_a_queue_still_holds_is_counted_apart() -> None:
    found = {(0, 0): {"lost": 5, "acknowledged": 7}, (0, 1): {"lost": 3}, (1, 0): {"lost": 2}}
    counted, moved = without_queued(found, {0: 10})  # type: ignore[arg-type]
    assert moved == {0: 10}
    assert counted[0, 0] == {"lost": 2, "acknowledged": 0, "undelivered": 10}
    assert counted[0, 1] == {"lost": 3}
    assert counted[1, 0] == {"lost": 2}


def test_what_a_source_says_about_latency_is_quoted() -> None:
    said = ImportedCounts(("rates",), source_latency={"99th p. consumer latency (µs)": 1234.5})
    assert remarks_on(replace(evidence({"rate": "> 0"}), aggregates=said)) == [
        "latency as the source measured it, medians of its periods: 99th p. consumer latency (µs) 1,234.5"
    ]
