"""How long should a client wait before it retries?

Longer each time, up to a limit, and with jitter, so that clients do not reconnect to a recovered broker in lockstep.
Arithmetic only; it never sleeps.
"""

import random

from msgspec import Struct


class Backoff(Struct, frozen=True):
    """Half of each pause is fixed, the other half is random."""

    first_s: float = 0.02
    most_s: float = 1.0
    factor: float = 2.0

    def pause_s(self, failures: int, chance: random.Random) -> float:
        """The pause after this many consecutive failures, counted from 1."""
        ceiling_s = min(self.most_s, self.first_s * self.factor ** min(failures - 1, 60))
        return ceiling_s * (0.5 + 0.5 * chance.random())
