"""Which systems can be started? One line each, and those of plugins.

A kind's module is imported when the kind is requested.
"""

from collections.abc import Iterator

from crescendo.model import plugins
from crescendo.model.errors import ConfigError
from crescendo.model.suggestions import listing
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
    "relay": "relay:RELAY",
    "skupper-router": "qpid_dispatch:SKUPPER_ROUTER",
}


def system_names() -> list[str]:
    return plugins.known_names(SYSTEMS, plugins.SYSTEMS)


def system_of(name: str) -> SystemKind:
    kind: SystemKind | None = plugins.find_part(SYSTEMS, "crescendo.systems.kinds", plugins.SYSTEMS, name, SystemKind)
    if kind is None:
        raise ConfigError(f"system.kind: no system is called {name!r}; {listing(name, system_names())}, or give a url")
    return kind


def all_kinds() -> Iterator[SystemKind]:
    """Own kinds, then those of plugins. A plugin that cannot be used is reported and skipped."""
    yield from map(system_of, SYSTEMS)
    for name, kind in plugins.loaded_plugins(plugins.SYSTEMS, SystemKind):
        if name not in SYSTEMS:
            yield kind
