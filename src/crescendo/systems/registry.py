"""Which systems can be started? One line each."""

from crescendo.model.errors import ConfigError
from crescendo.systems.base import Kind
from crescendo.systems.loopback import LOOPBACK

SYSTEMS: dict[str, Kind] = {"loopback": LOOPBACK}


def system_of(kind: str) -> Kind:
    try:
        return SYSTEMS[kind]
    except KeyError:
        known = ", ".join(sorted(SYSTEMS))
        raise ConfigError(f"system.kind: no system is called {kind!r}; known: {known}, or give a url") from None
