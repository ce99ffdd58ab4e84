"""Which combinations of levels does a campaign run?

Full factorial, two-level, fractions of it with stated generators, Latin hypercube, and one factor at a time. A design
is a matrix: one row per point, one column per factor, with level numbers, or with shares of the range of a factor in a
Latin hypercube. Deterministic: the same design and seed give the same points. Runs nothing.
"""

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum

import numpy as np
from msgspec import Struct

from crescendo.model.alias_structure import AliasStructure, Word, multiply
from crescendo.model.arrays import Floats
from crescendo.model.factors import Factor
from crescendo.model.suggestions import suggestion

MAX_POINTS = 100_000


class DesignKind(StrEnum):
    """The designs that there are."""

    FULL = "full"
    TWO_LEVEL = "2^k"
    FRACTION = "2^(k-p)"
    LATIN_HYPERCUBE = "latin-hypercube"
    ONE_AT_A_TIME = "one-at-a-time"


class Design(Struct, frozen=True, forbid_unknown_fields=True):
    """The kind of a design, and what only some kinds need."""

    kind: DesignKind = DesignKind.FULL
    generators: dict[str, list[str]] = {}
    """2^(k-p): factor -> the factors whose product it is; a minus before the first one reverses its sign."""

    points: int = 0
    """Latin hypercube: the number of points."""

    def check(self, factors: Sequence[Factor]) -> None:
        """Raises ValueError if these factors cannot be varied by this design."""
        if self.generators and self.kind is not DesignKind.FRACTION:
            raise ValueError(f"design.generators: only {DesignKind.FRACTION} has them; remove them")
        if self.points and self.kind is not DesignKind.LATIN_HYPERCUBE:
            raise ValueError(f"design.points: only {DesignKind.LATIN_HYPERCUBE} has them; remove it")
        if self.kind in {DesignKind.TWO_LEVEL, DesignKind.FRACTION}:
            _check_two_levels(self.kind, factors)
        if self.kind is DesignKind.FRACTION:
            defining_words(self.generators, [factor.name for factor in factors])
        if self.kind is DesignKind.LATIN_HYPERCUBE:
            _check_hypercube(self.points, factors)
        if self._size(factors) > MAX_POINTS:
            raise ValueError(f"design: {self._size(factors):,} points are too many; at most {MAX_POINTS:,}")

    def matrix(self, factors: Sequence[Factor], seed: int) -> Floats:
        """One row per point: level numbers, or shares between 0 and 1 in a Latin hypercube."""
        counts = [len(factor.levels) for factor in factors]
        match self.kind:
            case DesignKind.FULL | DesignKind.TWO_LEVEL:
                return full_factorial(counts)
            case DesignKind.FRACTION:
                return fraction([factor.name for factor in factors], self.generators)
            case DesignKind.LATIN_HYPERCUBE:
                return latin_hypercube(len(factors), self.points, seed)
            case DesignKind.ONE_AT_A_TIME:
                return one_at_a_time(counts)

    def aliases(self, factors: Sequence[Factor]) -> AliasStructure | None:
        """Which effects a fraction cannot tell apart; None for designs that confound nothing by construction."""
        if self.kind is not DesignKind.FRACTION:
            return None
        names = [factor.name for factor in factors]
        return AliasStructure(tuple(names), tuple(defining_words(self.generators, names)))

    def _size(self, factors: Sequence[Factor]) -> int:
        counts = [len(factor.levels) for factor in factors]
        match self.kind:
            case DesignKind.LATIN_HYPERCUBE:
                return self.points
            case DesignKind.ONE_AT_A_TIME:
                return 1 + sum(count - 1 for count in counts)
        return math.prod(counts) >> len(self.generators)


def full_factorial(counts: Sequence[int]) -> Floats:
    """Every combination; the last factor changes fastest."""
    return np.array(list(np.ndindex(*counts)), float).reshape(math.prod(counts), len(counts))


def one_at_a_time(counts: Sequence[int]) -> Floats:
    """The first level of every factor, then each other level of one factor alone."""
    rows = [[0] * len(counts)]
    for factor, count in enumerate(counts):
        rows += [[level if at == factor else 0 for at in range(len(counts))] for level in range(1, count)]
    return np.array(rows, float)


def latin_hypercube(factors: int, points: int, seed: int) -> Floats:
    """Each column has one value in each of `points` equal strata of [0, 1)."""
    random = np.random.default_rng(seed)
    strata = np.column_stack([random.permutation(points) for _ in range(factors)])
    return (strata + random.random((points, factors))) / points


def fraction(names: Sequence[str], generators: Mapping[str, Sequence[str]]) -> Floats:
    """A full factorial of the factors without a generator; the others are products of them."""
    words = defining_words(generators, names)
    bases = [name for name in names if name not in generators]
    signs = dict(zip(bases, (2 * full_factorial([2] * len(bases)) - 1).T, strict=True))
    for name, word in zip(generators, words, strict=True):
        product = np.prod([signs[names[at]] for at in sorted(word.factors) if names[at] != name], axis=0)
        signs[name] = word.sign * product
    return (np.column_stack([signs[name] for name in names]) + 1) / 2


def sign_matrix(matrix: Floats) -> Floats:
    """A two-level design with -1 for the first and +1 for the second level."""
    return 2 * matrix - 1


def defining_words(generators: Mapping[str, Sequence[str]], names: Sequence[str]) -> list[Word]:
    """The words of the generators: each factor times the product that it equals. Raises ValueError for mistakes."""
    if not generators:
        raise ValueError("design.generators: state them, such as {d: [a, b, c]} for d = a·b·c")
    words = []
    for name, product in generators.items():
        if name not in names:
            raise ValueError(f"design.generators.{name}: there is no such factor; {suggestion(name, names)}")
        plain = [part.removeprefix("-") for part in product]
        for part in plain:
            if part not in names:
                raise ValueError(f"design.generators.{name}: no factor is called {part!r}; {suggestion(part, names)}")
            if part in generators:
                raise ValueError(f"design.generators.{name}: {part} has a generator itself; use base factors only")
        if len(set(plain)) < len(plain) or len(plain) < 2:
            raise ValueError(f"design.generators.{name}: name two or more different factors")
        sign = -1 if sum(part.startswith("-") for part in product) % 2 else 1
        words.append(Word(frozenset(names.index(part) for part in (name, *plain)), sign))
    if len(names) - len(generators) < 2:
        raise ValueError("design.generators: at least two factors must be without a generator")
    for at, word in enumerate(words):
        if any(len(multiply(word, other).factors) == 2 for other in words[:at]):
            raise ValueError(
                "design.generators: two factors are the same product, so their effects cannot be separated"
            )
    return words


def _check_two_levels(kind: DesignKind, factors: Sequence[Factor]) -> None:
    for factor in factors:
        if len(factor.levels) != 2:
            raise ValueError(
                f"design: {kind} needs two levels of every factor, and {factor.name} has {len(factor.levels)}; "
                f"use kind: {DesignKind.FULL}"
            )


def _check_hypercube(points: int, factors: Sequence[Factor]) -> None:
    if points < 2:
        raise ValueError("design.points: a Latin hypercube needs 2 or more")
    for factor in factors:
        if not factor.is_numeric:
            raise ValueError(
                f"design: a Latin hypercube takes values between the levels of a factor, and those of {factor.name} "
                "are not numbers of one key"
            )
