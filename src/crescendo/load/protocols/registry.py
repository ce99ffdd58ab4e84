"""Which driver implements which protocol? A process imports only the one it needs."""

from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any

from crescendo.model.protocols import protocol_of
from crescendo.model.workload import Group


def driver_of(protocol: str, role: str) -> Callable[[str, Group], Any]:
    """The class of channels for a protocol and a role, sender or receiver."""
    driver: Callable[[str, Group], Any] = resolve_name(protocol_of(protocol).driver + role.capitalize())
    return driver
