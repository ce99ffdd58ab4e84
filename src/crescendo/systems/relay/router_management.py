"""What does a relay that works as a router say about itself?

The answers to AMQP management queries, with the entity types and attributes of qpid-dispatch, so that its inspectors
and tools work: the router with its memory and delivery counts, links, routers, addresses, connections, connectors.
Changes nothing.
"""

import resource
import time
from collections.abc import Callable
from typing import Any

import msgspec

from crescendo import __version__
from crescendo.client.amqp10_message import Amqp10Message, decode_message, encode_message
from crescendo.model.errors import PeerError
from crescendo.systems.relay.router import Router
from crescendo.systems.relay.router_links import OUTCOMES, Inlet, Outlet
from crescendo.systems.relay.router_tables import RouterTables

PREFIX = "org.apache.qpid.dispatch."
PRODUCT = "crescendo relay, a stand-in for a router"


class RouterManagement:
    """Answers queries about one router."""

    def __init__(self) -> None:
        self.router: Router | None = None
        self._started_s = time.monotonic()

    def answer(self, request: bytes) -> tuple[str, bytes] | None:
        """The address of the answer and its bytes, or None where none is wanted or possible."""
        try:
            message = decode_message(memoryview(request))
        except PeerError:
            return None
        if message.reply_to is None:
            return None
        correlation = message.correlation_id if message.correlation_id is not None else message.message_id
        status, description, body = self._query(message)
        properties = {"statusCode": status, "statusDescription": description}
        return message.reply_to, encode_message(
            Amqp10Message(body, properties, to=message.reply_to, correlation_id=correlation)
        )

    def _query(self, message: Amqp10Message) -> tuple[int, str, dict[str, Any]]:
        asked = message.application_properties
        if asked.get("operation") != "QUERY":
            return 501, "the relay answers QUERY only", {}
        kind = str(asked.get("entityType", "")).removeprefix(PREFIX)
        tables: dict[str, Callable[[], list[dict[str, Any]]]] = {
            "router": self._routers,
            "router.link": self._links,
            "router.node": self._nodes,
            "router.address": self._addresses,
            "connection": self._connections,
            "connector": self._connectors,
            "router.config.linkRoute": self._link_routes,
            "router.config.autoLink": self._auto_links,
        }
        if kind not in tables or self.router is None:
            return 404, f"the relay has no entities of the type {kind!r}", {}
        rows = tables[kind]()
        names = list(rows[0]) if rows else []
        wanted = message.body.get("attributeNames") if isinstance(message.body, dict) else None
        names = [name for name in names if not wanted or name in wanted]
        return 200, "OK", {"attributeNames": names, "results": [[row[name] for name in names] for row in rows]}

    # -- entities ------------------------------------------------------------------------------------------------

    def _of(self) -> RouterTables:
        if self.router is None:
            raise PeerError("the relay has not started")
        return self.router.tables

    def _routers(self) -> list[dict[str, Any]]:
        router = self._of()
        inlets = [inlet for peer in router.peers.values() for inlet in peer.inlets.values()]
        outlets = [outlet for peer in router.peers.values() for outlet in peer.outlets.values()]
        totals = {f"{name}Deliveries": router.finished[name] for name in OUTCOMES}
        return [
            {
                "name": "router",
                "identity": "router/1",
                "type": PREFIX + "router",
                "id": router.state.router,
                "mode": router.config.identity.mode,
                "version": f"{__version__} ({PRODUCT})",
                "addrCount": len(router.receivers),
                "linkCount": len(inlets) + len(outlets),
                "nodeCount": len(router.state.routes()),
                "linkRouteCount": len(router.config.linkRoute),
                "autoLinkCount": len(router.config.autoLink),
                "connectionCount": len(router.peers),
                **totals,
                "presettledDeliveries": router.presettled,
                "deliveriesIngress": router.ingress,
                "deliveriesEgress": router.egress,
                "deliveriesTransit": router.transit,
                "unsettledCount": sum(inlet.outstanding for inlet in inlets),
                "memoryUsage": _memory_bytes(),
                "uptimeSeconds": int(time.monotonic() - self._started_s),
            }
        ]

    def _links(self) -> list[dict[str, Any]]:
        rows = []
        for peer in self._of().peers.values():
            links: list[Inlet | Outlet] = [*peer.inlets.values(), *peer.outlets.values()]
            rows += [_link(link, peer.identity) for link in links]
        return rows

    def _nodes(self) -> list[dict[str, Any]]:
        router = self._of()
        rows = [
            {
                "name": router.state.router,
                "identity": router.state.router,
                "id": router.state.router,
                "nextHop": "(self)",
                "cost": 0,
            }
        ]
        for name, route in sorted(router.state.routes().items()):
            hop = "-" if route.next_hop == name else route.next_hop
            rows.append({"name": name, "identity": name, "id": name, "nextHop": hop, "cost": route.cost})
        return rows

    def _addresses(self) -> list[dict[str, Any]]:
        router = self._of()
        names = set(router.receivers) | {name for each in router.state.advertisements for name in each.addresses}
        return [
            {
                "name": name,
                "identity": name,
                "distribution": router.config.distribution_of(name),
                "subscriberCount": len(router.receivers.get(name, ())),
                "remoteCount": len(router.state.holders(name)),
            }
            for name in sorted(names)
        ]

    def _link_routes(self) -> list[dict[str, Any]]:
        return [
            {"name": f"linkRoute/{at}", "identity": f"linkRoute/{at}", **msgspec.to_builtins(route)}
            for at, route in enumerate(self._of().config.linkRoute)
        ]

    def _auto_links(self) -> list[dict[str, Any]]:
        return [
            {"name": f"autoLink/{at}", "identity": f"autoLink/{at}", **msgspec.to_builtins(entry)}
            for at, entry in enumerate(self._of().config.autoLink)
        ]

    def _connections(self) -> list[dict[str, Any]]:
        return [
            {
                "name": f"connection/{peer.identity}",
                "identity": "/".join(filter(None, (peer.router or peer.name, str(peer.identity)))),
                "role": peer.role,
                "deliveriesIn": peer.arrived,
                "deliveriesOut": peer.departed,
                "container": peer.router or peer.container,
                "dir": "out" if peer.name else "in",
                "opened": peer.opened,
            }
            for peer in self._of().peers.values()
        ]

    def _connectors(self) -> list[dict[str, Any]]:
        router = self._of()
        open_names = {peer.name for peer in router.peers.values() if peer.opened and peer.name}
        rows = []
        for at, entry in enumerate(router.config.connector):
            name = entry.name or f"connector/{at}"
            status = "SUCCESS" if name in open_names else "CONNECTING"
            rows.append(
                {
                    "name": name,
                    "identity": f"connector/{at}",
                    "host": entry.host,
                    "port": str(entry.port),
                    "role": entry.role,
                    "cost": entry.cost,
                    "connectionStatus": status,
                    "connectionMsg": "" if name in open_names else router.failures.get(name, ""),
                }
            )
        return rows


def _link(link: Inlet | Outlet, connection: int) -> dict[str, Any]:
    direction = "in" if isinstance(link, Inlet) else "out"
    return {
        "name": link.name,
        "identity": f"{connection}/{link.handle}",
        "linkType": "inter-router" if link.egress is not None else "endpoint",
        "linkDir": direction,
        "owningAddr": link.address,
        "connectionId": str(connection),
        "capacity": 2000,
        "undeliveredCount": sum(len(batch) for batch in link.waiting) if isinstance(link, Inlet) else 0,
        "unsettledCount": link.outstanding if isinstance(link, Inlet) else link.unsettled_count,
        "deliveryCount": link.deliveries,
        "presettledCount": link.presettled,
        "acceptedCount": link.outcomes["accepted"],
        "rejectedCount": link.outcomes["rejected"],
        "releasedCount": link.outcomes["released"],
        "modifiedCount": link.outcomes["modified"],
    }


def _memory_bytes() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
