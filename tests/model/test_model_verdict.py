"""Does a verdict follow the rule of three?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crescendo.model.verdict import (
    Bound,
    Check,
    Outcome,
    check_bound,
    check_metric,
    default_checks,
    judge,
    judge_check,
)

PASS, FAIL, INVALID = Outcome.PASS, Outcome.FAIL, Outcome.INVALID


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("<= 200ms", 200e6), ("< 1.5s", 1.5e9), (">=5000 msg/s", 5000), (">= 0.99 of offered", 990), ("== 3", 3),
        (0, 0), (7, 7), (1_234_567, 1_234_567), (1_000_000, 1e6), (0.5, 0.5), (1e-9, 1e-9), (1e22, 1e22), ("> 0", 0),
        ("<=   10  us", 10_000),
    ],
)  # fmt: skip
def test_a_bound_has_the_limit_it_states(text: object, limit: float) -> None:
    assert Bound.parse(text).limit(1000.0) == limit


@pytest.mark.parametrize("text", ["200ms", "<= fast", "=< 3", "<= 3 parsecs", "<=", "", None, True, [], -5, "<= 1.2.3",
                                  float("nan"), float("inf"), "<= .", "<= 5ms of offered", "<= 1_000"])  # fmt: skip
def test_an_invalid_bound_is_rejected(text: object) -> None:
    with pytest.raises(ValueError, match=r"bound|duration"):
        Bound.parse(text)


@given(st.integers(0, 10**15) | st.floats(0, 1e15))
def test_a_plain_number_is_an_exact_bound(number: float) -> None:
    bound = Bound.parse(number)
    assert bound.holds(number)
    assert not bound.holds(number + max(1.0, number / 2**50))
    assert Bound.parse(str(bound)) == bound


@pytest.mark.parametrize(
    ("op", "below", "at", "above"),
    [("<=", True, True, False), ("<", True, False, False), (">=", False, True, True), (">", False, False, True),
     ("==", False, True, False)],
)  # fmt: skip
def test_operators_compare(op: str, below: bool, at: bool, above: bool) -> None:
    bound = Bound.parse(f"{op} 5")
    assert (bound.holds(4), bound.holds(5), bound.holds(6)) == (below, at, above)


@pytest.mark.parametrize("metric", ["p99", "response_p42", "latency_p99", "losses", "response_p999"])
def test_unknown_metrics_are_rejected_with_the_known_ones(metric: str) -> None:
    with pytest.raises(ValueError, match=r"no metric is called .*response_p99"):
        check_metric(metric)


@pytest.mark.parametrize(
    ("metric", "bound"),
    [("rate", ">= 5000"), ("rate", ">= 5000 msg/s"), ("rate", ">= 0.9 of offered"), ("settle_max", "< 2s"),
     ("lost", "<= 5"), ("lost", "0")],
)  # fmt: skip
def test_bounds_in_the_unit_of_their_metric_are_accepted(metric: str, bound: str) -> None:
    check_bound(metric, Bound.parse(int(bound) if bound.isdigit() else bound))


@pytest.mark.parametrize(
    ("metric", "bound", "cure"),
    [("lost", "<= 5ms", "<= 5'"), ("lost", "<= 0.1 of offered", "<= 5'"), ("response_p99", "<= 5", "<= 200ms"),
     ("response_p99", "<= 5 msg/s", "<= 200ms"), ("rate", ">= 5s", ">= 5000")],
)  # fmt: skip
def test_bounds_in_another_unit_are_rejected(metric: str, bound: str, cure: str) -> None:
    with pytest.raises(ValueError, match=f"^{metric}: .*{bound}.* does not fit; .*{cure}"):
        check_bound(metric, Bound.parse(bound))


@pytest.mark.parametrize(
    ("metric", "bound", "value", "reasons", "outcome"),
    [
        ("response_p99", "<= 5ms", 4e6, [], PASS),
        ("response_p99", "<= 5ms", 6e6, [], FAIL),
        ("response_p99", "<= 5ms", 6e6, ["few samples"], INVALID),
        ("response_p99", "<= 5ms", None, [], INVALID),
        ("lost", 0, 3, ["a receiver died"], INVALID),  # the dead receiver may have received them
        ("duplicated", 0, 3, ["a receiver died"], FAIL),  # missing evidence could only add to it
        ("duplicated", 0, 0, ["a receiver died"], INVALID),
        ("duplicated", ">= 1", 3, ["a receiver died"], INVALID),
        ("rate", ">= 0.99 of offered", 990, [], PASS),
        ("rate", ">= 0.99 of offered", 989, [], FAIL),
    ],
)
def test_a_check_fails_only_on_sound_evidence(
    metric: str, bound: object, value: float | None, reasons: list[str], outcome: Outcome
) -> None:
    check = judge_check(metric, Bound.parse(bound), value, offered=1000.0, reasons=reasons)
    assert check.outcome is outcome
    assert (check.outcome is INVALID) <= bool(check.reasons)


@given(st.lists(st.sampled_from(list(Outcome)), max_size=6), st.lists(st.just("a doubt"), max_size=1))
def test_the_rule_of_three(outcomes: list[Outcome], reasons: list[str]) -> None:
    checks = [Check("lost", "== 0", 0, 0, outcome) for outcome in outcomes]
    verdict = judge(checks, reasons).outcome
    if FAIL in outcomes:
        assert verdict is FAIL
    elif INVALID in outcomes or reasons or not outcomes:
        assert verdict is INVALID
    else:
        assert verdict is PASS


def test_every_run_has_default_checks() -> None:
    assert default_checks(bounded=True) == {"lost": "== 0", "rate": ">= 0.99 of offered"}
    assert default_checks(bounded=False)["rate"].holds(1.0)
    assert not default_checks(bounded=False)["rate"].holds(0.0)
