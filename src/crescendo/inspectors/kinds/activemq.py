"""What does ActiveMQ Classic say about itself?

One Jolokia request: the virtual machine, the broker with its store, temp and memory usage, every queue and topic. It
reads attributes only and calls no operation.
"""

from crescendo.inspectors.attributes import number_of, take
from crescendo.inspectors.base import Inspection, InspectionTarget, Reading
from crescendo.inspectors.sources.jolokia import Attributes, Jolokia, properties_of
from crescendo.inspectors.sources.jvm import BEANS, take_jvm
from crescendo.inspectors.targets import MANAGEMENT, url_of

_DOMAIN = "org.apache.activemq"
_BEANS = BEANS | {
    "broker": f"{_DOMAIN}:type=Broker,brokerName=*",
    "queues": f"{_DOMAIN}:type=Broker,brokerName=*,destinationType=Queue,destinationName=*",
    "topics": f"{_DOMAIN}:type=Broker,brokerName=*,destinationType=Topic,destinationName=*",
}
# The same numbers under the names that Artemis and the thesis give them, so that both brokers share one table.
_SAME = {
    "MessageCount": "QueueSize",
    "MessagesAdded": "EnqueueCount",
    "MessagesAcknowledged": "DequeueCount",
    "MessagesExpired": "ExpiredCount",
}
_USAGES = {"Store": "StorePercentUsage", "Temp": "TempPercentUsage", "Memory": "MemoryPercentUsage"}
_LISTS = (
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
    """Looks at one broker."""

    def __init__(self, target: InspectionTarget) -> None:
        self._jolokia = Jolokia(url_of(target, "activemq", (MANAGEMENT,), ("http", "https")), "/api/jolokia")

    def inspect(self) -> Inspection:
        look = Inspection()
        found = self._jolokia.read(_BEANS, look)
        take_jvm(look, found)
        for attributes in found.get("broker", {}).values():
            take(look, "broker", _without_lists(attributes))
            _take_usage(look, attributes)
        for kind in ("queue", "topic"):
            for bean, attributes in found.get(f"{kind}s", {}).items():
                entity = f"{kind}/{properties_of(bean).get('destinationName', '')}"
                take(look, entity, _without_lists(attributes))
                take(look, entity, {ours: attributes.get(theirs) for ours, theirs in _SAME.items()})
        return look

    def close(self) -> None:
        self._jolokia.close()


def _take_usage(look: Inspection, broker: Attributes) -> None:
    """The broker says percent of a limit, rounded down; the bytes are what can be added up."""
    for name, percent in _USAGES.items():
        share, limit = number_of(broker.get(percent)), number_of(broker.get(f"{name}Limit"))
        if share is not None and limit is not None:
            look.readings.append(Reading(f"usage/{name.lower()}", "percent", share))
            look.readings.append(Reading(f"usage/{name.lower()}", "limit_bytes", limit))


def _without_lists(attributes: Attributes) -> Attributes:
    return {name: value for name, value in attributes.items() if not name.endswith(_LISTS)}
