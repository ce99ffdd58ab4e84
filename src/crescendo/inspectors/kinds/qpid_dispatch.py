"""What does Qpid Dispatch report about itself, and its successor, the Skupper router?

AMQP management: one query per entity type to $management, answered at a reply node of our own. Every attribute is
recorded, unknown ones too. Memory is reported in blocks; the bytes (count × size of the type) are added to it.
"""

from collections.abc import Mapping
from typing import Any

from crescendo.client.amqp10 import Amqp10Client
from crescendo.client.amqp10_message import Amqp10Message
from crescendo.inspectors.attributes import add_attributes, number_of
from crescendo.inspectors.base import TIMEOUT_S, Inspection, InspectionTarget, Reading
from crescendo.inspectors.targets import AMQP, MANAGEMENT, url_of
from crescendo.model.errors import PeerError

TYPES = (
    "router",
    "router.link",
    "router.node",
    "router.address",
    "connection",
    "connector",
    "allocator",
    "router.config.autoLink",
    "router.config.linkRoute",
)
PREFIX, SKUPPER_PREFIX = "org.apache.qpid.dispatch.", "io.skupper.router."
"""How the types of entities are called; apart from that the routers are asked alike."""

ADDRESS = "$management"
ALLOCATOR = "allocator"
_OK = 200
_COUNTS = ("totalAllocFromHeap", "totalFreeToHeap", "heldByThreads")


class DispatchInspector:
    """Inspects one router."""

    _name, _prefix = "qpid-dispatch", PREFIX

    def __init__(self, target: InspectionTarget, timeout_s: float = TIMEOUT_S) -> None:
        self._url = url_of(target, self._name, (MANAGEMENT, AMQP), ("amqp",))
        self._timeout_s = timeout_s
        self._client: Amqp10Client | None = None

    def inspect(self) -> Inspection:
        if self._client is not None and self._client.stale:
            self.close()
        if self._client is None:
            self._client = Amqp10Client(self._url, self._timeout_s)
        inspection = Inspection()
        try:
            for kind in TYPES:
                query = query_of(kind, self._prefix)
                add_answer(inspection, kind, self._client.request(ADDRESS, {"attributeNames": []}, query))
        except PeerError:
            self.close()
            raise
        return inspection

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()


class SkupperInspector(DispatchInspector):
    """Inspects one Skupper router."""

    _name, _prefix = "skupper-router", SKUPPER_PREFIX


def query_of(kind: str, prefix: str = PREFIX) -> dict[str, Any]:
    """The application properties of a query for all entities of a type."""
    return {
        "operation": "QUERY",
        "type": "org.amqp.management",
        "entityType": prefix + kind,
        "name": "self",
    }


def add_answer(inspection: Inspection, kind: str, answer: Amqp10Message) -> None:
    """Add every entity of one answer. A type that this router lacks is a text, not a failure."""
    status = answer.application_properties.get("statusCode")
    if status != _OK:
        description = answer.application_properties.get("statusDescription", "no reason given")
        inspection.texts["management", kind] = f"{status}: {description}"
        return
    for entity in entities_of(answer.body):
        name = f"{kind}/{identity_of(kind, entity)}"
        add_attributes(inspection, name, entity)
        if kind == ALLOCATOR:
            _add_bytes(inspection, name, entity)


def entities_of(body: Any) -> list[dict[str, Any]]:
    """The entities in the body of an answer: attribute names once, then one list of values per entity."""
    names, results = (body.get("attributeNames"), body.get("results")) if isinstance(body, Mapping) else (None, None)
    if not isinstance(names, list) or not isinstance(results, list):
        raise PeerError("the router answered a query with something other than attribute names and results")
    # A result shorter than the names lacks the last attributes.
    return [dict(zip(map(str, names), values, strict=False)) for values in results if isinstance(values, list)]


def identity_of(kind: str, entity: Mapping[str, Any]) -> str:
    """What identifies an entity across inspections. Some types repeat their own name in it."""
    identity = entity.get("identity") or entity.get("name") or ""
    return str(identity).removeprefix(f"{kind}/")


def _add_bytes(inspection: Inspection, name: str, entity: Mapping[str, Any]) -> None:
    size = number_of(entity.get("typeSize"))
    for count in _COUNTS:
        number = number_of(entity.get(count))
        if size is not None and number is not None:
            inspection.readings.append(Reading(name, f"{count}Bytes", number * size))
