"""How much of the variation does each factor explain, whatever its number of levels?

Analysis of variance by least squares: main effects, and interactions of two factors where the design can separate them.
A term is judged against the pooled variance of the repeats; without repeats, against what the model leaves over.
Factors whose values lie anywhere in a range, as in a Latin hypercube, have one linear term. Plain arithmetic.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from crescendo.model.alias_structure import effect_name
from crescendo.model.arrays import Floats
from crescendo.pipeline.compare.intervals import CONFIDENCE, t_quantile


@dataclass(frozen=True)
class LevelEffect:
    """How far a level of a factor lies from the mean of all levels; of a linear term, its upper end."""

    level: int
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Term:
    """One line of the table: a factor or an interaction."""

    factors: tuple[int, ...]
    name: str
    freedom: int
    squares: float
    share: float
    ratio: float | None = None  # F
    p_value: float | None = None
    levels: tuple[LevelEffect, ...] = ()

    @property
    def significant(self) -> bool | None:
        return None if self.p_value is None else self.p_value < 1 - CONFIDENCE


@dataclass(frozen=True)
class VarianceTable:
    """Every term, the largest first. `lack_of_fit` is what the terms leave over between the points."""

    mean: float
    terms: tuple[Term, ...]
    total_squares: float
    error_squares: float
    error_freedom: int
    error_is_pure: bool
    lack_of_fit: float
    not_separable: tuple[str, ...] = ()
    """Interactions that this design cannot tell apart from other terms."""

    @property
    def error_share(self) -> float:
        return self.error_squares / self.total_squares if self.total_squares else 0.0

    def term(self, name: str) -> Term:
        return next(each for each in self.terms if each.name == name)


@dataclass(frozen=True)
class _Columns:
    factors: tuple[int, ...]
    values: Floats


def variance_table(
    names: Sequence[str], matrix: Floats, values: Sequence[Sequence[float]], *, linear: bool = False
) -> VarianceTable:
    """The table of a design. `values` are the repeats of each point.

    linear: the matrix has values within the range of a factor, not level numbers.
    """
    rows = np.repeat(np.arange(len(values)), [len(each) for each in values])
    observed = np.concatenate([np.asarray(each, float) for each in values])
    mains = [_Columns((at,), _coded(matrix[:, at], linear)) for at in range(len(names))]
    kept, dropped = _separable(mains, _pairs(mains), len(values))
    full = np.column_stack([np.ones(len(values)), *(each.values for each in kept)])
    point_means = np.array([float(np.mean(each)) for each in values])
    pure = float(((observed - point_means[rows]) ** 2).sum())
    left = _squares_left(full[rows], observed)
    pure_freedom, fit_freedom = len(observed) - len(values), len(values) - full.shape[1]
    is_pure = pure_freedom > 0
    error, freedom = (pure, pure_freedom) if is_pure else (left, fit_freedom)
    total = float(((observed - observed.mean()) ** 2).sum())
    coefficients, covariance = _fitted(full[rows], observed)
    terms = []
    first = 1
    for each in kept:
        width = each.values.shape[1]
        mine = slice(first, first + width)
        others = np.delete(full, range(first, first + width), axis=1)
        squares = max(_squares_left(others[rows], observed) - left, 0.0)
        ratio, p_value = _judged(squares, width, error, freedom)
        name = effect_name([names[at] for at in each.factors])
        levels: tuple[LevelEffect, ...] = ()
        if len(each.factors) == 1:
            levels = _level_effects(coefficients[mine], covariance[mine, mine], error, freedom, linear=linear)
        terms.append(
            Term(each.factors, name, width, squares, squares / total if total else 0.0, ratio, p_value, levels)
        )
        first += width
    return VarianceTable(
        mean=float(coefficients[0]),
        terms=tuple(sorted(terms, key=lambda term: -term.squares)),
        total_squares=total,
        error_squares=error,
        error_freedom=freedom,
        error_is_pure=is_pure,
        lack_of_fit=max(left - pure, 0.0),
        not_separable=tuple(effect_name([names[at] for at in each.factors]) for each in dropped),
    )


def _coded(column: Floats, linear: bool) -> Floats:
    """A factor as columns that add up to zero over its levels; a linear one between -1 and 1."""
    if linear:
        low, high = float(column.min()), float(column.max())
        scaled: Floats = 2 * (column - low) / ((high - low) or 1.0) - 1
        return scaled.reshape(-1, 1)
    levels = np.unique(column)
    coded: Floats = (column[:, None] == levels[:-1]).astype(float)
    coded[column == levels[-1]] = -1.0
    return coded


def _pairs(mains: Sequence[_Columns]) -> list[_Columns]:
    found = []
    for one, other in combinations(mains, 2):
        products = one.values[:, :, None] * other.values[:, None, :]
        found.append(_Columns(one.factors + other.factors, products.reshape(len(products), -1)))
    return found


def _separable(
    mains: Sequence[_Columns], pairs: Sequence[_Columns], points: int
) -> tuple[list[_Columns], list[_Columns]]:
    """The terms that can be estimated together, and the interactions that cannot."""
    kept, dropped = list(mains), []
    columns = np.column_stack([np.ones(points), *(each.values for each in mains)])
    for pair in pairs:
        more = np.column_stack([columns, pair.values])
        if more.shape[1] <= points and np.linalg.matrix_rank(more) == more.shape[1]:
            kept.append(pair)
            columns = more
        else:
            dropped.append(pair)
    return kept, dropped


def _fitted(columns: Floats, observed: Floats) -> tuple[Floats, Floats]:
    """The coefficients, and their covariance per unit of error variance."""
    inverse: Floats = np.linalg.pinv(columns.T @ columns).astype(np.float64)
    return inverse @ columns.T @ observed, inverse


def _squares_left(columns: Floats, observed: Floats) -> float:
    fitted, *_ = np.linalg.lstsq(columns, observed, rcond=None)
    residuals = observed - columns @ fitted
    return float(residuals @ residuals)


def _judged(squares: float, width: int, error: float, freedom: int) -> tuple[float | None, float | None]:
    """F and its p-value; None without an error to judge by."""
    from scipy.special import fdtrc

    if not freedom or error <= 0:
        return None, None
    ratio = (squares / width) / (error / freedom)
    return ratio, float(fdtrc(width, freedom, ratio))


def _level_effects(
    coefficients: Floats, covariance: Floats, error: float, freedom: int, *, linear: bool
) -> tuple[LevelEffect, ...]:
    """Every level: those with a column, and the last one, which is minus their sum."""
    width = len(coefficients)
    weights = np.eye(width) if linear else np.vstack([np.eye(width), -np.ones(width)])
    found = []
    for level, row in enumerate(weights):
        value = float(row @ coefficients)
        if not freedom:
            found.append(LevelEffect(level, value))
            continue
        half = t_quantile(freedom) * math.sqrt(max(float(row @ covariance @ row), 0.0) * error / freedom)
        found.append(LevelEffect(level, value, value - half, value + half))
    return tuple(found)
