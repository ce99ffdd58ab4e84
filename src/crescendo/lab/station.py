"""What does a fault see of a host?

Its link, as it is meant to be: what a fault changes is undone by returning to that. Delays of handoffs are drawn from a
source of random numbers of this host alone, so that the same seed gives the same delays. Keeps no time.
"""

import random
from typing import Literal

from crescendo.lab.lab_host import LabHost
from crescendo.model.lab_network import CLEAN, LabLink

LinkDirection = Literal["both", "up", "down"]
"""Up is from the host."""


class Station:
    """One host of the lab, while faults change its link."""

    def __init__(self, host: LabHost, link: LabLink, seed: int) -> None:
        self.host, self.link = host, link
        self.handoffs = 0
        self._random = random.Random(f"{seed}/handoff/{host.name}")  # noqa: S311 - repeatable, not secret

    def draw(self) -> float:
        """The next random number of this host, from 0 to 1."""
        return self._random.random()

    def cut(self, direction: LinkDirection) -> None:
        """Nothing passes in this direction, or in both."""
        if direction == "both":
            self.host.cut()
            return
        up_bps, down_bps = self.link.rates_bps
        self.host.limit(None if direction == "up" else up_bps, None if direction == "down" else down_bps)

    def restore(self, direction: LinkDirection) -> None:
        """Undo `cut`."""
        if direction == "both":
            self.host.restore()
        else:
            self.host.limit(*self.link.rates_bps)

    def reset(self) -> None:
        """Return the link to what the file says."""
        if self.host.can_be_impaired:
            self.host.impair(self.link.up or CLEAN, self.link.down or CLEAN)
        self.host.limit(*self.link.rates_bps)
