"""Could our own delay explain what was measured?

Messages wait in the system, and they wait in us: a sender that is late although nothing held it back, a receiver that
reads late, a loop that stood still. A claim about the system stands only if it would also be made without our part.
This is the one rule; checks, searches, limits that stop a run and comparisons all use it. docs/pipeline.md derives it.
Measures nothing: where the value without own delay comes from is the caller's business.
"""

from collections.abc import Callable

NOTABLE_SHARE = 0.10
"""Own delay above this share of a number is named wherever the number is shown."""


def explains(claim: Callable[[float], object], value: float, without: float) -> bool:
    """Whether own delay could explain a claim: it changes when own delay is subtracted from the value."""
    return claim(value) != claim(without)


def is_notable(value: float, without: float) -> bool:
    """Whether own delay is a part of a shown number that must not be passed over in silence."""
    return abs(value - without) > NOTABLE_SHARE * abs(value)
