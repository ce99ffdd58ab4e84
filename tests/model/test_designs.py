"""Do designs have the properties that theory promises? Counted from their matrices."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crescendo.model.alias_structure import AliasStructure, Word
from crescendo.model.designs import (
    Design,
    DesignKind,
    defining_words,
    fraction,
    full_factorial,
    latin_hypercube,
    one_at_a_time,
    sign_matrix,
)
from crescendo.model.factors import Factor, read_factors

NAMES = "abcdefg"


@st.composite
def generators(draw: st.DrawFn) -> tuple[list[str], dict[str, list[str]]]:
    """Base factors, and more factors as different products of them."""
    bases = list(NAMES[: draw(st.integers(3, 4))])
    products = [list(each) for order in range(2, len(bases) + 1) for each in combinations(bases, order)]
    chosen = draw(st.lists(st.sampled_from(products), min_size=1, max_size=3, unique_by=tuple))
    added = NAMES[len(bases) :]
    signed = [[("-" if draw(st.booleans()) else "") + each[0], *each[1:]] for each in chosen]
    return [*bases, *added[: len(signed)]], dict(zip(added, signed, strict=False))


def column(signs: np.ndarray, effect: frozenset[int]) -> np.ndarray:
    return np.prod(signs[:, sorted(effect)], axis=1) if effect else np.ones(len(signs))


@given(st.lists(st.integers(2, 4), min_size=1, max_size=4))
def test_a_full_factorial_has_every_combination_once(counts: list[int]) -> None:
    rows = {tuple(row) for row in full_factorial(counts)}
    assert len(rows) == len(full_factorial(counts)) == np.prod(counts)
    for factor, count in enumerate(counts):
        assert {row[factor] for row in rows} == set(range(count))


@given(st.integers(1, 5))
def test_two_level_columns_are_balanced_and_orthogonal(factors: int) -> None:
    signs = sign_matrix(full_factorial([2] * factors))
    every = [frozenset(each) for order in range(factors + 1) for each in combinations(range(factors), order)]
    columns = np.column_stack([column(signs, effect) for effect in every])
    np.testing.assert_array_equal(columns.T @ columns, len(signs) * np.eye(len(every)))


@settings(max_examples=60)
@given(generators())
def test_aliases_are_exactly_the_effects_with_the_same_column(
    drawn: tuple[list[str], dict[str, list[str]]],
) -> None:
    names, stated = drawn
    signs = sign_matrix(fraction(names, stated))
    assert len(signs) == 2 ** (len(names) - len(stated)) == len(np.unique(signs, axis=0))
    assert not signs.sum(axis=0).any()  # every factor is balanced
    structure = AliasStructure(tuple(names), tuple(defining_words(stated, names)))
    every = [frozenset(each) for order in range(len(names) + 1) for each in combinations(range(len(names)), order)]
    columns = np.column_stack([column(signs, effect) for effect in every])
    products = (columns.T @ columns / len(signs)).round().astype(int)
    for row, effect in zip(products[1:], every[1:], strict=True):
        same = {Word(other, int(sign)) for other, sign in zip(every, row, strict=True) if sign and other != effect}
        assert same == set(structure.aliases(effect))


def test_the_textbook_fraction_has_the_textbook_aliases() -> None:
    """2^(7-4) of Jain, The Art of Computer Systems Performance Analysis, chapter 19: D=AB, E=AC, F=BC, G=ABC."""
    names = list("ABCDEFG")
    stated = {"D": ["A", "B"], "E": ["A", "C"], "F": ["B", "C"], "G": ["A", "B", "C"]}
    structure = AliasStructure(tuple(names), tuple(defining_words(stated, names)))
    assert structure.resolution == 3
    assert len(structure.defining_relation) == 15
    assert len(structure.representatives()) == 7
    assert structure.lines()[1] == "A = B·D = C·E = F·G"


def test_a_half_fraction_of_resolution_four_keeps_main_effects_apart() -> None:
    structure = AliasStructure(tuple("abcd"), tuple(defining_words({"d": ["a", "b", "c"]}, list("abcd"))))
    assert structure.resolution == 4
    assert structure.lines() == ["I = a·b·c·d", "a·b = c·d", "a·c = b·d", "a·d = b·c"]


@given(st.integers(1, 5), st.integers(2, 40), st.integers(0, 2**31))
def test_a_latin_hypercube_has_one_point_in_every_stratum(factors: int, points: int, seed: int) -> None:
    matrix = latin_hypercube(factors, points, seed)
    for values in matrix.T:
        assert sorted(np.floor(values * points)) == list(range(points))
    np.testing.assert_array_equal(matrix, latin_hypercube(factors, points, seed))


@given(st.lists(st.integers(2, 4), min_size=1, max_size=4))
def test_one_at_a_time_changes_one_factor_from_the_first_point(counts: list[int]) -> None:
    rows = one_at_a_time(counts)
    assert not rows[0].any()
    assert sorted(np.count_nonzero(rows, axis=1)) == [0] + [1] * sum(count - 1 for count in counts)


def factors_of(counts: dict[str, int]) -> tuple[Factor, ...]:
    return read_factors({name: list(range(count)) for name, count in counts.items()})


@pytest.mark.parametrize(
    ("design", "counts", "message"),
    [
        (Design(DesignKind.TWO_LEVEL), {"a": 3}, "use kind: full"),
        (Design(DesignKind.FRACTION), {"a": 2, "b": 2}, "design.generators: state them"),
        (Design(DesignKind.FRACTION, {"x": ["a", "b"]}), {"a": 2, "b": 2}, "there is no such factor"),
        (Design(DesignKind.FRACTION, {"c": ["a", "q"]}), {"a": 2, "b": 2, "c": 2}, "no factor is called 'q'"),
        (
            Design(DesignKind.FRACTION, {"c": ["a", "b"], "d": ["b", "a"]}),
            {"a": 2, "b": 2, "c": 2, "d": 2},
            "effects cannot be separated",
        ),
        (Design(DesignKind.LATIN_HYPERCUBE), {"a": 2}, "needs 2 or more"),
        (Design(DesignKind.FULL, points=4), {"a": 2}, "only latin-hypercube"),
        (Design(DesignKind.FULL), dict.fromkeys("abcdef", 10), "1,000,000 points are too many"),
    ],
)
def test_a_design_that_does_not_fit_is_refused(design: Design, counts: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        design.check(factors_of(counts))


def test_equal_products_with_one_more_generator_are_noticed() -> None:
    """c = a·b and d = a·b differ only in their own factor; d = -a·b is the same product too."""
    with pytest.raises(ValueError, match="effects cannot be separated"):
        defining_words({"c": ["a", "b"], "d": ["-a", "b"]}, list("abcd"))


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "write a mapping"),
        ({"workload.rate": 5}, "write a list of levels"),
        ({"workload.rate": [5]}, "give 2 to 1,000 levels"),
        ({"workload.rate": [5, 5]}, "appears twice"),
        ({"r": {"kee": "workload.rate", "levels": [1, 2]}}, "did you mean 'key'"),
        ({"r": {"levels": {"low": {}, "high": {"seed": 1}}}}, "write the keys that it sets"),
        ({"r": {"levels": {"low": {"seed": 1}, "high": {"name": "x"}}}}, "every level must set the same keys"),
        ({"seed": [1, 2], "s": {"key": "seed", "levels": [1, 2]}}, "already set by the factor seed"),
    ],
)
def test_a_mistake_in_factors_is_explained(document: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_factors(document)


def test_a_level_may_set_several_keys() -> None:
    clients, rate = read_factors(
        {
            "clients": {
                "levels": {
                    15: {"clients.a.count": 8, "clients.b.count": 7},
                    30: {"clients.a.count": 16, "clients.b.count": 14},
                }
            },
            "workload.rate": [100, 200],
        }
    )
    assert (clients.levels, clients.key, clients.at(1)) == (
        (15, 30),
        None,
        {"clients.a.count": 16, "clients.b.count": 14},
    )
    assert (rate.key, rate.is_numeric, clients.is_numeric) == ("workload.rate", True, False)


def test_names_of_levels_are_not_values_between_which_a_hypercube_draws() -> None:
    factors = read_factors({"load": {"levels": {1: {"workload.rate": 100}, 2: {"workload.rate": 200}}}})
    with pytest.raises(ValueError, match="those of load are not numbers of one key"):
        Design(DesignKind.LATIN_HYPERCUBE, points=4).check(factors)
