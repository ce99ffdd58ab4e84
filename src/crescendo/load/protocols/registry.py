"""Which driver implements which protocol? A process imports only the one it needs."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from crescendo.model.workload import Group

_CLASSES = {"amqp10": "Amqp10", "amqp091": "Amqp091", "stomp": "Stomp", "mqtt": "Mqtt", "mlmq": "Mlmq"}


def driver_of(protocol: str, role: str) -> Callable[[str, Group], Any]:
    """The class of channels for a protocol and a role, sender or receiver."""
    module = import_module(f"crescendo.load.protocols.{protocol}")
    driver: Callable[[str, Group], Any] = getattr(module, _CLASSES[protocol] + role.capitalize())
    return driver
