"""What do two brokers on JVMs have in common that take over from each other?

Their ports, their directories and the settings that they refuse. The first has the places of a single broker, the
second a directory of its own below. How they find out who serves is the business of each kind.
"""

from collections.abc import Sequence
from pathlib import Path

from crescendo.systems.base import node_name, numbered
from crescendo.systems.install.java import JavaSettings

PAIR = (node_name(1), node_name(2))
"""The names of the brokers: the first one serves first."""


class PairSettings(JavaSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of a broker that may be two: each kind names the ways in which they share what they store."""

    failover: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.failover is None:
            return
        if not self.persistence:
            raise ValueError("persistence: the second broker could not take over what was never stored; leave it out")
        if self.secure is not None:
            raise ValueError("tls: the brokers of a pair are not encrypted; leave it out")

    @property
    def node_names(self) -> tuple[str, ...]:
        return () if self.failover is None else PAIR

    @property
    def node_numbers(self) -> tuple[int, ...]:
        """1 is also the only broker without a pair."""
        return (1,) if self.failover is None else (1, 2)


def pair_ports(ports: Sequence[str]) -> tuple[str, ...]:
    """The names of the second broker's ports."""
    return tuple(numbered(name, 2) for name in ports)


def node_directory(directory: Path, number: int) -> Path:
    """Where the configuration of a broker is."""
    return directory if number == 1 else directory / node_name(number)
