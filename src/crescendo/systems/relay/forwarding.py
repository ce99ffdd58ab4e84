"""Where does each message go?

A message for an address goes to a receiver here, or over the cheapest way to a router that has one. Which one, the
distribution of the address decides: closest, balanced (the least unsettled messages, costs included) or multicast.
Messages of a routed link go to its other half. When a connection is lost, the messages that were unsettled on it are
routed again.
"""

import time
from collections.abc import Iterable

import numpy as np

from crescendo.systems.relay.hop_samples import HopSamples
from crescendo.systems.relay.router_links import Inlet, Outlet, RoutedBatch
from crescendo.systems.relay.router_settlement import RouterSettlement
from crescendo.systems.relay.router_tables import DATA_PREFIX, MANAGEMENT, RouterTables
from crescendo.wire.amqp10.batch import TransferBatch
from crescendo.wire.amqp10.frames import encode_message
from crescendo.wire.amqp10.links import SENDER
from crescendo.wire.amqp10.performatives import Released, Source
from crescendo.wire.amqp10.termini import target_at

HOLD_S = 10.0
"""How long a message waits for a way to its address before it is released to its sender."""


class Forwarding:
    """The messages of all links."""

    def __init__(self, tables: RouterTables, samples: HopSamples | None = None) -> None:
        self._tables = tables
        self._samples = samples
        self.settlement = RouterSettlement(tables, self.has_way)

    def reroute(self) -> None:
        """The network has changed: leave ways that are no longer the cheapest, and try everything that waits."""
        routes = self._tables.state.routes()
        for (address, egress), outlet in list(self._tables.ways.items()):
            route = routes.get(egress)
            if route is None or outlet.peer.router != route.next_hop:
                del self._tables.ways[address, egress]
                outlet.attached = False  # it takes nothing more; what is unsettled on it may still be settled
                if route is None:
                    self.take_back(outlet)
        self.serve_waiting()
        for peer in list(self._tables.peers.values()):
            for inlet in list(peer.inlets.values()):
                self.settlement.grant(inlet)
            self._tables.flush(peer)

    def take_back(self, outlet: Outlet) -> None:
        """Messages whose receiver is gone wait at the front again, in their order."""
        for _, batch in reversed(outlet.unsettled):
            if batch.copies is not None:
                self.settlement.settle_copies(batch, None)  # a receiver that is gone owes nothing
            elif not batch.inlet.gone:
                batch.inlet.waiting.appendleft(batch)
                self.wait_for_way(batch.inlet)
        outlet.unsettled.clear()
        outlet.unsettled_count = 0

    def wait_for_way(self, inlet: Inlet) -> None:
        if inlet not in self._tables.waiting:
            inlet.waiting_since_s = time.monotonic()
            self._tables.waiting[inlet] = None

    def serve_waiting(self) -> None:
        """Send everything that can be sent now."""
        for inlet in list(self._tables.waiting):
            while inlet.waiting and self._send_first(inlet):
                inlet.waiting_since_s = time.monotonic()
            if not inlet.waiting:
                self._tables.waiting.pop(inlet, None)

    def expire(self) -> None:
        """Release messages that have waited too long for a way to their address."""
        now_s = time.monotonic()
        for inlet in list(self._tables.waiting):
            if now_s - inlet.waiting_since_s < HOLD_S or self.has_way(inlet):
                continue
            while inlet.waiting:
                batch = inlet.waiting.popleft()
                self.settlement.finish(batch, Released())
            self._tables.waiting.pop(inlet, None)

    def has_way(self, inlet: Inlet) -> bool:
        return inlet.address == MANAGEMENT or next(iter(self._candidates(inlet)), None) is not None

    def _send_first(self, inlet: Inlet) -> bool:
        """Send the first waiting messages; False if none could be sent."""
        batch = inlet.waiting[0]
        if self._multicast(inlet):
            return self._send_copies(inlet, batch)
        best, room = self._choose(inlet, batch)
        if best is None:
            return False
        inlet.waiting.popleft()
        if room < len(batch):
            inlet.waiting.appendleft(batch[room:])
            batch = batch[:room]
        self._send(best, batch)
        return True

    def _multicast(self, inlet: Inlet) -> bool:
        if inlet.linked is not None:
            return False
        return inlet.address in self._tables.topics or self._tables.config.distribution_of(inlet.address) == "multicast"

    def _choose(self, inlet: Inlet, batch: RoutedBatch) -> tuple[Outlet | None, int]:
        """The outlet that the distribution prefers among those that can take a message now."""
        length = batch.rows.shape[1]
        best: Outlet | None = None
        best_key, best_room = (0, 0), 0
        balanced = self._tables.config.distribution_of(inlet.address) == "balanced"
        for outlet, cost in self._candidates(inlet):
            room = self._room(outlet, length)
            key = (outlet.unsettled_count + cost, 0) if balanced else (cost, outlet.unsettled_count)
            if room > 0 and (best is None or key < best_key):
                best, best_key, best_room = outlet, key, room
        if balanced and best is not None:
            best_room = max(1, min(best_room, _share(len(batch), best_room)))
        return best, best_room

    def _candidates(self, inlet: Inlet) -> Iterable[tuple[Outlet, int]]:
        """Where messages of this inlet may go, with what it costs. Never back to where they came from."""
        if inlet.linked is not None:
            yield inlet.linked, 0
            return
        own = self._tables.state.router
        if inlet.egress is None or inlet.egress == own:
            for outlet in self._tables.receivers.get(inlet.address, ()):
                yield outlet, 0
        if inlet.egress is None:
            holders = self._tables.state.holders(inlet.address)
        elif inlet.egress != own and (route := self._tables.state.routes().get(inlet.egress)) is not None:
            holders = {inlet.egress: route}
        else:
            holders = {}
        for egress, route in holders.items():
            way = self._way(inlet.address, egress, route.next_hop)
            if way is not None and way.peer is not inlet.peer:
                yield way, route.cost

    def _way(self, address: str, egress: str, next_hop: str) -> Outlet | None:
        """The link to the next hop for messages to this address at that router; attached on first use."""
        way = self._tables.ways.get((address, egress))
        if way is None:
            peer = self._tables.peer_to(next_hop)
            if peer is None:
                return None
            name = f"{DATA_PREFIX}{egress}/{address}/{self._tables.state.router}/{time.monotonic_ns()}"
            target = target_at(f"{DATA_PREFIX}{egress}/{address}", topic=address in self._tables.topics)
            handle = peer.connection.attach(name, SENDER, Source(address=address), target)
            way = Outlet(peer, handle, name, address, egress, attached=False)
            peer.outlets[handle] = self._tables.ways[address, egress] = way
            self._tables.flush(peer)
        return way

    def _room(self, outlet: Outlet, length: int) -> int:
        connection = outlet.peer.connection
        if not outlet.attached or connection.outgoing:
            return 0
        return connection.sendable(outlet.handle, length)

    def _send_copies(self, inlet: Inlet, batch: RoutedBatch) -> bool:
        """Multicast: to every consumer, as fast as the slowest one takes them."""
        outlets = [outlet for outlet, _ in self._candidates(inlet)]
        if not outlets:
            return False
        length = batch.rows.shape[1]
        room = min(self._room(outlet, length) for outlet in outlets)
        if room <= 0:
            return False
        inlet.waiting.popleft()
        if room < len(batch):
            inlet.waiting.appendleft(batch[room:])
            batch = batch[:room]
        if not batch.settled:
            batch.copies = np.full(len(batch), len(outlets), np.int32)
        for outlet in outlets:
            self._send(outlet, batch, copy=True)
        if batch.settled:
            self.settlement.finish(batch, None)
        return True

    def _send(self, outlet: Outlet, batch: RoutedBatch, *, copy: bool = False) -> None:
        connection, count = outlet.peer.connection, len(batch)
        settled = batch.settled or outlet.settled
        outlet.deliveries += count
        outlet.peer.departed += count
        self._tables.egress += count if outlet.peer.router is None else 0
        if self._samples is not None:
            self._samples.add(batch.rows[:, batch.body_start :], batch.arrived_ns, time.monotonic_ns())
        first = connection.next_delivery_id
        if not self._send_rows(outlet, batch, settled=settled):
            for row in batch.rows:
                connection.transfer_message(outlet.handle, row.tobytes(), settled=settled)
        if settled:
            outlet.presettled += count
            if not copy:
                self.settlement.finish(batch, None)
            elif not batch.settled:
                self.settlement.settle_copies(batch, None)
        else:
            outlet.unsettled.append((first, batch))
            outlet.unsettled_count += count
        self._tables.flush(outlet.peer)

    def _send_rows(self, outlet: Outlet, batch: RoutedBatch, *, settled: bool) -> bool:
        """Send messages of one layout together; False if they must be sent one by one."""
        connection, count = outlet.peer.connection, len(batch)
        length, start = batch.body_length, batch.body_start
        if start + length != batch.rows.shape[1] or length == 0:
            return False
        prefix = batch.rows[0, :start].tobytes()
        template = outlet.batch
        if template is None or outlet.batch_before != prefix + bytes([settled]) or template.bodies.shape[1] != length:
            before = prefix[: -(5 if length < 256 else 8)]
            if encode_message(bytes(length), before)[:start] != prefix:
                return False  # a body that is not one data section in its shortest form
            template = TransferBatch(handle=outlet.handle, body_length=length, settled=settled, before=before)
            outlet.batch, outlet.batch_before = template, prefix + bytes([settled])
        if count > template.capacity or template.frame_length > connection.remote_max_frame_size or connection.outgoing:
            return False
        template.bodies[:count] = batch.rows[:, start:]
        connection.transfer(template, outlet.handle, count)
        return True


def _share(count: int, room: int) -> int:
    """Balanced: pass on a part at a time, so that the next choice sees what this one added."""
    return min(count, room, 64)
