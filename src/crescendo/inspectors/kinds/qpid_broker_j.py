"""What does Qpid Broker-J report about itself?

Its REST management: the broker, its virtual hosts, queues and connections, each with its statistics. Reads objects and
calls no operation.
"""

from typing import Any

from crescendo.inspectors.attributes import add_attributes, number_of
from crescendo.inspectors.base import Inspection, InspectionTarget, Reading
from crescendo.inspectors.sources.http import Http
from crescendo.inspectors.targets import MANAGEMENT, url_of
from crescendo.model.errors import PeerError

_API = "/api/latest"
_WITHOUT_CHILDREN = (
    "?depth=0&excludeInheritedContext=true"  # and without the hundreds of settings that each object repeats
)
_KINDS = ("broker", "virtualhost", "queue", "connection")
_COMMON_NAMES = {
    "MessageCount": "queueDepthMessages",
    "MessagesAdded": "totalEnqueuedMessages",
    "MessagesAcknowledged": "totalDequeuedMessages",
    "MessagesExpired": "totalExpiredMessages",
    "ConsumerCount": "consumerCount",
}
"""The same numbers under the names that other brokers use, so that they share one table."""


class BrokerJInspector:
    """Inspects one broker."""

    def __init__(self, target: InspectionTarget) -> None:
        self._http = Http(url_of(target, "qpid-broker-j", (MANAGEMENT,), ("http", "https")))
        self._api = self._http.path.removesuffix(_API) + _API

    def inspect(self) -> Inspection:
        inspection = Inspection()
        for kind in _KINDS:
            for item in self._list(kind):
                self._add_item(inspection, kind, item)
        return inspection

    def close(self) -> None:
        self._http.close()

    def _list(self, kind: str) -> list[dict[str, Any]]:
        answer = self._http.get(f"{self._api}/{kind}{_WITHOUT_CHILDREN}")
        items = answer if isinstance(answer, list) else [answer]
        if not all(isinstance(item, dict) for item in items):
            raise PeerError(f"the management of Qpid Broker-J answered with something other than a list of {kind}s")
        return items

    def _add_item(self, inspection: Inspection, kind: str, item: dict[str, Any]) -> None:
        entity = kind if kind == "broker" else f"{kind}/{item.get('name', '')}"
        statistics = item.get("statistics")
        # Lists of objects are children; each is read by its own kind.
        add_attributes(
            inspection, entity, {name: value for name, value in item.items() if name != "statistics" and _plain(value)}
        )
        if isinstance(statistics, dict):
            add_attributes(inspection, entity, statistics)
            if kind == "queue":
                add_attributes(
                    inspection, entity, {ours: statistics.get(theirs) for ours, theirs in _COMMON_NAMES.items()}
                )
            if kind == "broker":
                _add_heap(inspection, item, statistics)


def _plain(value: Any) -> bool:
    return not (isinstance(value, list) and any(isinstance(entry, dict) for entry in value))


def _add_heap(inspection: Inspection, broker: dict[str, Any], statistics: dict[str, Any]) -> None:
    """The heap, under the same name as for every Java broker."""
    for metric, value in (("used", statistics.get("usedHeapMemorySize")), ("max", broker.get("maximumHeapMemorySize"))):
        number = number_of(value)
        if number is not None:
            inspection.readings.append(Reading("memory/heap", metric, number))
