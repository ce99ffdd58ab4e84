"""How do the queues of a broker become part of a network?

Two ways. A link route: the link of a client is continued, from router to router, up to the broker, which grants its
credit and settles its messages; a link to a missing queue is refused with the broker's own words. An auto link: the
router itself sends to a queue of the broker and receives from it, so that messages pass through that queue on their way
(a waypoint). Opens no connections.
"""

from collections.abc import Callable

import msgspec

from crescendo.systems.relay.router_config import has_prefix
from crescendo.systems.relay.router_links import Inlet, Outlet, RouterPeer
from crescendo.systems.relay.router_settlement import RouterSettlement
from crescendo.systems.relay.router_tables import LINK_PREFIX, RouterTables
from crescendo.wire.amqp10.links import RECEIVER, SENDER, SETTLE_SETTLED
from crescendo.wire.amqp10.performatives import Attach, Source, Target
from crescendo.wire.amqp10.termini import source_at, target_at

_ADVERTISED = "_link"
_NOT_FOUND = "amqp:not-found"


class BrokerLinks:
    """All routed links, and the auto links of all brokers."""

    def __init__(self, tables: RouterTables, settlement: RouterSettlement, advertise: Callable[[], None]) -> None:
        self._tables = tables
        self._settlement = settlement
        self._advertise = advertise
        self._numbers = 0

    # -- auto links ----------------------------------------------------------------------------------------------

    def connected(self, peer: RouterPeer) -> None:
        """A broker is there: attach to its queues, and tell the network what can be reached through it."""
        for entry in self._tables.config.autoLink:
            if entry.connection != peer.name:
                continue
            queue = entry.externalAddress or entry.address
            name = f"autolink/{entry.direction}/{entry.address}/{self._tables.state.router}"
            if entry.direction == "out":
                handle = peer.connection.attach(name, SENDER, Source(), target_at(queue, topic=False))
                peer.outlets[handle] = Outlet(peer, handle, name, entry.address, attached=False)
            else:
                source = source_at(queue, topic=False, selector=None, durable=False)
                handle = peer.connection.attach(name, RECEIVER, source, Target())
                address = self._tables.config.received_as(entry.address)
                peer.inlets[handle] = Inlet(peer, handle, name, address, attached=False)
        self._advertise()

    def add_receiver(self, outlet: Outlet) -> None:
        """Messages for this address may leave here."""
        self._tables.receivers.setdefault(outlet.address, []).append(outlet)
        self._advertise()
        self._settlement.grant_all(outlet.address)

    # -- link routes ---------------------------------------------------------------------------------------------

    def routed_prefixes(self) -> list[str]:
        """What this router advertises: the link routes to brokers that are connected now."""
        live = {peer.name for peer in self._brokers()}
        routes = self._tables.config.linkRoute
        return [f"{_ADVERTISED}/{route.direction}/{route.prefix}" for route in routes if route.connection in live]

    def attach_routed(self, peer: RouterPeer, handle: int, attach: Attach, address: str, egress: str | None) -> bool:
        """Continue a link towards its broker; False if no link route covers its address."""
        receiving = attach.role is RECEIVER
        found = self._next(address, "out" if receiving else "in", egress)
        if found is None:
            if egress is not None:
                peer.connection.refuse_attach(handle, attach, _NOT_FOUND, f"no way to {address}")
            return egress is not None
        other, remote = found
        self._numbers += 1
        name = f"{attach.name}/{self._tables.state.router}/{self._numbers}"
        source = attach.source if isinstance(attach.source, Source) else Source()
        target = attach.target if isinstance(attach.target, Target) else Target()
        settled = attach.snd_settle_mode == SETTLE_SETTLED
        if receiving:
            source = msgspec.structs.replace(source, address=remote)
            far_handle = other.connection.attach(name, RECEIVER, source, target, settled=settled)
            inlet = Inlet(other, far_handle, name, address, attached=False)
            outlet = Outlet(peer, handle, str(attach.name), address, settled=settled, attached=False, request=attach)
        else:
            target = msgspec.structs.replace(target, address=remote)
            far_handle = other.connection.attach(name, SENDER, source, target, settled=settled)
            outlet = Outlet(other, far_handle, name, address, attached=False)
            inlet = Inlet(peer, handle, str(attach.name), address, attached=False, request=attach)
        inlet.linked, outlet.linked = outlet, inlet
        inlet.peer.inlets[inlet.handle], outlet.peer.outlets[outlet.handle] = inlet, outlet
        self._tables.flush(other)
        return True

    def _next(self, address: str, direction: str, egress: str | None) -> tuple[RouterPeer, str] | None:
        """The connection on which a routed link goes on, and its address there."""
        tables = self._tables
        if egress in {None, tables.state.router}:
            for route in tables.config.linkRoute:
                if route.direction == direction and has_prefix(address, route.prefix):
                    for peer in self._brokers():
                        if peer.name == route.connection:
                            return peer, address
        if egress is None:
            egress = self._cheapest_holder(address, direction)
        route_to = None if egress is None else tables.state.routes().get(egress)
        peer_to = None if route_to is None else tables.peer_to(route_to.next_hop)
        return None if peer_to is None else (peer_to, f"{LINK_PREFIX}{egress}/{address}")

    def _cheapest_holder(self, address: str, direction: str) -> str | None:
        start = f"{_ADVERTISED}/{direction}/"
        routes = self._tables.state.routes()
        holders = {
            known.router
            for known in self._tables.state.advertisements
            for name in known.addresses
            if known.router in routes and name.startswith(start) and has_prefix(address, name.removeprefix(start))
        }
        return min(holders, key=lambda name: (routes[name].cost, name), default=None)

    def _brokers(self) -> list[RouterPeer]:
        return [peer for peer in self._tables.peers.values() if peer.opened and peer.name and not peer.is_inter_router]

    # -- answers and ends ----------------------------------------------------------------------------------------

    def answered(self, link: Inlet | Outlet, attach: Attach) -> None:
        """The other side answered a link of ours. Without a terminus it is a refusal, and the reason follows."""
        if (attach.source if isinstance(link, Inlet) else attach.target) is None:
            return
        link.attached = True
        near = link.linked
        if near is not None:
            if near.request is not None:
                near.peer.connection.accept_attach(near.handle, near.request)
                near.attached, near.request = True, None
            inlet = link if isinstance(link, Inlet) else near
            if isinstance(inlet, Inlet):
                self._settlement.grant(inlet)
            self._tables.flush(near.peer)
        elif isinstance(link, Inlet):
            self._settlement.grant(link)
        elif link.egress is None:
            self.add_receiver(link)

    def end_other_half(self, link: Inlet | Outlet, reason: str) -> None:
        """One half of a routed link has ended: so does the other, with the same reason."""
        other, link.linked = link.linked, None
        if other is None:
            return
        other.linked, connection = None, other.peer.connection
        if isinstance(other, Inlet):
            other.peer.inlets.pop(other.handle, None)
            other.gone = True
            other.waiting.clear()
        else:
            other.peer.outlets.pop(other.handle, None)
            other.attached = False
        if other.peer.identity not in self._tables.peers:
            return
        if other.request is not None:
            connection.refuse_attach(other.handle, other.request, _NOT_FOUND, reason or "the broker refused the link")
        elif other.handle in connection.links:
            connection.detach(other.handle)
        self._tables.flush(other.peer)
