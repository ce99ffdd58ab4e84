"""The page about performance is what one `make bench` found, and says where we are behind."""

import pytest
from bench.performance_page import page_of
from bench.results import BenchResults, Comparison, Figure, compare, read_results, write_results

MACHINE = {"cores": 2, "processor": "a processor", "memory_bytes": 2**33, "system": "Linux 1", "load_before": 3.5}


def results(*comparisons: Comparison, figures: tuple[Figure, ...] = ()) -> BenchResults:
    return BenchResults("v1", MACHINE, {"python": "3.11"}, 4.0, ["clients"], list(comparisons), list(figures))


def test_ours_is_always_above_the_line_and_the_median_counts() -> None:
    found = compare("clients", "AMQP", "µs", "proton", [(1.0, 4.0), (3.0, 4.0), (1.0, 2.0)])
    assert found.ratios == [0.25, 0.5, 0.75]
    assert (found.ratio, found.ours, found.theirs) == (0.5, 1.0, 4.0)


@pytest.mark.parametrize(
    ("less_is_better", "ratio", "wanted", "is_ahead", "is_met"),
    [(True, 0.5, 0.4, True, False), (True, 1.5, 1.6, False, True), (False, 1.1, 1.2, True, False)],
)
def test_ahead_and_as_wanted_are_not_the_same(
    less_is_better: bool, ratio: float, wanted: float, is_ahead: bool, is_met: bool
) -> None:
    found = Comparison("clients", "AMQP", "µs", "proton", ratio, 1.0, [ratio], wanted, less_is_better)
    assert (found.is_ahead, found.is_met) == (is_ahead, is_met)


def test_what_is_behind_or_not_as_wanted_is_named() -> None:
    ahead = Comparison("clients", "AMQP", "µs", "proton", 1.0, 2.0, [0.5], 0.6)
    short = Comparison("clients", "MQTT", "µs", "paho", 1.0, 2.0, [0.5], 0.4)
    behind = Comparison("clients", "STOMP", "msg/s", "stomp.py", 1.0, 2.0, [0.5], less_is_better=False)
    _, last = page_of(results(ahead, short, behind)).split("## What is not ahead")
    assert "AMQP" not in last
    assert "- Python clients of other authors: MQTT, µs: 0.5 (0.5 to 0.5), wanted ≤ 0.4\n" in last
    assert "- Python clients of other authors: STOMP, msg/s: 0.5" in last
    figures = (Figure("mlmq", "rate", "1/s", 5.0, least=6.0), Figure("mlmq", "CPU", "µs", 5.0, most=6.0))
    _, last = page_of(results(ahead, figures=figures)).split("## What is not ahead")
    assert "- mlmq: rate: 5 1/s (wanted: at least 6)\n" in last
    assert "CPU" not in last


def test_both_sides_of_a_ratio_and_the_load_of_the_machine_are_on_the_page() -> None:
    found = Comparison("clients", "AMQP", "µs", "proton", 1.25, 2.5, [0.4, 0.5, 0.6])
    page = page_of(results(found, figures=(Figure("clients", "memory", "MB", 1234.5, 1000.0),)))
    assert "| AMQP | µs | 1.25 | 2.5 | proton | 0.5 (0.4 to 0.6) |  |" in page
    assert "- memory: 1,234 MB (wanted: at most 1000)" in page
    assert "Load before: 3.5, after: 4.0" in page


def test_results_are_read_as_they_were_written(tmp_path) -> None:  # type: ignore[no-untyped-def]
    found = results(Comparison("clients", "AMQP", "µs", "proton", 1.25, 2.5, [0.5], 0.6))
    write_results(tmp_path / "results.json", found)
    assert read_results(tmp_path / "results.json") == found
