"""How do routers tell each other what they know?

Over one link in each direction between neighbours: who they are, then every advertisement that is news, passed on to
all others. Decides nothing about messages; it says when the network has changed.
"""

from collections.abc import Callable

import msgspec

from crescendo.model.errors import PeerError
from crescendo.systems.relay.link_state import Advertisement
from crescendo.systems.relay.router_links import RouterPeer
from crescendo.systems.relay.router_tables import CONTROL, RouterTables
from crescendo.wire.amqp10.links import SENDER
from crescendo.wire.amqp10.performatives import Source, Target


class Neighbours:
    """The conversation with all neighbours."""

    def __init__(self, tables: RouterTables, on_change: Callable[[], None]) -> None:
        self._tables = tables
        self._on_change = on_change
        self.routed_links: Callable[[], list[str]] = list  # what this router advertises besides its receivers

    def neighbours(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for peer in self._tables.peers.values():
            if peer.router is not None:
                found[peer.router] = min(peer.cost, found.get(peer.router, peer.cost))
        return found

    def joined(self, peer: RouterPeer) -> None:
        """An inter-router connection is open: say who we are, and everything that we know."""
        if peer.control_out is None:
            source, target = Source(address=CONTROL), Target(address=CONTROL)
            name = f"{CONTROL}/{self._tables.state.router}"
            peer.control_out = peer.connection.attach(name, SENDER, source, target, settled=True)
        self._send_control(peer, {"hello": self._tables.state.router, "cost": peer.cost})

    def _send_control(self, peer: RouterPeer, note: dict[str, object]) -> None:
        if peer.control_out is not None:
            peer.connection.transfer_one(peer.control_out, msgspec.json.encode(note), settled=True)
            self._tables.flush(peer)

    def take_control(self, peer: RouterPeer, body: bytes) -> None:
        try:
            note = msgspec.json.decode(body)
            if "hello" in note:
                self._met(peer, str(note["hello"]), max(1, int(note["cost"])))
                return
            advertisement = msgspec.convert(note["advertisement"], Advertisement)
        except (msgspec.DecodeError, msgspec.ValidationError, KeyError, TypeError, ValueError) as err:
            raise PeerError("an advertisement that is not one") from err
        if self._tables.state.learn(advertisement):
            self._tell([advertisement], but=peer)
            self._on_change()

    def _met(self, peer: RouterPeer, router: str, cost: int) -> None:
        if router == self._tables.state.router:
            raise PeerError("a connection to this router itself, or to another with the same id")
        peer.router, peer.cost = router, max(cost, peer.cost)
        self.advertise()
        for advertisement in self._tables.state.advertisements:
            self._send_control(peer, {"advertisement": msgspec.to_builtins(advertisement)})

    def advertise(self) -> None:
        receivers = self._tables.receivers
        addresses = [name for name, outlets in receivers.items() if outlets and not name.startswith("_")]
        addresses += self.routed_links()
        if self._tables.state.advertise(self.neighbours(), addresses):
            self._tell([self._tables.state.own])
            self._on_change()

    def _tell(self, advertisements: list[Advertisement], but: RouterPeer | None = None) -> None:
        for peer in list(self._tables.peers.values()):
            if peer.router is not None and peer is not but:
                for advertisement in advertisements:
                    self._send_control(peer, {"advertisement": msgspec.to_builtins(advertisement)})
