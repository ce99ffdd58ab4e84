"""Which systems can be started? One line each.

A kind's module is imported when the kind is requested.
"""

from importlib import import_module

from crescendo.model.errors import ConfigError
from crescendo.systems.base import SystemKind

SYSTEMS: dict[str, str] = {
    "activemq": "activemq:ACTIVEMQ",
    "artemis": "artemis:ARTEMIS",
    "loopback": "loopback:LOOPBACK",
    "mlmq": "mlmq:MLMQ_SYSTEM",
    "mosquitto": "mosquitto:MOSQUITTO",
    "qpid-broker-j": "qpid_broker_j:QPID_BROKER_J",
    "qpid-dispatch": "qpid_dispatch:QPID_DISPATCH",
    "rabbitmq": "rabbitmq:RABBITMQ",
}


def system_of(name: str) -> SystemKind:
    try:
        module, _, attribute = SYSTEMS[name].partition(":")
    except KeyError:
        known = ", ".join(sorted(SYSTEMS))
        raise ConfigError(f"system.kind: no system is called {name!r}; known: {known}, or give a url") from None
    kind: SystemKind = getattr(import_module(f"crescendo.systems.kinds.{module}"), attribute)
    return kind
