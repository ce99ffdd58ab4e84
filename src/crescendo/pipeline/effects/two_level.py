"""How much does each factor of a two-level design matter, and how certain is that?

The model is saturated: y = q0 + sum of q × signs, one coefficient per column that the design can estimate. With repeats
their pooled variance gives intervals; without, Lenth's method judges the effects by each other. Follows Jain, The Art
of Computer Systems Performance Analysis, chapters 17 to 19, where q is half of the change from low to high. Plain
arithmetic: knows nothing of runs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from crescendo.model.alias_structure import AliasStructure, effect_name
from crescendo.model.arrays import Floats
from crescendo.model.designs import sign_matrix
from crescendo.pipeline.compare.intervals import t_quantile
from crescendo.pipeline.effects.lenth import LenthMargin, lenth_margin

REPEATS, LENTH, NONE = "repeats", "lenth", "none"


@dataclass(frozen=True)
class Effect:
    """One coefficient. `share` is its part of the total variation, error included."""

    factors: tuple[int, ...]
    name: str
    value: float
    share: float
    low: float | None = None
    high: float | None = None
    significant: bool | None = None
    """None when there is nothing to judge it by."""

    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class TwoLevelEffects:
    """Every effect, the largest variation first, and what judged them."""

    mean: float
    effects: tuple[Effect, ...]
    error_share: float
    total_variation: float
    basis: str
    error_deviation: float | None = None
    degrees_of_freedom: int = 0
    lenth: LenthMargin | None = None

    def effect(self, name: str) -> Effect:
        return next(each for each in self.effects if each.name == name)


def two_level_effects(
    names: Sequence[str], matrix: Floats, values: Sequence[Sequence[float]], aliases: AliasStructure | None = None
) -> TwoLevelEffects:
    """The effects of a 2^k or 2^(k-p) design. `values` are the repeats of each point, in the order of the matrix."""
    columns = _columns(len(names), aliases)
    signs = np.column_stack([np.prod(sign_matrix(matrix)[:, list(factors)], axis=1) for factors in columns])
    means = np.array([float(np.mean(each)) for each in values])
    # With unequal repeats, the squares of an effect are its own, given all others.
    weight = len(means) ** 2 / sum(1 / len(each) for each in values)
    coefficients = signs.T @ means / len(means)
    errors = np.concatenate([np.subtract(each, mean) for each, mean in zip(values, means, strict=True)])
    error_squares = float(errors @ errors)
    freedom = len(errors) - len(means)
    squares = weight * coefficients**2
    total = float(squares.sum()) + error_squares
    half, margin = _half_width(error_squares, freedom, weight), None
    if half is None and len(coefficients) >= 3:
        margin = lenth_margin(coefficients)
        half = margin.margin
    effects = [
        Effect(
            factors,
            effect_name([names[at] for at in factors]),
            float(value),
            float(square / total) if total else 0.0,
            None if half is None else float(value - half),
            None if half is None else float(value + half),
            None if half is None else bool(abs(value) > half),
            () if aliases is None else tuple(aliases.text(word) for word in aliases.aliases(frozenset(factors))),
        )
        for factors, value, square in zip(columns, coefficients, squares, strict=True)
    ]
    return TwoLevelEffects(
        mean=float(means.mean()),
        effects=tuple(sorted(effects, key=lambda each: -abs(each.value))),
        error_share=error_squares / total if total else 0.0,
        total_variation=total,
        basis=REPEATS if freedom else LENTH if margin is not None else NONE,
        error_deviation=math.sqrt(error_squares / freedom) if freedom else None,
        degrees_of_freedom=freedom,
        lenth=margin,
    )


def _columns(factors: int, aliases: AliasStructure | None) -> list[tuple[int, ...]]:
    """The effects that can be estimated, main effects first."""
    if aliases is not None:
        return [tuple(sorted(effect)) for effect in aliases.representatives()]
    return [each for order in range(1, factors + 1) for each in combinations(range(factors), order)]


def _half_width(error_squares: float, freedom: int, weight: float) -> float | None:
    """Half the 95 % interval of a coefficient, from the pooled variance of the repeats; None without repeats."""
    if not freedom:
        return None
    return t_quantile(freedom) * math.sqrt(error_squares / freedom / weight)
