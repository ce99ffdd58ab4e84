"""What happens when a link is attached, a message arrives or a connection ends?

A router advertises the addresses that its clients receive from, and passes messages on towards them. Each event of a
connection goes to the part whose job it is: neighbours, forwarding, settlement, or links to brokers. Knows no sockets.
"""

from collections.abc import Callable

from crescendo.model.errors import PeerError
from crescendo.systems.relay.broker_links import BrokerLinks
from crescendo.systems.relay.forwarding import Forwarding
from crescendo.systems.relay.hop_samples import HopSamples
from crescendo.systems.relay.router_config import RouterConfig
from crescendo.systems.relay.router_links import Inlet, Outlet, RoutedBatch, RouterPeer
from crescendo.systems.relay.router_neighbours import Neighbours
from crescendo.systems.relay.router_tables import CONTROL, DATA_PREFIX, LINK_PREFIX, MANAGEMENT, RouterTables
from crescendo.wire.amqp10.events import Deliveries, Settled
from crescendo.wire.amqp10.links import RECEIVER, SETTLE_SETTLED
from crescendo.wire.amqp10.performatives import Attach, Source, Target
from crescendo.wire.amqp10.termini import TOPIC

_CONTROL_CREDIT = 1_000_000


class Router:
    """One router, without its sockets."""

    def __init__(
        self,
        config: RouterConfig,
        flush: Callable[[RouterPeer], bool],
        ask: Callable[[bytes], tuple[str, bytes] | None],
        samples: HopSamples | None = None,
    ) -> None:
        self.tables = RouterTables(config, flush)
        self._ask = ask  # answers a management request: the address of the answer and its bytes
        self.forwarding = Forwarding(self.tables, samples)
        self._settlement = self.forwarding.settlement
        self._neighbours = Neighbours(self.tables, self.forwarding.reroute)
        self.brokers = BrokerLinks(self.tables, self._settlement, self._neighbours.advertise)
        self._neighbours.routed_links = self.brokers.routed_prefixes
        self._dynamic = 0

    # -- connections ---------------------------------------------------------------------------------------------

    def joined(self, peer: RouterPeer) -> None:
        """A connection that we opened is ready: to another router, or to a broker."""
        if peer.is_inter_router:
            self._neighbours.joined(peer)
        else:
            self.brokers.connected(peer)

    def lost(self, peer: RouterPeer) -> None:
        """A connection has ended: what was unsettled on it is routed again."""
        inlets, outlets = list(peer.inlets.values()), list(peer.outlets.values())
        peer.inlets.clear()
        peer.outlets.clear()
        peer.router = None
        self._neighbours.advertise()
        for inlet in inlets:
            self._drop_inlet(inlet, "the connection behind this link was lost")
        for outlet in outlets:
            self._drop_outlet(outlet, "the connection behind this link was lost")

    # -- links ---------------------------------------------------------------------------------------------------

    def attach(self, peer: RouterPeer, handle: int, attach: Attach) -> None:
        link = peer.outlets.get(handle) or peer.inlets.get(handle)
        if link is not None:  # the answer to a link of ours
            self.brokers.answered(link, attach)
            return
        if handle in {peer.control_out, peer.control_in}:
            return
        terminus = attach.source if attach.role is RECEIVER else attach.target
        address = getattr(terminus, "address", None)
        if isinstance(terminus, Source) and terminus.dynamic:
            self._dynamic += 1
            address = terminus.address = f"_dynamic/{self.tables.state.router}/{self._dynamic}"
        if not isinstance(terminus, Source | Target) or not isinstance(address, str) or not address:
            peer.connection.refuse_attach(handle, attach, "amqp:invalid-field", "the relay needs an address")
        elif address == CONTROL:
            peer.connection.accept_attach(handle, attach)
            peer.control_in = handle
            peer.connection.grant(handle, _CONTROL_CREDIT)
            self._neighbours.joined(peer)
        elif not self._attach_routed(peer, handle, attach, address):
            self._attach_own(peer, handle, attach, address, is_topic=TOPIC in (terminus.capabilities or ()))

    def _attach_routed(self, peer: RouterPeer, handle: int, attach: Attach, address: str) -> bool:
        egress = None
        if address.startswith(LINK_PREFIX):
            egress, _, address = address.removeprefix(LINK_PREFIX).partition("/")
        return self.brokers.attach_routed(peer, handle, attach, address, egress)

    def _attach_own(self, peer: RouterPeer, handle: int, attach: Attach, address: str, *, is_topic: bool) -> None:
        egress = None
        if address.startswith(DATA_PREFIX):
            egress, _, address = address.removeprefix(DATA_PREFIX).partition("/")
        if is_topic:
            self.tables.topics.add(address)
        peer.connection.accept_attach(handle, attach)
        if attach.role is RECEIVER:
            settled = attach.snd_settle_mode == SETTLE_SETTLED
            outlet = Outlet(peer, handle, str(attach.name), self.tables.config.received_as(address), settled=settled)
            peer.outlets[handle] = outlet
            self.brokers.add_receiver(outlet)
        else:
            inlet = peer.inlets[handle] = Inlet(peer, handle, str(attach.name), address, egress)
            self._settlement.grant(inlet)

    def detach(self, peer: RouterPeer, handle: int, error: str) -> None:
        inlet, outlet = peer.inlets.pop(handle, None), peer.outlets.pop(handle, None)
        if inlet is not None:
            self._drop_inlet(inlet, error)
        if outlet is not None:
            self._drop_outlet(outlet, error)

    def _drop_inlet(self, inlet: Inlet, reason: str) -> None:
        inlet.gone = True
        if inlet.linked is not None:
            self.brokers.end_other_half(inlet, reason)

    def _drop_outlet(self, outlet: Outlet, reason: str) -> None:
        outlet.attached = False
        if outlet.linked is not None:
            self.brokers.end_other_half(outlet, reason)
            return
        receivers, ways = self.tables.receivers, self.tables.ways
        if outlet.egress is None:
            outlets = receivers.get(outlet.address, [])
            if outlet in outlets:
                outlets.remove(outlet)
            if not outlets:
                receivers.pop(outlet.address, None)
        else:
            for key, way in list(ways.items()):
                if way is outlet:
                    del ways[key]
        self.forwarding.take_back(outlet)
        self._neighbours.advertise()
        self.forwarding.serve_waiting()

    def credited(self, peer: RouterPeer, handle: int | None) -> None:
        """A receiver granted credit; that of a routed link goes on to its sender."""
        outlet = None if handle is None else peer.outlets.get(handle)
        if outlet is not None and outlet.linked is not None:
            self._settlement.grant(outlet.linked)

    # -- messages ------------------------------------------------------------------------------------------------

    def take(self, peer: RouterPeer, deliveries: Deliveries) -> None:
        if deliveries.handle == peer.control_in:
            for body in deliveries.bodies:
                self._neighbours.take_control(peer, body.tobytes())
            return
        inlet = peer.inlets.get(deliveries.handle)
        if inlet is None:
            raise PeerError("a message on a link that is not a sender's")
        count = len(deliveries.ids)
        inlet.granted -= count
        inlet.deliveries += count
        peer.arrived += count
        batch = RoutedBatch(
            inlet,
            deliveries.ids,
            deliveries.messages.copy(),  # the view is valid until the next read only
            deliveries.body_start,
            deliveries.body_length,
            deliveries.settled,
            int(peer.read_s * 1e9),
        )
        if inlet.address == MANAGEMENT:
            self._manage(batch)
            return
        self._count(inlet, count, settled=batch.settled)
        inlet.waiting.append(batch)
        self.forwarding.wait_for_way(inlet)

    def _count(self, inlet: Inlet, count: int, *, settled: bool) -> None:
        tables = self.tables
        onward = inlet.egress not in {None, tables.state.router}
        if inlet.linked is not None:
            onward = inlet.peer.router is not None and inlet.linked.peer.router is not None
        tables.ingress += count if inlet.peer.router is None else 0
        tables.transit += count if onward else 0
        tables.presettled += count if settled else 0
        inlet.presettled += count if settled else 0
        inlet.outstanding += count

    def _manage(self, batch: RoutedBatch) -> None:
        for row in batch.rows:
            answer = self._ask(row.tobytes())
            for outlet in self.tables.receivers.get(answer[0], ())[:1] if answer is not None else ():
                if outlet.peer.connection.sendable(outlet.handle) > 0 and answer is not None:
                    outlet.peer.connection.transfer_message(outlet.handle, answer[1], settled=True)
                    self.tables.flush(outlet.peer)
        if not batch.settled:
            self._settlement.settle_at(batch.inlet, batch.ids, None)
        self._settlement.grant(batch.inlet)

    def settle(self, peer: RouterPeer, settled: Settled) -> None:
        self._settlement.settle(peer, settled)
