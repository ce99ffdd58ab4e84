"""Which of our attributes belong under which heading of Maestro's inspector files?

The headings of each kind of file, in Maestro's order and with its misspellings, and the attribute names that each
system's management uses for them, separated by spaces; imports use the first. Knows neither files nor tables.
"""

from collections.abc import Mapping
from types import MappingProxyType

MEMORY, QUEUE, ROUTER, ROUTER_LINK, ALLOCATOR, CONNECTION = (
    "memory/", "queue/", "router/", "router.link/", "allocator/", "connection/",
)  # fmt: skip

HEADINGS: Mapping[str, Mapping[str, str]] = MappingProxyType({
    MEMORY: {"Initial": "init", "Max": "max", "Committed": "committed", "Used": "used"},
    QUEUE: {
        "MessagesAdded": "MessagesAdded message_stats.publish",
        "MessageCount": "MessageCount messages",
        "MessagesAcknowledged": "MessagesAcknowledged message_stats.ack",
        "MessagesExpired": "MessagesExpired",
        "ConsumerCount": "ConsumerCount consumers",
    },
    ROUTER: {
        "Version": "version", "Mode": "mode", "LinkRoutes": "linkRouteCount", "AutoLinks": "autoLinkCount",
        "Links": "linkCount", "Nodes": "nodeCount", "Addresses": "addrCount", "Connections": "connectionCount",
        "PressettledCOunt": "presettledDeliveries", "DroppedPresettledCount": "droppedPresettledDeliveries",
        "AcceptedCount": "acceptedDeliveries", "RejectedCount": "rejectedDeliveries",
        "ReleasedCount": "releasedDeliveries", "ModifiedCount": "modifiedDeliveries",
        "IngressCount": "deliveriesIngress", "EngressCount": "deliveriesEgress", "TransitCount": "deliveriesTransit",
        "DelFromRouterContainer": "deliveriesIngressRouteContainer",
        "DelToRouterContainer": "deliveriesEgressRouteContainer",
    },
    ROUTER_LINK: {
        "LinkType": "linkType", "LinkDir": "linkDir", "Identity": "identity", "OperStatus": "operStatus",
        "DeliveryCount": "deliveryCount", "UndeliveredCount": "undeliveredCount",
        "PresettledCount": "presettledCount", "UnsettledCount": "unsettledCount",
        "DroppedPresettledCount": "droppedPresettledCount", "ReleasedCount": "releasedCount",
        "ModifiedCount": "modifiedCount", "AcceptedCount": "acceptedCount", "RejectedCount": "rejectedCount",
        "Capacity": "capacity",
    },
    ALLOCATOR: {
        "Size": "typeSize", "Batch": "transferBatchSize", "Thread-max": "localFreeListMax",
        "Total": "totalAllocFromHeap", "In-threads": "heldByThreads", "Rebal-in": "batchesRebalancedToThreads",
        "Rebal-out": "batchesRebalancedToGlobal", "totalFreeToHeap": "totalFreeToHeap",
        "globalFreeListMax": "globalFreeListMax",
    },
    CONNECTION: {
        "Host": "host", "Role": "role", "Dir": "dir", "Opened": "opened", "Identity": "identity", "User": "user",
        "sasl": "sasl", "Encrypted": "isEncrypted", "sslProto": "sslProto", "sslCipher": "sslCipher",
        "Tenant": "tenant", "Authenticated": "isAuthenticated", "Properties": "properties",
    },
})  # fmt: skip
"""Prefix of our entity names -> heading -> attributes."""
