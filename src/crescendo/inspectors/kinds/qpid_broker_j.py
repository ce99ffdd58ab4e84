"""What does Qpid Broker-J say about itself?

Its REST management: the broker, its virtual hosts, queues and connections, each with its statistics. It asks for
objects and calls no operation.
"""

from typing import Any

from crescendo.inspectors.attributes import number_of, take
from crescendo.inspectors.base import Inspection, InspectionTarget, Reading
from crescendo.inspectors.sources.http import Http
from crescendo.inspectors.targets import MANAGEMENT, url_of
from crescendo.model.errors import PeerError

_API = "/api/latest"
_LEAN = "?depth=0&excludeInheritedContext=true"  # no children, and not the hundreds of settings that each repeats
_KINDS = ("broker", "virtualhost", "queue", "connection")
_SAME = {
    "MessageCount": "queueDepthMessages",
    "MessagesAdded": "totalEnqueuedMessages",
    "MessagesAcknowledged": "totalDequeuedMessages",
    "MessagesExpired": "totalExpiredMessages",
    "ConsumerCount": "consumerCount",
}
"""The same numbers under the names that the other brokers' queues have them, so that they share one table."""


class BrokerJInspector:
    """Looks at one broker."""

    def __init__(self, target: InspectionTarget) -> None:
        self._http = Http(url_of(target, "qpid-broker-j", (MANAGEMENT,), ("http", "https")))
        self._api = self._http.path.removesuffix(_API) + _API

    def inspect(self) -> Inspection:
        look = Inspection()
        for kind in _KINDS:
            for item in self._list(kind):
                self._take(look, kind, item)
        return look

    def close(self) -> None:
        self._http.close()

    def _list(self, kind: str) -> list[dict[str, Any]]:
        answer = self._http.get(f"{self._api}/{kind}{_LEAN}")
        items = answer if isinstance(answer, list) else [answer]
        if not all(isinstance(item, dict) for item in items):
            raise PeerError(f"the management of Qpid Broker-J answered with something else than a list of {kind}s")
        return items

    def _take(self, look: Inspection, kind: str, item: dict[str, Any]) -> None:
        entity = kind if kind == "broker" else f"{kind}/{item.get('name', '')}"
        statistics = item.get("statistics")
        # Lists of objects are children; each is asked for by its own kind.
        take(look, entity, {name: value for name, value in item.items() if name != "statistics" and _plain(value)})
        if isinstance(statistics, dict):
            take(look, entity, statistics)
            if kind == "queue":
                take(look, entity, {ours: statistics.get(theirs) for ours, theirs in _SAME.items()})
            if kind == "broker":
                _take_heap(look, item, statistics)


def _plain(value: Any) -> bool:
    return not (isinstance(value, list) and any(isinstance(entry, dict) for entry in value))


def _take_heap(look: Inspection, broker: dict[str, Any], statistics: dict[str, Any]) -> None:
    """The heap under the name that it has for every Java broker."""
    for metric, value in (("used", statistics.get("usedHeapMemorySize")), ("max", broker.get("maximumHeapMemorySize"))):
        number = number_of(value)
        if number is not None:
            look.readings.append(Reading("memory/heap", metric, number))
