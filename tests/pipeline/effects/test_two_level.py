"""Are the effects those of the published tables, and do their intervals cover planted ones?"""

import csv
from pathlib import Path

import numpy as np
import pytest

from crescendo.model.alias_structure import AliasStructure
from crescendo.model.designs import defining_words, fraction, full_factorial, sign_matrix
from crescendo.pipeline.effects.lenth import lenth_margin
from crescendo.pipeline.effects.two_level import LENTH, REPEATS, TwoLevelEffects, two_level_effects

ROWS = list(csv.DictReader(Path(__file__).with_name("seed_2k4.csv").read_text(encoding="utf-8").splitlines()))
LETTERS = list("cbwd")
PUBLISHED = {
    # Of the 16 rows of the Advanced Systems Lab's 2^4 experiment: processing time in ms and its share in per cent,
    # processed requests and their share.
    "c": (3.4363, 94.02, 227_093.1, 62.25), "b": (-0.0775, 0.05, -108_795.6, 14.29),
    "w": (0.1138, 0.10, 57_036.2, 3.93), "d": (0.5625, 2.52, 237.8, 0.00),
    "c·b": (0.1950, 0.30, -17_122.3, 0.35), "c·w": (0.0313, 0.01, -58_032.3, 4.06),
    "c·d": (-0.0800, 0.05, -34_558.7, 1.44), "b·w": (0.0725, 0.04, 17_030.1, 0.35),
    "b·d": (0.5288, 2.23, 18_621.7, 0.42), "w·d": (0.0325, 0.01, -9_556.1, 0.11),
    "b·w·d": (-0.1563, 0.19, -48_050.4, 2.79), "c·w·d": (0.1650, 0.22, 39_516.2, 1.88),
    "c·b·d": (0.1363, 0.15, -64_140.3, 4.96), "c·b·w": (-0.0550, 0.02, -17_984.4, 0.39),
    "c·b·w·d": (-0.1038, 0.09, 47_962.8, 2.78),
}  # fmt: skip


def seed_effects(column: str) -> TwoLevelEffects:
    matrix = full_factorial([2] * 4)  # the rows are in this order
    levels = np.array([[float(row[name]) for name in ("clients", "brokers", "workers", "connections")] for row in ROWS])
    np.testing.assert_array_equal(matrix, levels > levels.min(axis=0))
    return two_level_effects(LETTERS, matrix, [[float(row[column])] for row in ROWS])


def test_the_table_of_the_published_experiment_is_reproduced_to_four_decimals() -> None:
    times, requests = seed_effects("pt_ms"), seed_effects("requests")
    assert times.mean == pytest.approx(10.24875, abs=5e-6)
    assert requests.mean == pytest.approx(2_117_045.3, abs=0.05)
    assert (times.total_variation, requests.total_variation) == pytest.approx((200.935, 1.32564e12), rel=3e-6)
    assert {effect.name for effect in times.effects} == PUBLISHED.keys()
    for name, (value, share, count, count_share) in PUBLISHED.items():
        assert times.effect(name).value == pytest.approx(value, abs=5.1e-5), name
        assert requests.effect(name).value == pytest.approx(count, abs=0.051), name
        assert (100 * times.effect(name).share, 100 * requests.effect(name).share) == pytest.approx(
            (share, count_share),
            abs=0.006,  # in per cent, and the last digit of two was truncated
        ), name


def test_without_repeats_lenths_method_names_what_the_published_one_does() -> None:
    times, requests = seed_effects("pt_ms"), seed_effects("requests")
    assert times.basis == requests.basis == LENTH
    assert times.lenth is not None
    assert requests.lenth is not None
    assert times.lenth.margin == pytest.approx(0.354, abs=5e-4)
    assert requests.lenth.margin == pytest.approx(142_835, rel=2e-4)  # computed with t = 2.571, from a table
    assert {effect.name for effect in times.effects if effect.significant} == {"c", "d", "b·d"}
    assert {effect.name for effect in requests.effects if effect.significant} == {"c"}
    assert times.effects[0].name == "c"  # the largest first


def test_a_textbook_design_with_repeats_has_the_textbook_numbers() -> None:
    """2^2·3 of Jain, chapter 18: memory and cache; effects 41, 21.5, 9.5, 5 and intervals of ±1.92 at 90 %."""
    effects = two_level_effects(
        ["A", "B"], np.array([[0, 0], [1, 0], [0, 1], [1, 1]]), [[15, 18, 12], [45, 48, 51], [25, 28, 19], [75, 75, 81]]
    )
    assert (effects.mean, effects.basis, effects.degrees_of_freedom) == (41, REPEATS, 8)
    assert {each.name: each.value for each in effects.effects} == {"A": 21.5, "B": 9.5, "A·B": 5}
    assert [round(100 * effects.effect(name).share, 2) for name in ("A", "B", "A·B")] == [78.88, 15.4, 4.27]
    assert effects.error_share == pytest.approx(0.0145, abs=5e-5)
    # Standard error 1.03; the 95 % quantile of t with 8 degrees of freedom is 2.306.
    low, high = effects.effect("B").low, effects.effect("B").high
    assert low is not None
    assert high is not None
    assert (high - low) / 2 == pytest.approx(2.306 * 1.0308, abs=2e-3)


def test_intervals_cover_planted_effects_and_nothing_else() -> None:
    """93 to 97 % of them, over 1,500 simulated campaigns of a 2^3 design with three repeats."""
    random = np.random.default_rng(20260102)
    matrix = full_factorial([2] * 3)
    signs = sign_matrix(matrix)
    planted = {"a": 5.0, "b": -2.0, "a·c": 1.0}
    truth = 100 + 5 * signs[:, 0] - 2 * signs[:, 1] + signs[:, 0] * signs[:, 2]
    covered = []
    for _ in range(1500):
        values = truth[:, None] + random.normal(0, 2, (8, 3))
        effects = two_level_effects(list("abc"), matrix, values.tolist())
        covered += [(each.low or 0) <= planted.get(each.name, 0.0) <= (each.high or 0) for each in effects.effects]
    assert 0.93 < np.mean(covered) < 0.97


def test_unequal_repeats_cover_planted_effects_too() -> None:
    """`until` repeats some points more often than others."""
    random = np.random.default_rng(7)
    matrix = full_factorial([2] * 2)
    truth = 10 + 3 * sign_matrix(matrix)[:, 1]
    covered = []
    for _ in range(2000):
        values = [(truth[point] + random.normal(0, 1, count)).tolist() for point, count in enumerate((2, 3, 6, 4))]
        effects = two_level_effects(list("ab"), matrix, values)
        covered += [(each.low or 0) <= 3.0 * (each.name == "b") <= (each.high or 0) for each in effects.effects]
    assert 0.93 < np.mean(covered) < 0.97


def test_a_fraction_reports_what_it_cannot_tell_apart() -> None:
    names = list("abcd")
    stated = {"d": ["a", "b", "c"]}
    matrix = fraction(names, stated)
    signs = sign_matrix(matrix)
    values = 10 + 2 * signs[:, 0] + 1.5 * signs[:, 2] * signs[:, 3]  # the interaction c·d is real, not a·b
    aliases = AliasStructure(tuple(names), tuple(defining_words(stated, names)))
    effects = two_level_effects(names, matrix, [[value] for value in values], aliases)
    assert len(effects.effects) == 7
    assert effects.effect("a").value == pytest.approx(2)
    assert effects.effect("a").aliases == ("b·c·d",)
    assert effects.effect("a·b").value == pytest.approx(1.5)
    assert effects.effect("a·b").aliases == ("c·d",)


def test_effects_of_a_constant_are_nothing() -> None:
    effects = two_level_effects(["a", "b"], full_factorial([2, 2]), [[3.0, 3.0]] * 4)
    assert [each.significant for each in effects.effects] == [False] * 3
    assert effects.error_share == 0.0


def test_lenths_margin_keeps_its_promise_when_nothing_has_an_effect() -> None:
    """At most one effect in twenty lies beyond the margin by chance.

    The approximation is known to be cautious: for 15 effects, 2.156 instead of 2.571 would be exact
    (Ye and Hamada 2000).
    """
    random = np.random.default_rng(3)
    beyond = [np.mean(np.abs(effects) > lenth_margin(effects).margin) for effects in random.normal(0, 1, (3000, 15))]
    assert 0.015 < np.mean(beyond) < 0.05
