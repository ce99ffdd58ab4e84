"""Is the variance table the one that SciPy and the definitions give?"""

import numpy as np
import pytest
from scipy import stats

from crescendo.model.designs import full_factorial, latin_hypercube, one_at_a_time, sign_matrix
from crescendo.pipeline.effects.anova import variance_table
from crescendo.pipeline.effects.residuals import residuals_of, scale_advice
from crescendo.pipeline.effects.two_level import two_level_effects


def test_one_factor_is_scipys_analysis_of_variance() -> None:
    random = np.random.default_rng(1)
    groups = [random.normal(mean, 1, 5).tolist() for mean in (10, 11, 13)]
    table = variance_table(["broker"], full_factorial([3]), groups)
    expected = stats.f_oneway(*groups)
    term = table.term("broker")
    assert (term.ratio, term.p_value) == pytest.approx((expected.statistic, expected.pvalue))
    assert [each.value for each in term.levels] == pytest.approx([np.mean(each) - np.mean(groups) for each in groups])


def test_two_factors_follow_the_definitions_of_a_balanced_design() -> None:
    random = np.random.default_rng(2)
    cells = random.normal(0, 1, (3, 4, 2)) + np.arange(3)[:, None, None] * 2 + np.arange(4)[None, :, None]
    table = variance_table(["a", "b"], full_factorial([3, 4]), cells.reshape(12, 2).tolist())
    mean = cells.mean()
    rows, columns = cells.mean(axis=(1, 2)) - mean, cells.mean(axis=(0, 2)) - mean
    crossed = cells.mean(axis=2) - mean - rows[:, None] - columns[None, :]
    expected = {"a": 8 * (rows**2).sum(), "b": 6 * (columns**2).sum(), "a·b": 2 * (crossed**2).sum()}
    assert {term.name: term.squares for term in table.terms} == pytest.approx(expected)
    error = ((cells - cells.mean(axis=2, keepdims=True)) ** 2).sum()
    assert (table.error_squares, table.error_freedom, table.error_is_pure) == (pytest.approx(error), 12, True)
    assert table.lack_of_fit == pytest.approx(0, abs=1e-9)
    p_value = stats.f.sf((expected["a"] / 2) / (error / 12), 2, 12)
    assert table.term("a").p_value == pytest.approx(p_value)
    assert sum(term.share for term in table.terms) + table.error_share == pytest.approx(1)


def test_two_levels_give_the_same_as_the_two_level_effects() -> None:
    random = np.random.default_rng(3)
    matrix = full_factorial([2, 2, 2])
    values = (5 + sign_matrix(matrix)[:, :1] + random.normal(0, 0.3, (8, 2))).tolist()
    table, effects = variance_table(list("abc"), matrix, values), two_level_effects(list("abc"), matrix, values)
    for name in ("a", "b", "c", "a·b"):
        assert table.term(name).share == pytest.approx(effects.effect(name).share)
    upper = table.term("a").levels[1]
    assert (upper.value, upper.low, upper.high) == pytest.approx(
        (effects.effect("a").value, effects.effect("a").low, effects.effect("a").high)
    )


def test_interactions_that_the_design_cannot_separate_are_named() -> None:
    values = [[1.0, 1.1], [2.0, 2.1], [4.0, 4.2]]
    table = variance_table(["a", "b"], one_at_a_time([2, 2]), values)
    assert table.not_separable == ("a·b",)
    assert {term.name for term in table.terms} == {"a", "b"}


def test_a_latin_hypercube_recovers_linear_effects() -> None:
    """Coefficients per half range, within their own intervals in 93 to 97 % of simulated campaigns."""
    random = np.random.default_rng(4)
    matrix = latin_hypercube(2, 20, seed=5)
    scaled = [2 * (column - column.min()) / (column.max() - column.min()) - 1 for column in matrix.T]
    covered = []
    for _ in range(400):
        values = 50 + 4 * scaled[0] - 2 * scaled[1] + random.normal(0, 1, 20)
        table = variance_table(["x", "y"], matrix, [[value] for value in values], linear=True)
        for name, truth in (
            ("x", 4.0),
            ("y", -2.0),
        ):
            (level,) = table.term(name).levels
            covered.append((level.low or 0) <= truth <= (level.high or 0))
    assert 0.92 < np.mean(covered) < 0.98


def test_residuals_that_grow_with_the_values_ask_for_logarithms_and_others_do_not() -> None:
    random = np.random.default_rng(6)
    means = np.array([1.0, 10.0, 100.0, 1000.0])[:, None]
    assert scale_advice((means * np.exp(random.normal(0, 0.2, (4, 6)))).tolist()).logarithmic
    assert not scale_advice((means + random.normal(0, 0.1, (4, 6))).tolist()).logarithmic
    seconds = 2 * np.exp(random.normal(0, 0.003, (4, 6)))
    assert scale_advice((1e9 * seconds).tolist()).power == scale_advice(seconds.tolist()).power  # in nanoseconds
    assert "too few" in scale_advice([[1.0, 2.0], [3.0]]).reason
    assert "no logarithm" in scale_advice([[0.0, 2.0, 1.0], [3.0, 4.0, 5.0]]).reason
    assert "do not vary" in scale_advice([[2.0] * 3, [3.0] * 3]).reason


def test_residuals_have_the_quantiles_of_their_rank() -> None:
    found = residuals_of([[1.0, 3.0], [10.0, 14.0]])
    assert [(each.fitted, each.residual) for each in found] == [(12, -2), (2, -1), (2, 1), (12, 2)]
    assert [each.normal for each in found] == pytest.approx(stats.norm.ppf([0.125, 0.375, 0.625, 0.875]))
