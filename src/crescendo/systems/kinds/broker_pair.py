"""What do two brokers on JVMs have in common that take over from each other?

Their ports, their directories and the settings that they refuse. The first has the places of a single broker, the
second a directory of its own below. How they find out who serves is the business of each kind.
"""

from collections.abc import Sequence
from pathlib import Path

from crescendo.systems.base import SystemSettings, node_name, numbered

PAIR = (node_name(1), node_name(2))
"""The names of the brokers: the first one serves first."""


def check_pair(settings: SystemSettings) -> None:
    """For a kind's `__post_init__`: refuse what a pair cannot do."""
    if not settings.node_names:
        return
    if not settings.persistence:
        raise ValueError("persistence: the second broker could not take over what was never stored; leave it out")
    if settings.secure is not None:
        raise ValueError("tls: the brokers of a pair are not encrypted; leave it out")


def pair_ports(ports: Sequence[str]) -> tuple[str, ...]:
    """The names of the second broker's ports."""
    return tuple(numbered(name, 2) for name in ports)


def node_directory(directory: Path, number: int) -> Path:
    """Where the configuration of a broker is."""
    return directory if number == 1 else directory / node_name(number)
