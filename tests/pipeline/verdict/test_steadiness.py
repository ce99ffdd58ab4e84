"""Which drift takes a verdict away, and which does not. No Spark: series in, verdict out."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from msgspec import structs

from crescendo.model.arrays import Floats
from crescendo.model.histogram import bucket_of
from crescendo.model.slices import SliceScope
from crescendo.pipeline.behaviour.backlog import SubscriptionSeries
from crescendo.pipeline.behaviour.steady import BACKLOG, P99, RATE, MeasuredSeries, measured_series
from crescendo.pipeline.behaviour.ticks import Ticks
from crescendo.pipeline.source.moments import Timeline
from crescendo.pipeline.source.run_slices import RunSlice
from crescendo.pipeline.verdict.evidence import Evidence
from crescendo.pipeline.verdict.remarks import remarks_on
from crescendo.pipeline.verdict.verdicts import verdict_of
from crescendo.record.manifest import Phase
from evidence_samples import MS, evidence, item, outcomes

CHECKS = {"rate": ">= 0.9 of offered", "response_p99": "<= 20ms", "response_max": "<= 1s", "lost": 0}
STEADY = np.full(12, 1000.0)


def measured(rate: Floats, p99: Floats, backlog: Floats, checks: dict[str, Any] | None = None) -> Evidence:
    series = [MeasuredSeries(name, values, 1) for name, values in ((RATE, rate), (P99, p99), (BACKLOG, backlog))]
    trends = [trend for each in series if (trend := each.phase_trend) is not None]
    return replace(evidence(CHECKS if checks is None else checks), trends=trends)


def noisy(seed: int, length: int, level: float, spread: float) -> Floats:
    """Log-normal noise, each value half as large as the one before plus something new: seconds are not independent."""
    random = np.random.default_rng(seed)
    noise = np.zeros(length)
    for index in range(length):
        noise[index] = (0.5 * noise[index - 1] if index else 0.0) + random.standard_normal()
    return level * np.exp(spread * noise)


def test_a_steady_run_passes_and_the_list_says_so() -> None:
    validity, verdict = verdict_of(measured(STEADY, STEADY * MS, STEADY))
    assert item(validity, "steady state").holds
    assert set(outcomes(verdict).values()) == {"pass"}


@pytest.mark.parametrize(
    ("series", "invalid"),
    [
        ({"rate": np.linspace(500, 1500, 12)}, {"rate", "response_p99"}),
        ({"p99": np.linspace(5, 20, 12) * MS}, {"response_p99"}),
        ({"backlog": np.linspace(0, 3000, 12)}, {"rate", "response_p99"}),
    ],
)
def test_a_drift_makes_what_is_claimed_to_be_sustained_invalid(series: dict[str, Any], invalid: set[str]) -> None:
    given = {"rate": STEADY, "p99": STEADY * MS, "backlog": STEADY} | series
    validity, verdict = verdict_of(measured(**given))
    assert not item(validity, "steady state").holds
    assert {name for name, outcome in outcomes(verdict).items() if outcome == "invalid"} == invalid
    assert "fail" not in outcomes(verdict).values()


@pytest.mark.parametrize("p99", [np.linspace(5, 20, 12) * MS, np.linspace(20, 5, 12) * MS], ids=["worse", "better"])
def test_a_fail_claims_nothing_beyond_the_run_and_stays_a_fail(p99: Floats) -> None:
    """A system that hung early in the phase has a p99 that falls ever after."""
    failing = measured(STEADY, p99, np.linspace(0, 3000, 12), {"response_p99": "<= 5ms", "rate": ">= 2000"})
    assert outcomes(verdict_of(failing)[1]) == {"response_p99": "fail", "rate": "fail"}


def test_a_latency_that_passes_and_falls_passes() -> None:
    better = measured(STEADY, np.linspace(20, 5, 12) * MS, STEADY)
    assert set(outcomes(verdict_of(better)[1]).values()) == {"pass"}
    (remark,) = remarks_on(better)
    assert remark.startswith("not steady: the p99 falls")


def test_a_drift_that_a_check_names_is_not_said_twice() -> None:
    assert remarks_on(measured(STEADY, np.linspace(5, 20, 12) * MS, STEADY)) == []
    unjudged = measured(STEADY, np.linspace(5, 20, 12) * MS, STEADY, {"lost": 0})
    assert verdict_of(unjudged)[1].outcome.value == "pass"
    (remark,) = remarks_on(unjudged)
    assert remark.startswith("not steady: the p99 rises")


def test_an_accepted_drift_is_a_remark() -> None:
    ramp = measured(np.linspace(500, 1500, 12), STEADY * MS, STEADY)
    accepted = replace(ramp, experiment=structs.replace(ramp.experiment, accept_drift=True))
    validity, verdict = verdict_of(accepted)
    assert item(validity, "steady state").holds
    assert set(outcomes(verdict).values()) == {"pass"}
    assert remarks_on(accepted) == ["not steady: the rate rises over the measure phase (+97% of its median); accepted"]
    assert verdict_of(ramp)[1].outcome.value == "invalid"


def test_seven_seconds_are_too_few_to_take_a_verdict_away() -> None:
    short = measured(np.linspace(500, 1500, 7), np.linspace(1, 20, 7) * MS, np.linspace(0, 3000, 7))
    validity, verdict = verdict_of(short)
    assert "steady state" not in [entry.name for entry in validity]
    assert set(outcomes(verdict).values()) == {"pass"}


def test_lost_messages_are_not_a_backlog() -> None:
    given = measured(STEADY, STEADY * MS, np.linspace(0, 3000, 12), {"rate": ">= 0.9 of offered"})
    lossy = replace(given, total=evidence(counts={"lost_unacknowledged": 3000, "delivered": 9000}).total)
    assert outcomes(verdict_of(lossy)[1]) == {"rate": "pass"}


@pytest.mark.parametrize("length", [8, 12, 20, 300])
def test_noise_is_hardly_ever_called_a_drift(length: int) -> None:
    """Seconds that depend on each other, with a p99 that varies by a factor of two: at most 1 run in 75."""
    runs = 150
    wrong = 0
    for seed in range(runs):
        rate, p99 = noisy(seed, length, 1000, 0.02), noisy(1000 + seed, length, 10.0 * MS, 0.35)
        backlog = noisy(2000 + seed, length, 10, 0.5)
        wrong += verdict_of(measured(rate, p99, backlog))[1].outcome.value != "pass"
    assert wrong <= runs / 75


def test_a_group_that_drifts_takes_only_its_own_checks_away() -> None:
    checks = {"response_p99": "<= 20ms", "main.response_p99": "<= 20ms", "amqp10.response_p99": "<= 20ms"}
    steady = measured(STEADY, STEADY * MS, STEADY, checks)
    drifting = measured(STEADY, np.linspace(5, 20, 12) * MS, STEADY, checks)
    part = RunSlice(SliceScope.GROUP, "main", frozenset({0}), frozenset({0}), frozenset({"main"}), False, False)
    other = replace(part, scope=SliceScope.PROTOCOL, name="amqp10")
    slices = [replace(drifting, run_slice=part), replace(steady, run_slice=other)]
    validity, verdict = verdict_of(steady, slices)
    assert outcomes(verdict) == {
        "response_p99": "pass", "main.response_p99": "invalid", "amqp10.response_p99": "pass"
    }  # fmt: skip
    assert not item(validity, "steady state").holds
    assert item(validity, "steady state").detail.startswith("main: not steady: the p99 rises")


def test_the_trend_of_a_slice_is_that_of_its_own_latencies(tmp_path: Path) -> None:
    """Two groups in one histogram: the latencies of one rise, those of the other stay."""
    rows = [
        {"second": second, "phase": "measure", "kind": "response", "bucket": bucket_of_one(value), "count": 2000,
         "sum_ns": 2000 * value, "min_ns": value, "max_ns": value, "sender_group": group}
        for second in range(12)
        for group, value in (("rising", (5 + second) * MS), ("level", 5 * MS))
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "part.parquet")
    timeline = Timeline.of([Phase("measure", 0, 12 * 10**9)])
    counts = np.full(12, 2000, np.int64)
    stream = SubscriptionSeries(0, 0, *[counts] * 7)
    for group, drifts in (("rising", True), ("level", False)):
        found = measured_series(
            [stream], Ticks(0, 10**9), [tmp_path / "part.parquet"], timeline, pc.field("sender_group") == group
        )
        trend = next(each.phase_trend for each in found if each.metric == P99)
        assert trend is not None
        assert (trend.p < 0.001 and trend.least_change > 5 * MS) is drifts


def bucket_of_one(value: int) -> int:
    return int(bucket_of(np.array([value]))[0])
