"""What does ActiveMQ Classic report about itself?

One Jolokia request: the JVM, the broker with its store, temp and memory usage, every queue and topic. Reads attributes
only and calls no operation.
"""

from crescendo.inspectors.attributes import add_attributes, number_of
from crescendo.inspectors.base import Inspection, InspectionTarget, Reading
from crescendo.inspectors.sources.jolokia import Attributes, Jolokia, properties_of
from crescendo.inspectors.sources.jvm import BEANS, add_jvm
from crescendo.inspectors.targets import MANAGEMENT, url_of

_DOMAIN = "org.apache.activemq"
_BEANS = BEANS | {
    "broker": f"{_DOMAIN}:type=Broker,brokerName=*",
    "queues": f"{_DOMAIN}:type=Broker,brokerName=*,destinationType=Queue,destinationName=*",
    "topics": f"{_DOMAIN}:type=Broker,brokerName=*,destinationType=Topic,destinationName=*",
}
# The same numbers under the names of Artemis and of the thesis, so that both brokers share one table.
_COMMON_NAMES = {
    "MessageCount": "QueueSize",
    "MessagesAdded": "EnqueueCount",
    "MessagesAcknowledged": "DequeueCount",
    "MessagesExpired": "ExpiredCount",
}
_USAGES = {"Store": "StorePercentUsage", "Temp": "TempPercentUsage", "Memory": "MemoryPercentUsage"}
_SKIPPED = (
    "ObjectName",
    "Uptime",
    "Connectors",
    "Queues",
    "Topics",
    "QueueSubscribers",
    "TopicSubscribers",
    "Subscriptions",
    "Producers",
)


class ActiveMQInspector:
    """Inspects one broker."""

    def __init__(self, target: InspectionTarget) -> None:
        self._jolokia = Jolokia(url_of(target, "activemq", (MANAGEMENT,), ("http", "https")), "/api/jolokia")

    def inspect(self) -> Inspection:
        inspection = Inspection()
        found = self._jolokia.read(_BEANS, inspection)
        add_jvm(inspection, found)
        for attributes in found.get("broker", {}).values():
            add_attributes(inspection, "broker", _without_lists(attributes))
            _add_usage(inspection, attributes)
        for kind in ("queue", "topic"):
            for bean, attributes in found.get(f"{kind}s", {}).items():
                entity = f"{kind}/{properties_of(bean).get('destinationName', '')}"
                add_attributes(inspection, entity, _without_lists(attributes))
                add_attributes(
                    inspection, entity, {ours: attributes.get(theirs) for ours, theirs in _COMMON_NAMES.items()}
                )
        return inspection

    def close(self) -> None:
        self._jolokia.close()


def _add_usage(inspection: Inspection, broker: Attributes) -> None:
    """The broker reports percentages of a limit, rounded down; only the limits in bytes can be added up."""
    for name, percent in _USAGES.items():
        share, limit = number_of(broker.get(percent)), number_of(broker.get(f"{name}Limit"))
        if share is not None and limit is not None:
            inspection.readings.append(Reading(f"usage/{name.lower()}", "percent", share))
            inspection.readings.append(Reading(f"usage/{name.lower()}", "limit_bytes", limit))


def _without_lists(attributes: Attributes) -> Attributes:
    return {name: value for name, value in attributes.items() if not name.endswith(_SKIPPED)}
