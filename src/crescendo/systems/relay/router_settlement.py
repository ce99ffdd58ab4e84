"""When is a message settled, and who may send more?

A message is settled towards its sender with the outcome that its receiver gave it. A sender gets credit only while
there is somewhere to send to and few of its messages are unsettled. So a slow receiver slows its senders down across
the network, and memory is bounded. Chooses no receivers.
"""

from collections.abc import Callable

import numpy as np

from crescendo.systems.relay.router_links import Inlet, Outlet, RoutedBatch, RouterPeer
from crescendo.systems.relay.router_tables import RouterTables
from crescendo.wire.amqp10.events import Settled
from crescendo.wire.amqp10.performatives import Composite, Modified, Rejected, Released

WINDOW = 2000


class RouterSettlement:
    """Outcomes and credit of all links."""

    def __init__(self, tables: RouterTables, has_way: Callable[[Inlet], bool]) -> None:
        self._tables = tables
        self._has_way = has_way

    def settle(self, peer: RouterPeer, settled: Settled) -> None:
        """Pass the outcomes of a receiver on to where its messages came from."""
        outcome = _outcome(settled.state)
        for outlet in list(peer.outlets.values()):
            for first, last in settled.ranges:
                for batch in outlet.take(first, last):
                    outlet.outcomes[outcome] += len(batch)
                    if batch.copies is not None:
                        self.settle_copies(batch, settled.state)
                    else:
                        self.finish(batch, settled.state)
            unused = (outlet.address, outlet.egress or "") not in self._tables.ways
            if outlet.egress is not None and not outlet.unsettled and outlet.linked is None and unused:
                del peer.outlets[outlet.handle]  # a way that is no longer used
                peer.connection.detach(outlet.handle)

    def settle_copies(self, batch: RoutedBatch, state: Composite | None) -> None:
        assert batch.copies is not None  # noqa: S101 - for mypy
        batch.copies -= 1
        done = batch.copies == 0
        if done.any():
            inlet = batch.inlet
            inlet.outstanding -= int(done.sum())
            self.settle_at(inlet, batch.ids[done], state)
            self.grant(inlet)

    def finish(self, batch: RoutedBatch, state: Composite | None) -> None:
        inlet = batch.inlet
        inlet.outstanding -= len(batch)
        if not batch.settled:
            self.settle_at(inlet, batch.ids, state)
        self.grant(inlet)

    def settle_at(
        self, inlet: Inlet, ids: np.ndarray[tuple[int], np.dtype[np.uint32]], state: Composite | None
    ) -> None:
        inlet.outcomes[_outcome(state)] += len(ids)
        self._tables.finished[_outcome(state)] += len(ids)
        if inlet.gone or not len(ids):
            return
        breaks = np.flatnonzero(np.diff(ids.astype(np.int64)) != 1) + 1
        for run in np.split(ids, breaks):
            inlet.peer.connection.settle(int(run[0]), int(run[-1]), state if _outcome(state) != "accepted" else None)
        self._tables.flush(inlet.peer)

    # -- credit --------------------------------------------------------------------------------------------------

    def grant(self, inlet: Inlet) -> None:
        """Credit up to the window, in steps of half of it; none without a receiver anywhere."""
        if inlet.gone:
            return
        if inlet.linked is not None:
            self._pass_credit_on(inlet, inlet.linked)
            return
        room = WINDOW - inlet.outstanding
        if inlet.granted <= WINDOW // 2 <= room and self._has_way(inlet):
            self._grant(inlet, room)

    def _pass_credit_on(self, inlet: Inlet, outlet: Outlet) -> None:
        """A routed link: its sender gets the credit that its receiver gave, and no more."""
        if not (outlet.attached and inlet.attached):
            return
        held = sum(len(batch) for batch in inlet.waiting)
        room = min(outlet.peer.connection.sendable(outlet.handle) - held, WINDOW)
        if room > 0 and inlet.granted <= room // 2:
            self._grant(inlet, room)

    def _grant(self, inlet: Inlet, credit: int) -> None:
        inlet.granted = credit
        inlet.peer.connection.grant(inlet.handle, credit)
        self._tables.flush(inlet.peer)

    def grant_all(self, address: str) -> None:
        for peer in list(self._tables.peers.values()):
            for inlet in list(peer.inlets.values()):
                if inlet.address == address:
                    self.grant(inlet)


def _outcome(state: object) -> str:
    match state:
        case Released():
            return "released"
        case Modified():
            return "modified"
        case Rejected():
            return "rejected"
        case _:
            return "accepted"
