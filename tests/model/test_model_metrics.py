"""Is every metric described once, and completely? Do its bounds, its texts and the documentation agree?"""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crescendo.model.metrics import (
    COUNT,
    DURATION,
    LATENCY_KINDS,
    METRICS,
    PERCENTILES,
    STOP_METRICS,
    Metric,
    Need,
    find_metric,
    format_report_value,
    format_value,
    metric_of,
    metric_position,
)
from crescendo.model.peer_statistics import PeerStatistics
from crescendo.model.verdict import Bound, Outcome, check_bound, check_metric, judge_check

DOCS = Path(__file__).parents[2] / "docs"
EVERY = pytest.mark.parametrize("metric", METRICS.values(), ids=list(METRICS))
BOUNDS = [Bound.parse(text) for text in (0, "<= 5", "<= 200ms", "< 2s", ">= 5000 msg/s", ">= 0.99 of offered")]


def documented() -> set[str]:
    """The metrics in the table of docs/experiment.md, with STAT replaced by each statistic that it lists."""
    section = (DOCS / "experiment.md").read_text().split("\n## Checks\n")[1].split("\n## ")[0]
    table = [line for line in section.splitlines() if line.startswith("| `")]
    names = {name for line in table for name in re.findall(r"`([a-z_]+(?:STAT)?)`", line)}
    found = re.search(r"`STAT` is one of `([^`]+)`", section)
    assert found is not None
    return {name.replace("STAT", statistic) for name in names for statistic in found[1].split()}


def test_the_documentation_names_every_metric_and_no_other() -> None:
    of_clients = {metric.name for metric in METRICS.values() if metric.of_clients}
    assert documented() == set(METRICS) - of_clients
    assert all(f"`{name}`" in (DOCS / "mlmq-experiments.md").read_text() for name in of_clients)


@EVERY
def test_a_metric_is_found_by_its_name(metric: Metric) -> None:
    assert METRICS[metric.name] is metric
    assert metric_of(metric.name) is metric
    check_metric(metric.name, has_clients=True)


@EVERY
def test_some_bounds_fit_and_others_are_rejected_with_one_that_fits(metric: Metric) -> None:
    fitting = [bound for bound in BOUNDS if metric.unit.fits(bound.unit)]
    rejected = [bound for bound in BOUNDS if bound not in fitting]
    assert fitting
    assert rejected
    for bound in fitting:
        check_bound(metric.name, bound)
    for bound in rejected:
        with pytest.raises(ValueError, match=rf"^{re.escape(metric.name)}: .* does not fit; it takes ") as refusal:
            check_bound(metric.name, bound)
        (cure,) = re.findall(r"such as '([^']+)'$", str(refusal.value))
        check_bound(metric.name, Bound.parse(cure))


@EVERY
@given(st.floats(0, 1e15))
def test_every_value_is_written_with_its_unit(metric: Metric, value: float) -> None:
    for text in (format_value(metric.name, value), format_report_value(metric.name, value)):
        expected = {COUNT: r"[\d,]+", DURATION: r"[\d,.e+]+ (ns|µs|ms|s)"}.get(metric.unit, r"[\d,.]+ msg/s")
        assert re.fullmatch(expected, text), text


@pytest.mark.parametrize(
    ("name", "value", "terminal", "report"),
    [
        ("rate", 99.5, "100 msg/s", "99.5 msg/s"),
        ("rate", 12345.6, "12,346 msg/s", "12,346 msg/s"),
        ("lost", 1234.0, "1,234", "1,234"),
        ("conservation", 3.0, "3", "3"),
        ("response_p99", 1_500_000.0, "1.5 ms", "1.5 ms"),
        ("of_a_package_that_is_gone", 0.25, "0.25", "0.25"),
    ],
)
def test_the_report_has_room_for_more_digits(name: str, value: float, terminal: str, report: str) -> None:
    assert (format_value(name, value), format_report_value(name, value)) == (terminal, report)


@EVERY
def test_only_additive_counts_are_proven_by_doubtful_evidence(metric: Metric) -> None:
    bound = next(bound for bound in BOUNDS if metric.unit.fits(bound.unit) and bound.caps)
    judged = judge_check(metric.name, bound, 1e18, offered=0.0, reasons=["a receiver died"])
    assert judged.outcome is (Outcome.FAIL if metric.additive else Outcome.INVALID)
    assert not metric.additive or metric.unit is COUNT


def test_latencies_are_all_kinds_with_all_statistics() -> None:
    found = {metric.name: metric.latency for metric in METRICS.values() if metric.latency is not None}
    assert len(found) == len(LATENCY_KINDS) * (len(PERCENTILES) + 3)
    assert all(name == f"{of.kind}_{of.statistic}" for name, of in found.items())
    assert {of.percent for of in found.values()} == {*PERCENTILES.values(), None}
    assert all((metric.latency is None) == (metric.needs is not Need.LATENCIES) for metric in METRICS.values())


def test_a_metric_that_stops_a_run_is_read_from_its_own_statistic() -> None:
    assert STOP_METRICS == ("response_p90", "response_max")
    reported = PeerStatistics(second_response_p90_ns=7.0, second_response_max_ns=9.0)
    values = {name: of(reported) for name in STOP_METRICS if (of := metric_of(name).in_second) is not None}
    assert values == {"response_p90": 7.0, "response_max": 9.0}


def test_lists_follow_the_order_of_the_registry() -> None:
    assert sorted(METRICS, key=metric_position) == list(METRICS)


def test_there_is_no_other_metric() -> None:
    assert find_metric("losses") is None
    with pytest.raises(
        ValueError,
        match=r"no metric is called 'losses'; did you mean 'lost'\? use rate, conservation, lost, .*response_p99",
    ):
        metric_of("losses")
