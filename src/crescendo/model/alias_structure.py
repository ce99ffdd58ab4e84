"""Which effects can a fraction of a two-level design not tell apart?

Arithmetic of words: a word is a product of factors with a sign, a factor times itself is 1, and the defining relation
is every product of the generators' words. Effects whose words differ by one of them are aliases: their columns are
equal up to a sign. Knows no run and no number that was measured.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

MAX_EFFECT_ORDER = 2
"""Aliases are listed for main effects and interactions of two factors; higher ones are rarely large."""


@dataclass(frozen=True)
class Word:
    """A product of factors, by their numbers. Without factors it is the constant 1 or -1."""

    factors: frozenset[int]
    sign: int = 1


def multiply(one: Word, other: Word) -> Word:
    return Word(one.factors ^ other.factors, one.sign * other.sign)


@dataclass(frozen=True)
class AliasStructure:
    """What the generators of a fraction confound. `words` are those of the generators."""

    names: tuple[str, ...]
    words: tuple[Word, ...]

    @cached_property
    def defining_relation(self) -> tuple[Word, ...]:
        """Every product of generators except 1, shortest first."""
        found = [Word(frozenset())]
        for word in self.words:
            found += [multiply(word, each) for each in found]
        return tuple(sorted(found[1:], key=lambda word: (len(word.factors), sorted(word.factors))))

    @property
    def resolution(self) -> int:
        """The length of the shortest word: III confounds main effects with interactions of two factors."""
        return min(len(word.factors) for word in self.defining_relation)

    def aliases(self, effect: frozenset[int]) -> tuple[Word, ...]:
        """The effects that have the same column as this one, up to their sign, shortest first."""
        found = [multiply(Word(effect), word) for word in self.defining_relation]
        return tuple(sorted(found, key=lambda word: (len(word.factors), sorted(word.factors))))

    def representatives(self) -> list[frozenset[int]]:
        """One effect of each group of aliases, the lowest order first: the columns that can be estimated."""
        seen: set[frozenset[int]] = {frozenset()} | {word.factors for word in self.defining_relation}
        chosen = []
        for order in range(1, len(self.names) + 1):
            for effect in map(frozenset, combinations(range(len(self.names)), order)):
                if effect not in seen:
                    chosen.append(effect)
                    seen |= {effect} | {word.factors for word in self.aliases(effect)}
        return chosen

    def text(self, word: Word) -> str:
        """A word as people write it: -a·b."""
        product = effect_name([self.names[at] for at in sorted(word.factors)]) or "1"
        return f"-{product}" if word.sign < 0 else product

    def lines(self) -> list[str]:
        """The defining relation, then each effect of up to two factors with its aliases of up to two factors."""
        lines = ["I = " + " = ".join(self.text(word) for word in self.defining_relation)]
        for effect in self.representatives():
            low = [word for word in self.aliases(effect) if len(word.factors) <= MAX_EFFECT_ORDER]
            if len(effect) <= MAX_EFFECT_ORDER and low:
                lines.append(" = ".join(self.text(word) for word in (Word(effect), *low)))
        return lines


def effect_name(factors: list[str]) -> str:
    """How an interaction is called."""
    return "·".join(factors)
