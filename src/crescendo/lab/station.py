"""What does a fault see of a host?

Its link, as it is meant to be: what a fault changes is undone by returning to that. Delays of handoffs are drawn from a
source of random numbers of this host alone, so that the same seed gives the same delays. Keeps no time.
"""

import random

from crescendo.lab.host_network import LabHost
from crescendo.model.lab_network import CLEAN, LabLink


class Station:
    """One host of the lab, while faults change its link."""

    def __init__(self, host: LabHost, link: LabLink, seed: int) -> None:
        self.host, self.link = host, link
        self.handoffs = 0
        self._random = random.Random(f"{seed}/handoff/{host.name}")  # noqa: S311 - repeatable, not secret

    def draw(self) -> float:
        """The next random number of this host, from 0 to 1."""
        return self._random.random()

    def reset(self) -> None:
        """Return the link to what the file says."""
        if self.host.has_packet_link:
            self.host.impair(self.link.up or CLEAN, self.link.down or CLEAN)
        self.host.limit(int(self.link.rate or 0))
