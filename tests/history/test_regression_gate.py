"""Does a gate find planted regressions, and name the first bad run?"""

from collections.abc import Sequence
from xml.etree import ElementTree

import msgspec
import numpy as np
import pytest

from crescendo.history.baseline_file import Baselines, ReviewedChange
from crescendo.history.gate_files import junit_xml, markdown_summary
from crescendo.history.regression_gate import baseline_of, judge_runs
from crescendo.history.run_history import HistoricRun
from crescendo.model.errors import ConfigError
from crescendo.model.verdict import Outcome
from crescendo.pipeline.compare.outcomes import Change


def runs(values: Sequence[float], first: int = 0, outcome: Outcome = Outcome.PASS) -> list[HistoricRun]:
    return [
        HistoricRun(f"run-{at}", "x", "f" * 16, at, outcome, {"rate": value, "response_p99": 1e9 / value})
        for at, value in enumerate(values, first)
    ]


def known(values: Sequence[float] = (1000, 1004, 996)) -> Baselines:
    return Baselines().with_baseline(baseline_of(runs(values), "release"))


def test_equal_runs_pass_and_slower_ones_do_not() -> None:
    assert judge_runs(runs([1001, 999, 1003], 10), [], known(), 0.05).outcome is Change.SAME
    worse = judge_runs(runs([801, 799, 803], 10), [], known(), 0.05)
    assert worse.outcome is Change.WORSE
    assert {each.metric for each in worse.metrics if each.outcome is Change.WORSE} == {"rate", "response_p99"}
    assert judge_runs(runs([1301, 1299, 1303], 10), [], known(), 0.05).outcome is Change.BETTER


def test_a_creeping_change_is_found_in_the_series_and_its_first_run_is_named() -> None:
    """4 % is less than the threshold of the comparison; the series shows it all the same."""
    random = np.random.default_rng(1)
    earlier = runs((1000 + random.normal(0, 4, 12)).tolist(), 3) + runs((960 + random.normal(0, 4, 3)).tolist(), 15)
    result = judge_runs(runs([961, 958, 962], 18), earlier, known(), 0.05)
    rate = next(each for each in result.metrics if each.metric == "rate")
    assert (rate.outcome, rate.first_bad) == (Change.WORSE, "run-15")
    assert "since run-15" in rate.reason
    assert len(rate.series) == 3 + 12 + 3 + 3


def test_a_dismissed_change_is_not_reported_again_until_the_next_baseline() -> None:
    random = np.random.default_rng(1)
    earlier = runs((1000 + random.normal(0, 4, 12)).tolist(), 3) + runs((960 + random.normal(0, 4, 3)).tolist(), 15)
    dismissals = [ReviewedChange("f" * 16, metric, "run-15", "new disks") for metric in ("rate", "response_p99")]
    quiet = msgspec.structs.replace(known(), dismissed=dismissals)
    result = judge_runs(runs([961, 958, 962], 18), earlier, quiet, 0.05)
    assert result.outcome is not Change.WORSE
    assert all(each.dismissed for each in result.metrics)
    assert quiet.with_baseline(baseline_of(runs([960, 961, 962], 20), "")).dismissed == []


def test_an_accepted_level_is_the_new_baseline() -> None:
    earlier = runs([1000, 1001, 999, 1002, 998, 1000]) + runs([900, 901, 899], 6)
    accepted = Baselines().with_baseline(baseline_of(earlier[-3:], "accepted"))
    result = judge_runs(runs([900, 902, 901], 9), earlier, accepted, 0.05)
    assert result.outcome is Change.SAME
    assert all(not each.first_bad for each in result.metrics)


def test_invalid_runs_are_never_used_and_too_few_allow_no_answer() -> None:
    mixed = [*runs([1001, 999], 10), *runs([500], 12, Outcome.INVALID)]
    result = judge_runs(mixed, [], known(), 0.05)
    assert result.outcome is Change.UNCLEAR
    assert result.runs == ["run-10", "run-11"]
    assert "run-12 is invalid and was not used" in result.notes
    with pytest.raises(ConfigError, match="3 or more runs that are not invalid, and there are 2"):
        baseline_of(mixed, "")


def test_a_run_that_fails_its_checks_fails_the_gate() -> None:
    result = judge_runs([*runs([1001, 999], 10), *runs([1000], 12, Outcome.FAIL)], [], known(), 0.05)
    assert result.outcome is Change.WORSE


def test_runs_without_a_baseline_are_refused_with_the_cure() -> None:
    with pytest.raises(ConfigError, match="crescendo baseline set"):
        judge_runs(runs([1]), [], Baselines(), 0.05)


def test_a_ci_server_can_read_the_answer() -> None:
    result = judge_runs(runs([801, 799, 803], 10), [], known(), 0.05)
    suite = ElementTree.fromstring(junit_xml(result))  # noqa: S314 - written above
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "2", "0")
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert (failure.get("message") or "").startswith("worse: ")
    page = markdown_summary(result)
    assert page.startswith("**Performance gate: worse**")
    assert "| `rate` | 1,000 msg/s | 801 msg/s | -19.9% | ✕ worse |" in page
