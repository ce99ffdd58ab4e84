"""Which inspectors are there? One line each, and those of plugins; a kind's module is imported only on demand."""

from collections.abc import Callable

from crescendo.inspectors.base import InspectionTarget, Inspector
from crescendo.model import plugins
from crescendo.model.errors import ConfigError
from crescendo.model.suggestions import listing

Factory = Callable[[InspectionTarget], Inspector]

INSPECTORS: dict[str, str] = {
    "activemq": "activemq:ActiveMQInspector",
    "artemis": "artemis:ArtemisInspector",
    "mlmq": "mlmq:MlmqInspector",
    "mosquitto": "mosquitto:MosquittoInspector",
    "process": "process:ProcessInspector",
    "qpid-broker-j": "qpid_broker_j:BrokerJInspector",
    "qpid-dispatch": "qpid_dispatch:DispatchInspector",
    "rabbitmq": "rabbitmq:RabbitInspector",
    "skupper-router": "qpid_dispatch:SkupperInspector",
}


def inspector_names() -> list[str]:
    return plugins.known_names(INSPECTORS, plugins.INSPECTORS)


def inspector_of(kind: str) -> Factory:
    """The factory for inspectors of this kind."""
    factory: Factory | None = plugins.find_part(
        INSPECTORS, "crescendo.inspectors.kinds", plugins.INSPECTORS, kind, Callable
    )
    if factory is None:
        raise ConfigError(f"inspect.kind: no inspector is called {kind!r}; {listing(kind, inspector_names())}")
    return factory
