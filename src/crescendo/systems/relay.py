"""What is the least that can be called a broker?

A relay in memory: AMQP 1.0 in, AMQP 1.0 out, on the same codec as the load. Messages to a queue go to one of its
receivers each, messages to a topic to all of them. A message is accepted when it is in memory, kept until its receiver
has settled it, and offered again when that receiver goes away. Senders get credit only while the queue is short, so
memory is bounded. With TLS where a certificate is given. Nothing is written to disk. It exists so that a first run
needs nothing installed.
"""

import argparse
import contextlib
import json
import select
import signal
import socket
import ssl
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import numpy as np
import numpy.typing as npt

from crescendo.model.errors import PeerError
from crescendo.net.sockets import listen, prepared, shut
from crescendo.net.tls import server_context
from crescendo.net.transport import Plain, Secure, Transport
from crescendo.wire.amqp10.batch import TransferBatch
from crescendo.wire.amqp10.connection import RECEIVER, SETTLE_SETTLED, TOPIC, Connection
from crescendo.wire.amqp10.events import Attached, Closed, Deliveries, Detached, Ended, Event, Refused, Settled
from crescendo.wire.amqp10.handshake import Credentials
from crescendo.wire.amqp10.performatives import Attach, Modified, Released, Source, Target

CREDIT = 4000
DEPTH_LIMIT = 100_000
_HEARTBEATS_S = 0.1
_SERIAL = 0xFFFF_FFFF

Octets = npt.NDArray[np.uint8]


@dataclass(eq=False)
class Client:
    """One connection to the relay."""

    transport: Transport
    connection: Connection
    producers: dict[int, "Producer"] = field(default_factory=dict)
    consumers: dict[int, "Consumer"] = field(default_factory=dict)
    writable_watched: bool = False
    written_s: float = 0.0


@dataclass(eq=False)
class Producer:
    """A link on which somebody sends to us."""

    client: Client
    handle: int
    queues: "list[Queue]"
    credit: int = 0


@dataclass(eq=False)
class Consumer:
    """A link on which we send to somebody."""

    client: Client
    handle: int
    queue: "Queue"
    settled: bool
    batch: TransferBatch | None = None
    unsettled: deque[tuple[int, Octets]] = field(default_factory=deque)


@dataclass(eq=False)
class Queue:
    """Messages that wait, in batches of equal size."""

    waiting: deque[Octets] = field(default_factory=deque)
    depth: int = 0
    consumers: deque[Consumer] = field(default_factory=deque)

    def put(self, bodies: Octets) -> None:
        self.waiting.append(bodies)
        self.depth += len(bodies)

    def put_back(self, bodies: Octets) -> None:
        self.waiting.appendleft(bodies)
        self.depth += len(bodies)

    def take(self, count: int) -> Octets:
        """Up to `count` messages from the front, all of one size."""
        head = self.waiting.popleft()
        if len(head) > count:
            self.waiting.appendleft(head[count:])
            head = head[:count]
        self.depth -= len(head)
        return head


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
        self._clients: dict[int, Client] = {}
        self._queues: dict[str, Queue] = {}
        self._topics: dict[str, list[Queue]] = {}
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
                    self._serve_out(client)
                except PeerError:
                    self._drop(client)  # a client's fault costs that client its connection, nobody else anything

    def _send_heartbeats(self) -> None:
        """Clients that asked for signs of life get one in half the time they are willing to wait."""
        now_s = time.monotonic()
        for client in list(self._clients.values()):
            limit_s = client.connection.remote_idle_time_out_ms / 1000
            if limit_s and now_s - client.written_s > limit_s / 2 and not client.connection.outgoing:
                client.connection.heartbeat()
                self._flush(client)

    def close(self) -> None:
        for client in list(self._clients.values()):
            self._drop(client)
        self._epoll.close()
        for listener, _ in self._listeners.values():
            shut(listener)

    def _accept(self, listener: socket.socket, context: ssl.SSLContext | None) -> None:
        with contextlib.suppress(OSError):
            accepted, _ = listener.accept()
            connected = prepared(accepted)
            transport = Plain(connected) if context is None else Secure(connected, context, server_side=True)
            connection = Connection(container_id="loopback", server=True, credentials=self._credentials)
            self._clients[transport.fileno()] = Client(transport, connection)
            self._epoll.register(transport, select.EPOLLIN)

    def _read(self, client: Client) -> None:
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

    def _handle(self, client: Client, event: Event) -> None:
        match event:
            case Deliveries():
                self._store(client, event)
            case Settled(role=role, stretches=stretches, settled=settled, state=state):
                for first, last in stretches if role is RECEIVER and (settled or state is not None) else ():
                    self._settle(client, first, last, given_back=isinstance(state, Released | Modified))
                    if not settled:
                        client.connection.settle(first, last, state, role=not RECEIVER)
            case Attached(handle=handle, attach=attach):
                self._attach(client, handle, attach)
            case Detached(handle=handle):
                self._detach(client, handle)
            case Ended():
                for handle in [*client.producers, *client.consumers]:
                    self._detach(client, handle)
            case Refused() | Closed():
                client.transport.flush(client.connection.outgoing)
                raise PeerError("gone")
            case _:
                pass

    def _serve_out(self, client: Client) -> None:
        """Credit, room in a socket or new messages: whatever came, move what can move now."""
        self._flush(client)  # first: messages are sent only where nothing else waits
        for consumer in list(client.consumers.values()):
            self._dispatch(consumer.queue)
        for producer in list(client.producers.values()):
            for queue in list(producer.queues):
                self._dispatch(queue)
            self._top_up(producer)
        self._flush(client)

    # -- messages in ---------------------------------------------------------------------------------------------

    def _store(self, client: Client, arrived: Deliveries) -> None:
        producer = client.producers.get(arrived.handle)
        if producer is None:
            raise PeerError("a message on a link where nobody sends")
        bodies = arrived.bodies.copy()  # the view dies with the next read
        for queue in producer.queues:
            queue.put(bodies)
        producer.credit -= len(bodies)
        if not arrived.settled:
            client.connection.settle(int(arrived.ids[0]), int(arrived.ids[-1]))

    def _top_up(self, producer: Producer) -> None:
        if producer.credit <= CREDIT // 2 and all(queue.depth < DEPTH_LIMIT for queue in producer.queues):
            producer.credit = CREDIT
            producer.client.connection.grant(producer.handle, CREDIT)

    # -- messages out --------------------------------------------------------------------------------------------

    def _dispatch(self, queue: Queue) -> None:
        was_full = queue.depth >= DEPTH_LIMIT
        for consumer in list(queue.consumers):
            if queue.waiting and consumer in queue.consumers:  # sending to one may show that another is gone
                queue.consumers.rotate(-1)  # the next one first next time: receivers share fairly
                self._send(consumer)
        if was_full and queue.depth < DEPTH_LIMIT:
            self._revive()

    def _revive(self) -> None:
        """A queue is short again, or gone: senders who had to wait for it get credit."""
        for client in list(self._clients.values()):
            for producer in list(client.producers.values()):
                self._top_up(producer)
            self._flush(client)

    def _send(self, consumer: Consumer) -> None:
        connection = consumer.client.connection
        queue = consumer.queue
        while queue.waiting and not connection.outgoing:
            length = queue.waiting[0].shape[1]
            batch = self._batch_for(consumer, length)
            room = min(connection.sendable(consumer.handle, length), batch.capacity)
            if room == 0:
                break
            bodies = queue.take(room)
            first = connection.next_delivery_id
            if batch.frame_length <= connection.remote_max_frame_size:
                batch.bodies[: len(bodies)] = bodies
                connection.transfer(batch, consumer.handle, len(bodies))
            else:
                for body in bodies:
                    connection.transfer_one(consumer.handle, body.tobytes(), settled=consumer.settled)
            if not consumer.settled:
                consumer.unsettled.append((first, bodies))
            self._flush(consumer.client)

    def _batch_for(self, consumer: Consumer, length: int) -> TransferBatch:
        batch = consumer.batch
        if batch is None or batch.bodies.shape[1] != length:
            batch = consumer.batch = TransferBatch(
                handle=consumer.handle, body_length=length, settled=consumer.settled
            )  # fmt: skip
        return batch

    def _settle(self, client: Client, first: int, last: int, *, given_back: bool) -> None:
        """Forget the deliveries that were settled; offer those again that the receiver gave back."""
        for consumer in client.consumers.values():
            taken = take_settled(consumer.unsettled, first, last)
            for bodies in reversed(taken) if given_back else ():
                consumer.queue.put_back(bodies)

    # -- links and connections -----------------------------------------------------------------------------------

    def _attach(self, client: Client, handle: int, attach: Attach) -> None:
        terminus = attach.source if attach.role is RECEIVER else attach.target
        address = getattr(terminus, "address", None)
        if not isinstance(terminus, Source | Target) or not isinstance(address, str) or not address:
            client.connection.refuse_attach(handle, attach, "amqp:invalid-field", "the relay needs an address")
            return
        topic = TOPIC in (terminus.capabilities or ())
        client.connection.accept_attach(handle, attach)
        if attach.role is RECEIVER:
            queue = Queue() if topic else self._queues.setdefault(address, Queue())
            if topic:
                self._topics.setdefault(address, []).append(queue)
            consumer = Consumer(client, handle, queue, attach.snd_settle_mode == SETTLE_SETTLED)
            client.consumers[handle] = consumer
            queue.consumers.append(consumer)
        else:
            queues = self._topics.setdefault(address, []) if topic else [self._queues.setdefault(address, Queue())]
            producer = Producer(client, handle, queues)
            client.producers[handle] = producer
            self._top_up(producer)

    def _detach(self, client: Client, handle: int) -> None:
        producer = client.producers.pop(handle, None)
        for queue in list(producer.queues) if producer is not None else ():
            self._dispatch(queue)  # its last messages may have come together with its good-bye
        consumer = client.consumers.pop(handle, None)
        if consumer is None:
            return
        consumer.queue.consumers.remove(consumer)
        for _, bodies in reversed(consumer.unsettled):
            consumer.queue.put_back(bodies)
        for queues in self._topics.values():
            if consumer.queue in queues:
                queues.remove(consumer.queue)
                self._revive()
        self._dispatch(consumer.queue)

    def _flush(self, client: Client) -> None:
        if client.connection.outgoing:
            client.written_s = time.monotonic()
        try:
            done = client.transport.flush(client.connection.outgoing)
        except PeerError:
            self._drop(client)
            return
        if done == client.writable_watched and client.transport.fileno() >= 0:
            self._epoll.modify(client.transport, select.EPOLLIN | (0 if done else select.EPOLLOUT))
            client.writable_watched = not done

    def _drop(self, client: Client) -> None:
        number = client.transport.fileno()
        if self._clients.pop(number, None) is None:
            return
        self._epoll.unregister(number)
        client.transport.close()
        for handle in [*client.producers, *client.consumers]:
            self._detach(client, handle)


def take_settled(unsettled: deque[tuple[int, Octets]], first: int, last: int) -> list[Octets]:
    """Take the deliveries first to last out of what is unsettled. Ids are serial numbers: they begin again at 2^32."""
    taken: list[Octets] = []
    kept: list[tuple[int, Octets]] = []
    while unsettled and _ahead(last, first) >= 0:
        start, bodies = unsettled.popleft()
        low, high = max(_ahead(first, start), 0), min(_ahead(last, start) + 1, len(bodies))
        if high <= 0:
            unsettled.appendleft((start, bodies))  # it and all that follow lie behind what was settled
            break
        if low > 0:
            kept.append((start, bodies[:low]))
        taken.append(bodies[low:high])
        if high < len(bodies):
            unsettled.appendleft(((start + high) & _SERIAL, bodies[high:]))
            break
    unsettled.extendleft(reversed(kept))
    return [bodies for bodies in taken if len(bodies)]


def _ahead(number: int, base: int) -> int:
    """How far one serial number is ahead of another."""
    return ((number - base + 2**31) & _SERIAL) - 2**31


def main(arguments: list[str]) -> int:
    """Serve until told to stop. Credentials come in a file, never as words."""
    parser = argparse.ArgumentParser(prog="crescendo.systems.relay")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--credentials", type=Path, help='a file with ["user", "password"] in it')
    parser.add_argument("--tls-port", type=int, help="where to listen for TLS")
    parser.add_argument("--certificate", type=Path)
    parser.add_argument("--key", type=Path)
    parser.add_argument("--ca", type=Path, help="who signs the certificates of clients")
    parser.add_argument("--client-certificates", choices=("required", "optional"))
    options = parser.parse_args(arguments)
    secret = options.credentials and options.credentials.read_text(encoding="utf-8")
    credentials = Credentials(*json.loads(secret)) if secret else None
    listener = listen(options.host, options.port)
    secure = None
    if options.tls_port is not None:
        context = server_context(options.certificate, options.key, options.ca, options.client_certificates)
        secure = (listen(options.host, options.tls_port), context)
    relay = Relay(listener, credentials, secure=secure)

    def stop(_signal: int, _frame: FrameType | None) -> None:
        relay.stopping = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the conductor's business
    print(f"serving on port {listener.getsockname()[1]}", flush=True)
    try:
        relay.serve()
    finally:
        relay.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
