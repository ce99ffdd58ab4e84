"""Better, worse, no difference or cannot say: each outcome appears when it should, with its reason. No Spark."""

import json
import re
import subprocess
import sys
from fractions import Fraction
from math import comb, pi, sqrt, tan
from pathlib import Path

import numpy as np
import pytest

from compared_runs import SyntheticRun
from crescendo.cli.compare import compare as verb
from crescendo.model.errors import ConfigError
from crescendo.pipeline.compare.changes import MeasuredValue, relative_change
from crescendo.pipeline.compare.compare import Change, Compared, Comparison, compare
from crescendo.pipeline.compare.intervals import difference, each_confidence, t_quantile
from crescendo.pipeline.compare.loss_test import loss_ratio, loss_test, share_interval
from crescendo.pipeline.compare.outcomes import format_change, outcome_of
from crescendo.pipeline.compare.runs import run_group
from crescendo.record.manifest import State
from crescendo.record.summary import Validity

NO_LAKE = Path("there-is-none")


def written(folder: Path, *runs: SyntheticRun) -> str:
    for number, run in enumerate(runs):
        run.write(folder / f"run-{number}")
    return str(folder)


def between(before: str, after: str, threshold: float = 0.05) -> Comparison:
    return compare(run_group(before, NO_LAKE), run_group(after, NO_LAKE), threshold)


def of(answer: Comparison, metric: str) -> Compared:
    return next(compared for compared in answer.metrics if compared.metric == metric)


# -- the arithmetic, against published tables and counting -------------------------------------------------------------


@pytest.mark.parametrize(
    ("dof", "table"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (9, 2.262), (30, 2.042), (120, 1.980), (1e6, 1.960)],
)
def test_t_quantiles_match_published_tables(dof: float, table: float) -> None:
    assert t_quantile(dof) == pytest.approx(table, abs=0.0006)


def test_t_quantiles_of_one_and_two_degrees_of_freedom_are_exact() -> None:
    assert t_quantile(1) == pytest.approx(tan(pi * 0.475), rel=1e-9)
    assert t_quantile(2) == pytest.approx(0.95 * sqrt(2 / (1 - 0.95**2)), rel=1e-9)
    assert t_quantile(2) < t_quantile(1.5) < t_quantile(1)  # Welch's degrees of freedom are not whole


def test_an_interval_has_its_nominal_coverage() -> None:
    """A thousand pairs of samples whose true difference is 1; spreads and sizes differ."""
    random = np.random.default_rng(3)
    held = 0
    for _ in range(1000):
        found = difference(random.normal(0, 1, 4).tolist(), random.normal(1, 3, 6).tolist())
        assert found is not None
        held += found.low <= 1 <= found.high
    assert 0.93 <= held / 1000 <= 0.98


def test_a_single_value_is_judged_by_the_spread_of_the_others() -> None:
    random = np.random.default_rng(4)
    held = 0
    for _ in range(1000):
        found = difference(random.normal(0, 1, 5).tolist(), random.normal(2, 1, 1).tolist())
        assert found is not None
        held += found.low <= 2 <= found.high
    assert 0.93 <= held / 1000 <= 0.97
    assert difference([1.0], [2.0]) is None


def test_the_interval_of_a_share_has_the_exact_binomial_tails() -> None:
    """At each end the outcome, or one further away, has a probability of 2.5 %: counted with whole numbers."""
    for seen in range(13):
        low, high = (Fraction(end).limit_denominator(10**12) for end in share_interval(seen, 12))
        at_low = sum(comb(12, k) * low**k * (1 - low) ** (12 - k) for k in range(seen, 13))
        at_high = sum(comb(12, k) * high**k * (1 - high) ** (12 - k) for k in range(seen + 1))
        assert (seen == 0 and low == 0) or float(at_low) == pytest.approx(0.025, rel=1e-6)
        assert (seen == 12 and high == 1) or float(at_high) == pytest.approx(0.025, rel=1e-6)


def test_the_ratio_of_loss_rates_counts_what_was_owed() -> None:
    ratio = loss_ratio(100, 10_000, 100, 5_000)
    assert ratio.value == pytest.approx(2.0)
    assert 1.4 < ratio.low < 2.0 < ratio.high < 2.8


def test_scipy_is_loaded_only_for_an_interval_or_a_test() -> None:
    program = "import sys, crescendo.cli.compare; sys.exit('scipy' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=100)


@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [((0, 1000), (0, 1000), "no difference"), ((0, 1000), (1, 1000), "worse"), ((5, 1000), (0, 1000), "better"),
     ((10, 1000), (12, 1000), "cannot say"), ((10, 1000), (60, 1000), "worse"), ((60, 1000), (10, 1000), "better"),
     ((10**5, 10**7), (103_000, 10**7), "no difference"), ((10**5, 10**7), (2 * 10**5, 2 * 10**7), "no difference")],
)  # fmt: skip
def test_losses_are_compared_by_counts_and_threshold(
    before: tuple[int, int], after: tuple[int, int], outcome: str
) -> None:
    assert loss_test(*before, *after, threshold=0.05)[0] == outcome


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [(0.06, 0.2, "worse"), (-0.2, -0.06, "better"), (-0.05, 0.05, "no difference"), (0.01, 0.04, "no difference"),
     (0.04, 0.2, "cannot say"), (-0.2, -0.04, "cannot say"), (-1.0, 776_123_570.0, "cannot say")],
)  # fmt: skip
def test_the_interval_alone_decides_and_both_ways_alike(low: float, high: float, outcome: str) -> None:
    assert outcome_of(low, high, 0.05, more_is_better=False) == outcome
    mirrored = {"worse": "better", "better": "worse"}.get(outcome, outcome)
    assert outcome_of(low, high, 0.05, more_is_better=True) == mirrored


def test_huge_changes_are_not_printed_in_digits() -> None:
    assert format_change(776_123_570.213) == "over +999%"
    assert format_change(-0.9999) == "under -99.9%"
    assert format_change(0.1234) == "+12.3%"


def test_twenty_comparisons_of_a_system_with_itself_claim_nothing() -> None:
    """Two runs a side, seven metrics that move together. Twenty such series: 95 % each would allow one claim a series.

    Intervals of 95 % each, as if every metric were the only one, claim something in more than one comparison in ten.
    """
    random = np.random.default_rng(7)
    for variation in (0.02, 0.1, 0.3):
        claims = 0
        for _ in range(400):
            logs = random.normal(0, variation, (2, 2, 1)) * 0.8 + random.normal(0, variation, (2, 2, 7)) * 0.6
            outcomes = []
            for metric in range(7):
                sides = [
                    [MeasuredValue(value, value * 0.99, value * 1.01) for value in np.exp(side[:, metric])]
                    for side in logs
                ]
                change = relative_change(sides[0], sides[1], each_confidence(7))
                assert change is not None
                low, high = change.ratio.low - 1, change.ratio.high - 1
                outcomes.append(outcome_of(low, high, 0.05, more_is_better=False))
                assert outcomes[-1] != "no difference" or high - low <= 0.1
            claims += "worse" in outcomes or "better" in outcomes
        assert claims <= 0.02 * 400


# -- runs -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return written(tmp_path_factory.mktemp("base"), *(SyntheticRun(seed) for seed in range(5)))


def test_repeats_of_the_same_system_show_no_difference(base: str, tmp_path: Path) -> None:
    answer = between(base, written(tmp_path, *(SyntheticRun(seed) for seed in range(10, 15))), threshold=0.3)
    assert answer.outcome is Change.SAME
    assert {compared.metric for compared in answer.metrics} == {
        "rate", "response_p50", "response_p90", "response_p99", "response_p99.9", "lost"
    }  # fmt: skip
    assert of(answer, "response_p99").basis == "repeats"


def test_a_slower_system_is_worse_and_a_faster_one_better(base: str, tmp_path: Path) -> None:
    slow = written(tmp_path / "slow", *(SyntheticRun(seed, median_ns=1.2e6) for seed in range(10, 15)))
    answer = between(base, slow)
    assert answer.outcome is Change.WORSE
    p99 = of(answer, "response_p99")
    assert p99.outcome is Change.WORSE
    assert p99.change is not None
    assert p99.change_low is not None
    assert p99.change_high is not None
    assert p99.change_low < 0.2 < p99.change_high  # what was planted
    assert p99.change == pytest.approx(0.2, abs=0.05)
    # What is shown and what is said come from one estimator.
    assert p99.baseline.value is not None
    assert p99.run.value == pytest.approx(p99.baseline.value * (1 + p99.change))
    assert p99.baseline.value == pytest.approx(float(np.exp(np.mean(np.log(p99.baseline.runs)))))
    assert of(answer, "rate").outcome is Change.SAME
    assert of(between(slow, base), "response_p99").outcome is Change.BETTER


def test_a_difference_below_the_threshold_does_not_count(base: str, tmp_path: Path) -> None:
    runs = [
        SyntheticRun(seed, rate=970, rate_variation=0.001, settings={"workload": {"rate": 1000}})
        for seed in range(10, 15)
    ]
    less = written(tmp_path, *runs)
    answer = between(base, less)
    assert of(answer, "rate").outcome is Change.SAME
    assert "within 5%" in of(answer, "rate").reason
    assert of(between(base, less, threshold=0.01), "rate").outcome is Change.WORSE


def test_an_interval_wider_than_the_threshold_is_inconclusive(tmp_path: Path) -> None:
    unsteady = [
        SyntheticRun(seed, variation=0.0, median_ns=median) for seed, median in ((1, 1e6), (2, 1.5e6), (3, 0.8e6))
    ]
    worse = [
        SyntheticRun(seed, variation=0.0, median_ns=median) for seed, median in ((4, 1.3e6), (5, 1.9e6), (6, 1.0e6))
    ]
    sides = written(tmp_path / "a", *unsteady), written(tmp_path / "b", *worse)
    for before, after in (sides, sides[::-1], (sides[0], sides[0])):
        answer = between(before, after)
        assert answer.outcome is Change.UNCLEAR
        assert "too wide for a threshold of 5%" in of(answer, "response_p50").reason
        assert "repeats per side would be needed" in of(answer, "response_p50").reason


def test_two_repeats_that_agree_by_chance_prove_nothing(tmp_path: Path) -> None:
    """Their own intervals say how certain each of them is."""
    before = written(tmp_path / "a", *(SyntheticRun(1, variation=0.0, rate=20) for _ in range(2)))
    after = written(tmp_path / "b", *(SyntheticRun(2, variation=0.0, rate=20, median_ns=1.1e6) for _ in range(2)))
    median = of(between(before, after), "response_p50")
    assert median.baseline.runs[0] == median.baseline.runs[1]
    assert median.outcome is Change.UNCLEAR


def test_repeats_that_chance_could_put_in_this_order_prove_nothing(tmp_path: Path) -> None:
    """Twice on a quiet machine and twice on a busy one, by turns: far apart, and the same system."""
    quiet, busy = (6.8e6, 10.4e6, 8.2e6), (103e6, 131e6, 115e6)

    def side(name: str, medians: tuple[float, ...]) -> str:
        runs = (SyntheticRun(seed, variation=0.0, median_ns=median) for seed, median in enumerate(medians))
        return written(tmp_path / name, *runs)

    two, three = (side(f"quiet-{count}", quiet[:count]) for count in (2, 3))
    busy_two, busy_three = (side(f"busy-{count}", busy[:count]) for count in (2, 3))
    for before, after in ((two, busy_two), (busy_two, two), (two, busy_three), (busy_three, two)):
        (found,) = compare(run_group(before, NO_LAKE), run_group(after, NO_LAKE), 0.05, ["response_p50"]).metrics
        assert found.outcome is Change.UNCLEAR
        assert "3 repeats per side are needed for a claim" in found.reason
    (found,) = compare(run_group(three, NO_LAKE), run_group(busy_three, NO_LAKE), 0.05, ["response_p50"]).metrics
    assert found.outcome is Change.WORSE


def test_fewer_metrics_need_fewer_repeats(base: str, tmp_path: Path) -> None:
    after = written(tmp_path, *(SyntheticRun(seed) for seed in range(10, 15)))
    groups = run_group(base, NO_LAKE), run_group(after, NO_LAKE)
    (alone,), every = compare(*groups, 0.05, ["response_p99"]).metrics, compare(*groups, 0.05)
    among = of(every, "response_p99")
    assert None not in (alone.change_low, alone.change_high, among.change_low, among.change_high)
    assert among.change_low < alone.change_low < alone.change_high < among.change_high  # type: ignore[operator]
    assert every.confidence == pytest.approx(1 - 0.05 / 6)
    with pytest.raises(ConfigError, match="no metric is called"):
        compare(*groups, 0.05, ["response_p98"])
    with pytest.raises(ConfigError, match="only rate, lost and percentiles"):
        compare(*groups, 0.05, ["duplicated"])
    assert compare(*groups, 0.05, ["settle_p99"]).outcome is Change.UNCLEAR  # not measured


def test_single_runs_are_compared_by_their_intervals_with_a_note(tmp_path: Path) -> None:
    before = written(tmp_path / "a", SyntheticRun(1, variation=0.0, rate=2000))
    answer = between(before, written(tmp_path / "b", SyntheticRun(2, variation=0.0, rate=2000, median_ns=1.3e6)))
    assert answer.outcome is Change.WORSE
    for metric in ("response_p50", "response_p99"):  # these runs are short for p99.9
        found = of(answer, metric)
        assert (found.outcome, found.basis) == (Change.WORSE, "runs")
        assert found.change_low is not None
        assert found.change_high is not None
        assert found.change_low < 0.3 < found.change_high
        assert found.change_high - found.change_low < 0.7
    assert any("one run per side" in note for note in answer.notes)


def test_a_percentile_without_an_interval_is_inconclusive(tmp_path: Path) -> None:
    runs = [written(tmp_path / str(seed), SyntheticRun(seed, rate=500, median_ns=1e6 * seed)) for seed in (1, 2)]
    for before, after in (runs, runs[::-1], (runs[0], runs[0])):
        tail = of(between(before, after), "response_p99.9")
        assert (tail.outcome, tail.baseline.low) == (Change.UNCLEAR, None)
        assert "too few independent samples" in tail.reason


def test_a_loss_where_there_was_none_is_worse(base: str, tmp_path: Path) -> None:
    answer = between(base, written(tmp_path, SyntheticRun(20, lost=1)))
    assert of(answer, "lost").outcome is Change.WORSE
    assert answer.outcome is Change.WORSE


def test_doubtful_evidence_is_never_better_or_worse(base: str, tmp_path: Path) -> None:
    lost_peer = Validity("every peer finished", False, "sender-0 was lost")
    runs = [
        SyntheticRun(20, median_ns=2e6, validity=(lost_peer,), state=State.INCOMPLETE),
        SyntheticRun(21, median_ns=2e6),
    ]
    answer = between(base, written(tmp_path / "lost", *runs))
    assert {compared.outcome for compared in answer.metrics} == {Change.UNCLEAR}
    assert any("sender-0 was lost" in doubt for doubt in answer.doubts)
    slow = Validity("generator kept up", False, "the generator was late")
    answer = between(base, written(tmp_path / "slow", SyntheticRun(20, median_ns=2e6, validity=(slow,), lost=3)))
    assert of(answer, "response_p99").outcome is Change.UNCLEAR
    assert of(answer, "lost").outcome is Change.WORSE  # a slow generator does not lose messages that were sent


def test_a_difference_that_our_own_delay_could_explain_is_unclear(base: str, tmp_path: Path) -> None:
    def slower(folder: str, share: float | None, **more: int) -> Comparison:
        runs = [SyntheticRun(seed, median_ns=1.5e6, own_delay_share=share, **more) for seed in range(10, 13)]
        return between(base, written(tmp_path / folder, *runs))

    assert of(slower("theirs", 0.02), "response_p99").outcome is Change.WORSE
    ours = of(slower("ours", 0.4), "response_p99")
    assert ours.outcome is Change.UNCLEAR
    assert ours.reason.startswith("own delay could explain it: +")
    # Half of each latency is ours on both sides: the other half is slower too.
    both = [SyntheticRun(seed, own_delay_share=0.5) for seed in range(3)]
    runs = [SyntheticRun(seed, median_ns=1.5e6, own_delay_share=0.5) for seed in range(10, 13)]
    answer = between(written(tmp_path / "before", *both), written(tmp_path / "after", *runs))
    assert of(answer, "response_p99").outcome is Change.WORSE
    # What was still arriving may have been lost or not.
    assert of(slower("arriving", None, undelivered=5), "lost").outcome is Change.UNCLEAR


def test_a_difference_smaller_than_the_clock_error_is_unclear(base: str, tmp_path: Path) -> None:
    runs = [SyntheticRun(seed, median_ns=1.3e6, bound_ns=10**7) for seed in range(10, 13)]
    answer = between(base, written(tmp_path, *runs))
    assert of(answer, "response_p50").outcome is Change.UNCLEAR
    assert "clocks" in of(answer, "response_p50").reason


def test_different_settings_are_noted(base: str, tmp_path: Path) -> None:
    runs = [SyntheticRun(seed, settings={"workload": {"rate": 1000, "size": 4096}}) for seed in range(10, 12)]
    notes = between(base, written(tmp_path, *runs)).notes
    assert any("size (none) → 4096" in note for note in notes), notes


# -- the command ----------------------------------------------------------------------------------------------------


def test_the_command_takes_patterns_prints_reasons_and_exits_by_the_outcome(
    base: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path / "slow", *(SyntheticRun(seed, median_ns=2.5e6) for seed in range(10, 14)))
    assert verb(f"{base}/run-*", str(tmp_path / "slow" / "run-[0123]"), NO_LAKE, 5.0) == 1
    output = capsys.readouterr().out
    assert "5 repeats" in output
    assert "COMPARISON worse" in output
    rows = [line for line in output.splitlines() if line.lstrip().startswith(("rate", "response", "lost"))]
    assert len({re.search("worse|better|no difference|cannot say", row).start() for row in rows}) == 1  # type: ignore[union-attr]
    assert verb(base, f"{base}/run-[01]", NO_LAKE, 5.0) == 3
    assert verb(base, base, NO_LAKE, 10.0, ["rate", "response_p99"], as_json=True) == 0
    answer = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert answer["outcome"] == "no difference"
    assert len(answer["baseline"]) == 5


def test_invalid_comparisons_are_refused_with_a_cure(base: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="neither a recording"):
        verb("nothing-of-the-kind", base, NO_LAKE, 5.0)
    with pytest.raises(ConfigError, match="--threshold"):
        verb(base, base, NO_LAKE, -1.0)
    mixed = written(tmp_path / "mixed", SyntheticRun(1), SyntheticRun(2, name="other"))
    with pytest.raises(ConfigError, match="different experiments"):
        verb(base, mixed, NO_LAKE, 5.0)
    fresh = SyntheticRun(3).write(tmp_path / "fresh")
    (fresh / "summary.json").unlink()
    with pytest.raises(ConfigError, match="not analysed yet"):
        verb(base, str(fresh), NO_LAKE, 5.0)
