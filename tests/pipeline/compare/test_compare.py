"""Better, worse, no difference or cannot say: each outcome appears when it should, with its reason. No Spark."""

import json
import subprocess
import sys
from fractions import Fraction
from itertools import accumulate
from math import comb, pi, sqrt, tan
from pathlib import Path

import numpy as np
import pytest

from compared_runs import SECONDS, SyntheticRun
from crescendo.cli.compare import compare as verb
from crescendo.model.errors import ConfigError
from crescendo.pipeline.compare.compare import Change, Compared, Comparison, compare
from crescendo.pipeline.compare.intervals import difference, t_quantile
from crescendo.pipeline.compare.loss_test import loss_test, two_sided
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


def test_the_binomial_test_is_the_sum_of_its_terms() -> None:
    share = Fraction(1, 3)
    terms = [comb(12, k) * share**k * (1 - share) ** (12 - k) for k in range(13)]
    for seen in range(13):
        exact = min(2 * min(sum(terms[: seen + 1]), sum(terms[seen:])), Fraction(1))
        assert two_sided(seen, 12, 1 / 3) == pytest.approx(float(exact), rel=1e-9)


def test_the_binomial_test_is_exact_for_many_losses() -> None:
    below = sum(accumulate(range(1, 9_901), lambda term, k: term * (20_001 - k) // k, initial=1))
    assert two_sided(9_900, 20_000, 0.5) == pytest.approx(float(Fraction(2 * below, 2**20_000)), rel=1e-9)


def test_scipy_is_loaded_only_for_an_interval_or_a_test() -> None:
    program = "import sys, crescendo.cli.compare; sys.exit('scipy' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=100)


@pytest.mark.parametrize(
    ("before", "after", "worse"),
    [((0, 1000), (0, 1000), None), ((0, 1000), (1, 1000), True), ((5, 1000), (0, 1000), False),
     ((10, 1000), (12, 1000), None), ((10, 1000), (60, 1000), True), ((60, 1000), (10, 1000), False),
     ((10_000, 10**6), (10_300, 10**6), None), ((10_000, 10**6), (20_000, 2 * 10**6), None)],
)  # fmt: skip
def test_the_loss_test_decides_by_counts_and_threshold(
    before: tuple[int, int], after: tuple[int, int], worse: bool | None
) -> None:
    assert loss_test(*before, *after, threshold=0.05)[0] is worse


# -- runs -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return written(tmp_path_factory.mktemp("base"), *(SyntheticRun(seed) for seed in range(5)))


def test_repeats_of_the_same_system_show_no_difference(base: str, tmp_path: Path) -> None:
    answer = between(base, written(tmp_path, *(SyntheticRun(seed) for seed in range(10, 15))))
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
    assert of(answer, "rate").outcome is Change.SAME
    assert between(slow, base).outcome is Change.BETTER


def test_a_difference_below_the_threshold_does_not_count(base: str, tmp_path: Path) -> None:
    runs = [
        SyntheticRun(seed, rate=970, rate_variation=0.001, settings={"workload": {"rate": 1000}})
        for seed in range(10, 15)
    ]
    less = written(tmp_path, *runs)
    answer = between(base, less)
    assert of(answer, "rate").outcome is Change.SAME
    assert "no more than 5%" in of(answer, "rate").reason
    assert of(between(base, less, threshold=0.01), "rate").outcome is Change.WORSE


def test_a_change_for_the_worse_that_may_be_chance_is_unclear(tmp_path: Path) -> None:
    unsteady = [
        SyntheticRun(seed, variation=0.0, median_ns=median) for seed, median in ((1, 1e6), (2, 1.5e6), (3, 0.8e6))
    ]
    worse = [
        SyntheticRun(seed, variation=0.0, median_ns=median) for seed, median in ((4, 1.3e6), (5, 1.9e6), (6, 1.0e6))
    ]
    answer = between(written(tmp_path / "a", *unsteady), written(tmp_path / "b", *worse))
    assert answer.outcome is Change.UNCLEAR
    assert "may be chance" in of(answer, "response_p50").reason


def test_pooled_percentiles_come_from_all_samples_together(tmp_path: Path) -> None:
    runs = [SyntheticRun(1, variation=0.0, median_ns=1e6), SyntheticRun(2, variation=0.0, median_ns=4e6)]
    side = run_group(written(tmp_path, *runs), NO_LAKE)
    ordered = []
    for run in runs:  # the same draws as in SyntheticRun.write
        random = np.random.default_rng(run.seed)
        random.normal(0, 0.0), random.normal(0, run.rate_variation)
        rate = run.rate * np.exp(np.random.default_rng(run.seed).normal(0, 1, 2)[1] * run.rate_variation)
        per_second = random.normal(rate, rate * 0.005, SECONDS).round().astype(np.int64)
        ordered += [random.lognormal(np.log(run.median_ns), 0.4, count) for count in per_second]
    values = np.sort(np.concatenate(ordered).astype(np.int64))
    for name, percent in (("p50", 50), ("p99", 99)):
        true = int(values[int(np.ceil(values.size * percent / 100)) - 1])
        assert side.pooled["response", name].value == pytest.approx(true, rel=1 / 200)
        assert side.pooled["response", name].low <= true <= side.pooled["response", name].high


def test_single_runs_are_compared_by_segments_with_a_note(tmp_path: Path) -> None:
    before = written(tmp_path / "a", SyntheticRun(1, variation=0.0))
    answer = between(before, written(tmp_path / "b", SyntheticRun(2, variation=0.0, median_ns=1.3e6)))
    assert of(answer, "response_p50").basis == "segments"
    assert of(answer, "response_p99.9").basis == "ranks"  # a segment has too few samples for it
    assert answer.outcome is Change.WORSE
    assert any("one run per side" in note for note in answer.notes)
    assert between(before, before).outcome is Change.SAME


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


def test_a_difference_smaller_than_the_clock_error_is_unclear(base: str, tmp_path: Path) -> None:
    runs = [SyntheticRun(seed, median_ns=1.3e6, bound_ns=10**7) for seed in range(10, 13)]
    answer = between(base, written(tmp_path, *runs))
    assert of(answer, "response_p50").outcome is Change.UNCLEAR
    assert "clocks" in of(answer, "response_p50").reason


def test_different_settings_are_noted(base: str, tmp_path: Path) -> None:
    runs = [SyntheticRun(seed, settings={"workload": {"rate": 1000, "size": 4096}}) for seed in range(10, 12)]
    notes = between(base, written(tmp_path, *runs)).notes
    assert any("size" in note and "4096" in note.replace(",", "") for note in notes)


# -- the command ----------------------------------------------------------------------------------------------------


def test_the_command_takes_patterns_prints_reasons_and_exits_by_the_outcome(
    base: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path / "slow", *(SyntheticRun(seed, median_ns=1.5e6) for seed in range(10, 13)))
    assert verb(f"{base}/run-*", str(tmp_path / "slow" / "run-[01]"), NO_LAKE, 5.0, False) == 1
    output = capsys.readouterr().out
    assert "5 repeats" in output
    assert "response_p99" in output
    assert "COMPARISON worse" in output
    assert verb(base, base, NO_LAKE, 5.0, True) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["outcome"] == "no difference"
    assert len(answer["baseline"]) == 5


def test_invalid_comparisons_are_refused_with_a_cure(base: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="neither a recording"):
        verb("nothing-of-the-kind", base, NO_LAKE, 5.0, False)
    with pytest.raises(ConfigError, match="--threshold"):
        verb(base, base, NO_LAKE, -1.0, False)
    mixed = written(tmp_path / "mixed", SyntheticRun(1), SyntheticRun(2, name="other"))
    with pytest.raises(ConfigError, match="different experiments"):
        verb(base, mixed, NO_LAKE, 5.0, False)
    fresh = SyntheticRun(3).write(tmp_path / "fresh")
    (fresh / "summary.json").unlink()
    with pytest.raises(ConfigError, match="not analysed yet"):
        verb(base, str(fresh), NO_LAKE, 5.0, False)
