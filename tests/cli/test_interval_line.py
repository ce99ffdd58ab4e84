"""The intervals of percentiles, on the terminal and in the report."""

from crescendo.cli.terminal import interval_line
from crescendo.model.verdict import Outcome, Verdict
from crescendo.record.summary import Latency, Rate, Summary
from crescendo.report.sections.evidence import interval_grid

WHY = "too few independent samples beyond it"


def summary(**fields: object) -> Summary:
    percentiles = {"p50": 1_200_000, "p99": 4_000_000}
    latency = Latency("measure", "response", 1000, 0, 9_000_000, 1e6, 0, percentiles, **fields)  # type: ignore[arg-type]
    return Summary("a", "sealed", Verdict(Outcome.PASS, [], []), [], Rate(0, 0, 0, 0, 0), [latency], [], 0)


def test_an_interval_or_the_reason_for_none_is_shown() -> None:
    judged = summary(intervals_ns={"p50": (1_100_000, 1_300_000)}, no_interval={"p99": WHY})
    assert interval_line(judged) == f"95 % intervals: p50 1.1 ms to 1.3 ms; p99 none, {WHY}"
    (row,) = interval_grid(judged.latency).rows
    assert row[:3] == ["measure", "response", "1.1 ms to 1.3 ms"]
    assert row[5] == WHY


def test_one_reason_for_all_percentiles_is_said_once() -> None:
    assert interval_line(summary(no_interval={"p50": WHY, "p99": WHY})) == f"no 95 % intervals: {WHY}"


def test_a_summary_of_an_earlier_version_shows_nothing() -> None:
    assert interval_line(summary()) == ""
    assert interval_grid(summary().latency).rows == []
