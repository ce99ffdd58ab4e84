"""How long should somebody wait before trying again?

Longer each time, up to a limit, and never all clients at the same moment: a broker that comes back must not be met by
everybody at once. Arithmetic only; it never sleeps.
"""

import random

from msgspec import Struct


class Backoff(Struct, frozen=True):
    """Half of each pause is certain, the other half is chance."""

    first_s: float = 0.02
    most_s: float = 1.0
    factor: float = 2.0

    def pause_s(self, failures: int, chance: random.Random) -> float:
        """The pause after so many failures in a row, counted from 1."""
        ceiling_s = min(self.most_s, self.first_s * self.factor ** min(failures - 1, 60))
        return ceiling_s * (0.5 + 0.5 * chance.random())
