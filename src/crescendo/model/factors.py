"""What does a campaign vary, and what does each level change in the experiment?

A factor has two or more levels; a level sets one key of the experiment, or several at once. Files may write a factor
briefly, as a list of levels under its key. Knows no design.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crescendo.model.suggestions import suggestion

MAX_FACTORS = 26
MAX_LEVELS = 1000
_KEYS = ("key", "levels")


@dataclass(frozen=True)
class Factor:
    """One factor. `settings` has for each level what it sets: key of the experiment -> value."""

    name: str
    levels: tuple[Any, ...]
    settings: tuple[Mapping[str, Any], ...]

    @property
    def key(self) -> str | None:
        """The one key that every level sets; None if a level sets several."""
        keys = {key for settings in self.settings for key in settings}
        return keys.pop() if len(keys) == 1 else None

    @property
    def is_numeric(self) -> bool:
        """Whether values between the levels make sense: they are numbers, and what the one key is set to."""
        numbers = all(isinstance(level, int | float) and not isinstance(level, bool) for level in self.levels)
        sets_levels = all(
            list(sets.values()) == [level] for sets, level in zip(self.settings, self.levels, strict=True)
        )
        return numbers and sets_levels

    def at(self, level: int) -> dict[str, Any]:
        """What the experiment is changed by."""
        return dict(self.settings[level])


def read_factors(document: object) -> tuple[Factor, ...]:
    """The factors of a campaign file. Raises ValueError with the path in the file, the mistake and the cure."""
    if not isinstance(document, dict) or not document:
        raise ValueError("factors: write a mapping such as {workload.rate: [1000, 2000]}")
    if len(document) > MAX_FACTORS:
        raise ValueError(f"factors: at most {MAX_FACTORS}, and there are {len(document)}")
    factors = tuple(_factor(str(name), written) for name, written in document.items())
    _check_keys(factors)
    return factors


def _factor(name: str, written: object) -> Factor:
    if isinstance(written, list):
        return _of_key(name, name, written)
    if not isinstance(written, dict):
        raise ValueError(f"factors.{name}: write a list of levels, or {{key: …, levels: […]}}")
    for key in written:
        if key not in _KEYS:
            raise ValueError(f"factors.{name}.{key}: unknown; {suggestion(str(key), _KEYS)}")
    levels = written.get("levels")
    if isinstance(levels, list):
        return _of_key(name, str(written.get("key", name)), levels)
    if not isinstance(levels, dict):
        raise ValueError(f"factors.{name}.levels: write a list, or a mapping of levels to the keys that they set")
    if "key" in written:
        raise ValueError(f"factors.{name}.key: the levels name their keys themselves; remove it")
    return _of_settings(name, levels)


def _of_key(name: str, key: str, levels: Sequence[Any]) -> Factor:
    _check_levels(name, levels)
    return Factor(name, tuple(levels), tuple({key: level} for level in levels))


def _of_settings(name: str, levels: Mapping[Any, object]) -> Factor:
    _check_levels(name, list(levels))
    settings = []
    for level, sets in levels.items():
        if not isinstance(sets, dict) or not sets:
            raise ValueError(f"factors.{name}.levels.{level}: write the keys that it sets, such as {{seed: 2}}")
        settings.append({str(key): value for key, value in sets.items()})
    if len({frozenset(each) for each in settings}) > 1:
        raise ValueError(f"factors.{name}.levels: every level must set the same keys")
    return Factor(name, tuple(levels), tuple(settings))


def _check_levels(name: str, levels: Sequence[Any]) -> None:
    if not 2 <= len(levels) <= MAX_LEVELS:
        raise ValueError(f"factors.{name}: give 2 to {MAX_LEVELS:,} levels, not {len(levels)}")
    for at, level in enumerate(levels):
        if level in levels[:at]:
            raise ValueError(f"factors.{name}: the level {level!r} appears twice")


def _check_keys(factors: Sequence[Factor]) -> None:
    owners: dict[str, str] = {}
    for factor in factors:
        for key in factor.settings[0]:
            if key in owners:
                raise ValueError(f"factors.{factor.name}: {key} is already set by the factor {owners[key]}")
            owners[key] = factor.name
