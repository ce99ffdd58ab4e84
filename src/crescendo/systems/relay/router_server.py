"""How does a relay that works as a router serve its connections?

One thread, one epoll: accepts clients and other routers, opens its connectors and opens them again when they are lost,
reads, hands events to the routing, writes, sends heartbeats, and drops routers that have gone silent. A peer's fault
closes that peer's connection and affects no other.
"""

import contextlib
import errno
import os
import select
import socket
import time

from crescendo.model.errors import PeerError
from crescendo.net.sockets import close_socket, configure_socket, listen
from crescendo.net.transport import PlainTransport
from crescendo.systems.relay.hop_samples import WRITTEN_EVERY_S, HopSamples
from crescendo.systems.relay.router import Router
from crescendo.systems.relay.router_config import RouterConfig, RouterConnector
from crescendo.systems.relay.router_links import INTER_ROUTER, RouterPeer
from crescendo.systems.relay.router_management import PRODUCT, RouterManagement
from crescendo.wire.amqp10.connection import Connection
from crescendo.wire.amqp10.events import (
    Attached,
    Begun,
    Closed,
    Credited,
    Deliveries,
    Detached,
    Ended,
    Event,
    Opened,
    Refused,
    Settled,
)
from crescendo.wire.amqp10.handshake import Credentials
from crescendo.wire.amqp10.links import RECEIVER

_TICK_S = WRITTEN_EVERY_S
_IDLE_MS = 2000
_RETRY_S = 0.25


class RouterServer:
    """The server: one thread, one epoll."""

    def __init__(self, config: RouterConfig, samples: HopSamples | None = None) -> None:
        self._config = config
        self._samples = samples
        self._epoll = select.epoll()
        self._numbers = 0
        management = RouterManagement()
        self._router = management.router = Router(config, self._flush, management.answer, samples)
        self._by_socket: dict[int, RouterPeer] = {}
        self._connecting: dict[int, tuple[socket.socket, int]] = {}
        self._due_s = dict.fromkeys(range(len(config.connector)), 0.0)  # when to open a connector; absent: it is open
        self._listeners: dict[int, tuple[socket.socket, str, int]] = {}
        for entry in config.listener:
            bound = listen(entry.host, entry.port)
            bound.setblocking(False)
            self._listeners[bound.fileno()] = (bound, entry.role, entry.cost)
            self._epoll.register(bound, select.EPOLLIN)
        self._next_tick_s = time.monotonic()
        self.stopping = False

    @property
    def ports(self) -> list[int]:
        return [bound.getsockname()[1] for bound, _, _ in self._listeners.values()]

    def serve(self) -> None:
        while not self.stopping:
            self.turn()

    def turn(self) -> None:
        """Serve what is ready, then the clock: what has arrived counts before anybody is called silent."""
        for number, mask in self._epoll.poll(max(0.0, self._next_tick_s - time.monotonic())):
            if number in self._listeners:
                self._accept(*self._listeners[number])
            elif number in self._connecting:
                self._connected(number)
            elif (peer := self._by_socket.get(number)) is not None:
                self._serve_peer(peer, mask)
        self._router.forwarding.serve_waiting()
        if (now_s := time.monotonic()) >= self._next_tick_s:
            self._tick(now_s, late_s=now_s - self._next_tick_s)
            self._next_tick_s = now_s + _TICK_S

    def close(self) -> None:
        for peer in list(self._by_socket.values()):
            self._disconnect(peer)
        for connecting, _ in self._connecting.values():
            close_socket(connecting)
        self._epoll.close()
        if self._samples is not None:
            self._samples.close()
        for bound, _, _ in self._listeners.values():
            close_socket(bound)

    # -- time ----------------------------------------------------------------------------------------------------

    def _tick(self, now_s: float, late_s: float) -> None:
        """`late_s`: for how long this router itself did not run, which is not its neighbours' silence."""
        for peer in list(self._by_socket.values()):
            connection = peer.connection
            peer.silent_since_s = min(now_s, peer.silent_since_s + late_s)
            limit_s = connection.remote_idle_time_out_ms / 1000
            if limit_s and now_s - peer.written_s > limit_s / 2 and not connection.outgoing:
                connection.heartbeat()
                self._flush(peer)
            if peer.role == INTER_ROUTER and now_s - peer.silent_since_s > _IDLE_MS / 1000 * 1.5:
                self._disconnect(peer)
        for at, due_s in list(self._due_s.items()):
            if now_s >= due_s:
                self._open(at, self._config.connector[at])
        self._router.forwarding.expire()
        if self._samples is not None:
            self._samples.write()

    # -- connections ---------------------------------------------------------------------------------------------

    def _accept(self, listener: socket.socket, role: str, cost: int) -> None:
        with contextlib.suppress(OSError):
            accepted, _ = listener.accept()
            inter_router = role == INTER_ROUTER
            connection = Connection(
                container_id=self._config.identity.id,
                server=True,
                idle_time_out_ms=_IDLE_MS if inter_router else 0,
            )
            self._add(configure_socket(accepted), connection, role, cost, "")

    def _open(self, at: int, connector: RouterConnector) -> None:
        self._due_s.pop(at)
        connecting = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        connecting.setblocking(False)
        try:
            code = connecting.connect_ex((connector.host, connector.port))
        except OSError:
            code = errno.EHOSTUNREACH  # a name that cannot be resolved now may be later
        if code not in {0, errno.EINPROGRESS}:
            self._retry(at, os.strerror(code), connecting)
            return
        self._connecting[connecting.fileno()] = (connecting, at)
        self._epoll.register(connecting, select.EPOLLOUT)

    def _retry(self, at: int, words: str, failed: socket.socket | None = None) -> None:
        self._router.tables.failures[self._config.connector[at].name or f"connector/{at}"] = words
        if failed is not None:
            close_socket(failed)
        self._due_s[at] = time.monotonic() + _RETRY_S

    def _connected(self, number: int) -> None:
        connecting, at = self._connecting.pop(number)
        self._epoll.unregister(number)
        if code := connecting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._retry(at, os.strerror(code), connecting)
            return
        connector = self._config.connector[at]
        # A broker may let every container in only once, and two links may lead to the same broker.
        suffix = "" if connector.role == INTER_ROUTER else f".{connector.name}"
        connection = Connection(
            container_id=self._config.identity.id + suffix,
            hostname=connector.host,
            credentials=Credentials(connector.saslUsername, connector.saslPassword) if connector.saslUsername else None,
            idle_time_out_ms=_IDLE_MS if connector.role == INTER_ROUTER else 0,
            accepts_links=True,
        )
        name = connector.name or f"connector/{at}"
        self._add(configure_socket(connecting), connection, connector.role, connector.cost, name)

    def _add(self, connected: socket.socket, connection: Connection, role: str, cost: int, name: str) -> None:
        self._numbers += 1
        peer = RouterPeer(PlainTransport(connected), connection, role, self._numbers, name=name, cost=cost)
        peer.read_s = peer.silent_since_s = time.monotonic()
        self._by_socket[peer.transport.fileno()] = self._router.tables.peers[peer.identity] = peer
        self._epoll.register(peer.transport, select.EPOLLIN)
        self._flush(peer)

    def _serve_peer(self, peer: RouterPeer, mask: int) -> None:
        try:
            if mask & ~select.EPOLLOUT:
                self._read(peer)
            if self._flush(peer):
                self._watch_writable(peer, False)
        except PeerError as err:
            self._disconnect(peer, str(err))

    def _read(self, peer: RouterPeer) -> None:
        while True:
            count = peer.transport.recv_into(peer.connection.receive_buffer())
            if count is None:
                return
            if count == 0:
                raise PeerError("closed")
            peer.read_s = peer.silent_since_s = time.monotonic()
            peer.connection.received(count)
            while (event := peer.connection.next_event()) is not None:
                self._handle(peer, event)
            if not peer.transport.pending:
                return

    def _handle(self, peer: RouterPeer, event: Event) -> None:
        match event:
            case Deliveries():
                self._router.take(peer, event)
            case Settled(role=role, ranges=ranges, settled=settled, state=state):
                if role is RECEIVER and (settled or state is not None):
                    self._router.settle(peer, event)
                    for first, last in ranges if not settled else ():
                        peer.connection.settle(first, last, state, role=not RECEIVER)
            case Attached(handle=handle, attach=attach):
                self._router.attach(peer, handle, attach)
            case Detached(handle=handle, error=error):
                self._router.detach(peer, handle, error)
            case Credited(handle=handle):
                self._router.credited(peer, handle)
            case Opened(container_id=container):
                # A broker that refuses a connection may open it first, only to close it with its reason.
                peer.container, peer.opened = container, not peer.name
            case Begun():
                peer.opened = True
                if peer.name:
                    self._router.joined(peer)
            case Ended(error=error):
                raise PeerError(f"the session has ended: {error or 'no reason given'}")
            case Refused(reason=reason):
                peer.transport.flush(peer.connection.outgoing)
                raise PeerError(reason)
            case Closed(error=error):
                peer.transport.flush(peer.connection.outgoing)
                raise PeerError(f"closed by the peer: {error or 'no reason given'}")
            case _:
                pass

    def _flush(self, peer: RouterPeer) -> bool:
        """Write pending output; whether all of it was written."""
        if peer.identity not in self._router.tables.peers:
            return False
        if peer.connection.outgoing:
            peer.written_s = time.monotonic()
        try:
            done = peer.transport.flush(peer.connection.outgoing)
        except PeerError as err:
            self._disconnect(peer, str(err))
            return False
        if not done:
            self._watch_writable(peer, True)
        return done

    def _watch_writable(self, peer: RouterPeer, wanted: bool) -> None:
        if wanted != peer.writable_watched and peer.transport.fileno() >= 0:
            self._epoll.modify(peer.transport, select.EPOLLIN | (select.EPOLLOUT if wanted else 0))
            peer.writable_watched = wanted

    def _disconnect(self, peer: RouterPeer, words: str = "it does not answer") -> None:
        number = peer.transport.fileno()
        if self._by_socket.pop(number, None) is None:
            return
        self._router.tables.peers.pop(peer.identity, None)
        self._epoll.unregister(number)
        peer.transport.close()
        for at, connector in enumerate(self._config.connector):
            if peer.name == (connector.name or f"connector/{at}"):
                self._retry(at, words)
        self._router.lost(peer)


__all__ = ["PRODUCT", "RouterServer"]
