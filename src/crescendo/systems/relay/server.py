"""How does the relay serve its connections?

One thread, one epoll: accepts clients, reads from them, hands events to the routing, flushes pending output, and sends
heartbeats. Serves TLS when it is given a certificate. A client's fault closes that client's connection and affects no
other.
"""

import contextlib
import select
import socket
import ssl
import time

from crescendo.model.errors import PeerError
from crescendo.net.sockets import close_socket, configure_socket
from crescendo.net.transport import PlainTransport, TlsTransport
from crescendo.systems.relay.queues import RelayClient
from crescendo.systems.relay.routing import Routing
from crescendo.wire.amqp10.connection import Connection
from crescendo.wire.amqp10.events import Attached, Closed, Deliveries, Detached, Ended, Event, Refused, Settled
from crescendo.wire.amqp10.handshake import Credentials
from crescendo.wire.amqp10.links import RECEIVER

_HEARTBEATS_S = 0.1


class Relay:
    """The server: one thread, one epoll."""

    def __init__(
        self,
        listener: socket.socket,
        credentials: Credentials | None = None,
        *,
        secure: tuple[socket.socket, ssl.SSLContext] | None = None,
    ) -> None:
        self._listeners: dict[int, tuple[socket.socket, ssl.SSLContext | None]] = {listener.fileno(): (listener, None)}
        if secure is not None:
            self._listeners[secure[0].fileno()] = secure
        self._credentials = credentials
        self._epoll = select.epoll()
        self._clients: dict[int, RelayClient] = {}
        self._routing = Routing(self._clients, self._flush)
        for number in self._listeners:
            self._epoll.register(number, select.EPOLLIN)
        self.stopping = False

    def serve(self) -> None:
        next_heartbeats_s = 0.0
        while not self.stopping:
            ready = self._epoll.poll(_HEARTBEATS_S)
            if time.monotonic() >= next_heartbeats_s:
                next_heartbeats_s = time.monotonic() + _HEARTBEATS_S
                self._send_heartbeats()
            for number, mask in ready:
                if number in self._listeners:
                    self._accept(*self._listeners[number])
                    continue
                client = self._clients.get(number)
                if client is None:
                    continue
                try:
                    if mask & ~select.EPOLLOUT:
                        self._read(client)
                    self._send_pending(client)
                except PeerError:
                    self._disconnect(client)  # a client's fault closes its own connection and affects no other

    def _send_heartbeats(self) -> None:
        """Send a heartbeat after half the idle timeout to clients that requested one."""
        now_s = time.monotonic()
        for client in list(self._clients.values()):
            limit_s = client.connection.remote_idle_time_out_ms / 1000
            if limit_s and now_s - client.written_s > limit_s / 2 and not client.connection.outgoing:
                client.connection.heartbeat()
                self._flush(client)

    def close(self) -> None:
        for client in list(self._clients.values()):
            self._disconnect(client)
        self._epoll.close()
        for listener, _ in self._listeners.values():
            close_socket(listener)

    def _accept(self, listener: socket.socket, context: ssl.SSLContext | None) -> None:
        with contextlib.suppress(OSError):
            accepted, _ = listener.accept()
            connected = configure_socket(accepted)
            transport = (
                PlainTransport(connected) if context is None else TlsTransport(connected, context, server_side=True)
            )
            connection = Connection(container_id="loopback", server=True, credentials=self._credentials)
            self._clients[transport.fileno()] = RelayClient(transport, connection)
            self._epoll.register(transport, select.EPOLLIN)

    def _read(self, client: RelayClient) -> None:
        while True:
            count = client.transport.recv_into(client.connection.receive_buffer())
            if count is None:
                return
            if count == 0:
                raise PeerError("closed")
            client.connection.received(count)
            while (event := client.connection.next_event()) is not None:
                self._handle(client, event)
            if not client.transport.pending:
                return

    def _handle(self, client: RelayClient, event: Event) -> None:
        match event:
            case Deliveries():
                self._routing.store(client, event)
            case Settled(role=role, ranges=ranges, settled=settled, state=state):
                if role is RECEIVER and (settled or state is not None):
                    self._routing.settle(client, event)
                    for first, last in ranges if not settled else ():
                        client.connection.settle(first, last, state, role=not RECEIVER)
            case Attached(handle=handle, attach=attach):
                self._routing.attach(client, handle, attach)
            case Detached(handle=handle):
                self._routing.detach(client, handle)
            case Ended():
                self._routing.detach_all(client)
            case Refused() | Closed():
                client.transport.flush(client.connection.outgoing)
                raise PeerError("closed by the client")
            case _:
                pass

    def _send_pending(self, client: RelayClient) -> None:
        """After credit, new messages or room in the socket: send every message that can be sent now."""
        if self._flush(client):  # first: messages are sent only when no output is pending
            self._watch_writable(client, False)
        self._routing.serve(client)
        self._flush(client)

    def _flush(self, client: RelayClient) -> bool:
        """Write pending output; whether all of it was written.

        Keeps watching for room even then: no other event wakes messages that were held back meanwhile.
        """
        if client.connection.outgoing:
            client.written_s = time.monotonic()
        try:
            done = client.transport.flush(client.connection.outgoing)
        except PeerError:
            self._disconnect(client)
            return False
        if not done:
            self._watch_writable(client, True)
        return done

    def _watch_writable(self, client: RelayClient, wanted: bool) -> None:
        if wanted != client.writable_watched and client.transport.fileno() >= 0:
            self._epoll.modify(client.transport, select.EPOLLIN | (select.EPOLLOUT if wanted else 0))
            client.writable_watched = wanted

    def _disconnect(self, client: RelayClient) -> None:
        number = client.transport.fileno()
        if self._clients.pop(number, None) is None:
            return
        self._epoll.unregister(number)
        client.transport.close()
        self._routing.detach_all(client)
