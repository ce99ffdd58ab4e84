"""Which columns do the data sets of the router have, and where in a look do they come from?

The three data sets of the thesis (appendix D: general, memory, route links), and the connections that its tool also
wrote, with its column names in its order. The time stamp is the look's and stands in front of every row. Counts of
memory blocks stay counts, as in the original; their bytes have columns of their own behind them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from crescendo.inspectors.base import Look

NAME = "Name"


@dataclass(frozen=True)
class DataSet:
    """One table: rows are the entities of a type, columns are attributes."""

    file: str
    kind: str  # entities are called "kind/identity"
    columns: Mapping[str, str]  # column -> attribute


GENERAL = DataSet(
    "general.csv",
    "router",
    {
        NAME: "name",
        "Version": "version",
        "Mode": "mode",
        "LinkRoutes": "linkRouteCount",
        "AutoLinks": "autoLinkCount",
        "Links": "linkCount",
        "Nodes": "nodeCount",
        "Addresses": "addrCount",
        "Connections": "connectionCount",
        "PressettledCOunt": "presettledDeliveries",  # spelt so in every file that exists
        "DroppedPresettledCount": "droppedPresettledDeliveries",
        "AcceptedCount": "acceptedDeliveries",
        "RejectedCount": "rejectedDeliveries",
        "ReleasedCount": "releasedDeliveries",
        "ModifiedCount": "modifiedDeliveries",
        "IngressCount": "deliveriesIngress",
        "EngressCount": "deliveriesEgress",
        "TransitCount": "deliveriesTransit",
        "DelFromRouterContainer": "deliveriesIngressRouteContainer",
        "DelToRouterContainer": "deliveriesEgressRouteContainer",
    },
)
MEMORY = DataSet(
    "qdmemory.csv",
    "allocator",
    {
        NAME: "typeName",
        "Size": "typeSize",
        "Batch": "transferBatchSize",
        "Thread-max": "localFreeListMax",
        "Total": "totalAllocFromHeap",
        "In-threads": "heldByThreads",
        "Rebal-in": "batchesRebalancedToThreads",
        "Rebal-out": "batchesRebalancedToGlobal",
        "totalFreeToHeap": "totalFreeToHeap",
        "globalFreeListMax": "globalFreeListMax",
        "Total-bytes": "totalAllocFromHeapBytes",
        "In-threads-bytes": "heldByThreadsBytes",
    },
)
ROUTE_LINKS = DataSet(
    "routerLink.csv",
    "router.link",
    {
        NAME: "name",
        "LinkDir": "linkDir",
        "OperStatus": "operStatus",
        "Identity": "identity",
        "DeliveryCount": "deliveryCount",
        "UndeliveredCount": "undeliveredCount",
        "PresettledCount": "presettledCount",
        "UnsettledCount": "unsettledCount",
        "ReleasedCount": "releasedCount",
        "ModifiedCount": "modifiedCount",
        "AcceptedCount": "acceptedCount",
        "RejectedCount": "rejectedCount",
        "Capacity": "capacity",
    },
)
CONNECTIONS = DataSet(
    "connections.csv",
    "connection",
    {
        NAME: "name",
        "Host": "host",
        "Role": "role",
        "Dir": "dir",
        "Opened": "opened",
        "Identity": "identity",
        "User": "user",
        "sasl": "sasl",
        "Encrypted": "isEncrypted",
        "sslProto": "sslProto",
        "sslCipher": "sslCipher",
        "Tenant": "tenant",
        "Authenticated": "isAuthenticated",
        "Properties": "properties",
    },
)
DATA_SETS = (GENERAL, MEMORY, ROUTE_LINKS, CONNECTIONS)


def rows_of(data_set: DataSet, look: Look) -> list[dict[str, float | str]]:
    """One row for each entity; a column whose attribute the router did not give is empty."""
    entities: dict[str, dict[str, float | str]] = {}
    for entity, metric, value in look.readings:
        entities.setdefault(entity, {})[metric] = value
    for (entity, attribute), text in look.texts.items():
        entities.setdefault(entity, {})[attribute] = text
    return [
        {column: _cell(attributes, attribute) for column, attribute in data_set.columns.items()}
        for entity, attributes in entities.items()
        if entity.startswith(f"{data_set.kind}/")
    ]


def _cell(attributes: Mapping[str, float | str], attribute: str) -> float | str:
    """The attribute, or the map that was flattened under its name, written as the original wrote it."""
    if attribute in attributes:
        return attributes[attribute]
    inside = {
        name.removeprefix(f"{attribute}."): v for name, v in attributes.items() if name.startswith(f"{attribute}.")
    }
    listed = ", ".join(
        f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in inside.items()
    )
    return f"{{{listed}}}" if inside else ""
