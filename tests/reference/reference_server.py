"""A system under test whose truth is known: a TCP server that notes when every message arrived and left.

`reference_server.py SCENARIO TRUTH_DIR` listens on one port per protocol, prints the ports as JSON, and serves until
its standard input is closed; then it writes `messages.csv` and `stalls.csv`. Messages are delivered after the delays of
the scenario, in one thread: the clock (CLOCK_MONOTONIC) is read when `recv` has returned and immediately before `send`.
It sleeps until a message is due, and polls only for the last few microseconds before. Sends no heartbeats: no pause of
a load should be as long as the idle timeouts of its clients, of which the shortest are 20 s.
"""

import ctypes
import gc
import heapq
import json
import random
import select
import socket
import struct
import sys
import time
from collections import deque
from pathlib import Path
from typing import NamedTuple

import msgspec

from crescendo.model.errors import PeerError
from reference_protocols import SIDES
from reference_scenario import Route, Scenario, destination_of
from server_side import ServerSide

STAMP = struct.Struct(">HHIQ")  # magic, sender, tag, sequence number: read here by position, not with our own code
MAGIC = 0xC501
_POLLING_NS = 60_000  # a sleep ends about this much too late
_IDLE_S = 0.05
_TIMER_SLACK = 29


class Copy(NamedTuple):
    """One delivery to come. `number` is 0, or 1 for a duplicate."""

    sender: int
    seq: int
    number: int
    arrival_ns: int
    delay_ns: int  # as drawn; it departs no earlier
    payload: bytes


class Client:
    """One connection."""

    def __init__(self, connected: socket.socket, protocol: str, side: ServerSide) -> None:
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = connected
        self.protocol = protocol
        self.side = side
        self.consumer_of: Destination | None = None
        self.watches_room = False


class Destination:
    """The messages of one route in one protocol: their delays, their faults, and who receives them."""

    def __init__(self, protocol: str, name: str, route: Route, seed: int) -> None:
        self.protocol, self.route = protocol, name
        generator = random.Random(f"{seed}/{protocol}/{name}")
        self._lost, self._duplicated, self._swapped = route.faults.positions(generator)
        self._delay_ns = route.delay.draws(generator)
        self._position = 0
        self._held: Copy | None = None
        self.consumer: Client | None = None
        self.due: deque[Copy] = deque()  # due, but the consumer has no room for them yet

    def schedule(self, payload: bytes, arrival_ns: int) -> tuple[Copy, list[tuple[int, Copy]]]:
        """A message arrived. Returns it, and the deliveries that are now certain, each with its due time."""
        position, self._position = self._position, self._position + 1
        magic, sender, _, seq = STAMP.unpack_from(payload)
        if magic != MAGIC:
            raise PeerError("a payload without a stamp")
        copy = Copy(sender, seq, 0, arrival_ns, self._delay_ns(), payload)
        held, self._held = self._held, None
        if position in self._lost:
            return copy, []
        if position in self._swapped:
            self._held = copy  # until the next one has come
            return copy, []
        due_ns = arrival_ns + copy.delay_ns
        deliveries = [(due_ns, copy)]
        if held is not None:
            deliveries.append((due_ns, held))
        if position in self._duplicated:
            deliveries.append((due_ns + self._delay_ns(), copy._replace(number=1)))
        return copy, deliveries


class ReferenceServer:
    """One thread, one epoll, one heap of deliveries."""

    def __init__(self, scenario: Scenario) -> None:
        self._epoll = select.epoll()
        self._listeners: dict[int, tuple[socket.socket, str]] = {}
        self._clients: dict[int, Client] = {}
        self._destinations = {
            destination_of(protocol, name): Destination(protocol, name, route, scenario.seed)
            for protocol in SIDES
            for name, route in scenario.routes.items()
        }
        self._heap: list[tuple[int, int, Destination, Copy]] = []
        self._scheduled = 0
        self._stalls = deque(sorted(scenario.stalls, key=lambda stall: stall.after_ns))
        self._first_ns = 0
        self.arrived: list[tuple[Destination, Copy]] = []
        self.departed: list[tuple[Destination, Copy, int]] = []
        self.stalled: list[tuple[int, int]] = []
        self.ports: dict[str, int] = {}
        for protocol in SIDES:
            listener = socket.create_server(("127.0.0.1", 0))
            self._listeners[listener.fileno()] = (listener, protocol)
            self._epoll.register(listener, select.EPOLLIN)
            self.ports[protocol] = listener.getsockname()[1]
        self._epoll.register(sys.stdin, select.EPOLLIN)

    def serve(self) -> None:
        while True:
            for number, mask in self._wait():
                if number == sys.stdin.fileno():
                    return
                if number in self._listeners:
                    self._accept(*self._listeners[number])
                elif number in self._clients:
                    self._attend(self._clients[number], mask)
            self._deliver_due()
            if self._stalls and self._first_ns:
                self._stall()

    def _wait(self) -> list[tuple[int, int]]:
        """Wait for a client or for the next due time. `epoll` alone would round up to milliseconds."""
        if not self._heap:
            select.select([self._epoll], [], [], _IDLE_S)
            return self._epoll.poll(0)
        due_ns = self._heap[0][0]
        sleep_ns = due_ns - time.monotonic_ns() - _POLLING_NS
        if sleep_ns > 0:
            select.select([self._epoll], [], [], min(sleep_ns / 1e9, _IDLE_S))
        ready = self._epoll.poll(0)
        while not ready and 0 < due_ns - time.monotonic_ns() <= _POLLING_NS:
            ready = self._epoll.poll(0)
        return ready

    def _stall(self) -> None:
        """Be silent, if it is time."""
        now_ns, stall = time.monotonic_ns(), self._stalls[0]
        if now_ns >= self._first_ns + stall.after_ns:
            self._stalls.popleft()
            end_ns = now_ns + stall.length_ns
            while (left_ns := end_ns - time.monotonic_ns()) > 0:
                time.sleep(left_ns / 1e9)
            self.stalled.append((now_ns, time.monotonic_ns()))

    # -- clients ---------------------------------------------------------------------------------------------------

    def _accept(self, listener: socket.socket, protocol: str) -> None:
        client = Client(listener.accept()[0], protocol, SIDES[protocol]())
        self._clients[client.socket.fileno()] = client
        self._epoll.register(client.socket, select.EPOLLIN)

    def _attend(self, client: Client, mask: int) -> None:
        try:
            if mask & ~select.EPOLLOUT:
                self._read(client)
            self._flush(client)
        except (PeerError, OSError) as err:
            self._disconnect(client, str(err))
            return
        if client.side.closed:
            self._disconnect(client, "")
        elif client.consumer_of is not None:
            self._deliver(client.consumer_of)  # it may have room again

    def _read(self, client: Client) -> None:
        try:
            count = client.socket.recv_into(client.side.receive_buffer())
        except BlockingIOError:
            return
        arrival_ns = time.monotonic_ns()
        if count == 0:
            raise PeerError("")
        for name, payload in client.side.received(count):
            self._first_ns = self._first_ns or arrival_ns
            destination = self._destination(name)
            copy, deliveries = destination.schedule(payload, arrival_ns)
            self.arrived.append((destination, copy))
            for due_ns, delivery in deliveries:
                self._scheduled += 1
                heapq.heappush(self._heap, (due_ns, self._scheduled, destination, delivery))
        if client.consumer_of is None and client.side.consumes is not None:
            client.consumer_of = self._destination(client.side.consumes)
            client.consumer_of.consumer = client

    def _destination(self, name: str) -> Destination:
        try:
            return self._destinations[name]
        except KeyError:
            raise PeerError(f"the scenario has no route for {name}") from None

    def _disconnect(self, client: Client, reason: str) -> None:
        if reason:
            print(f"{client.protocol}: {reason}", file=sys.stderr)
        self._epoll.unregister(client.socket)
        del self._clients[client.socket.fileno()]
        if client.consumer_of is not None:
            client.consumer_of.consumer = None
        client.socket.close()

    # -- deliveries ------------------------------------------------------------------------------------------------

    def _deliver_due(self) -> None:
        while self._heap and self._heap[0][0] <= time.monotonic_ns():
            _, _, destination, copy = heapq.heappop(self._heap)
            destination.due.append(copy)
            self._deliver(destination)

    def _deliver(self, destination: Destination) -> None:
        consumer = destination.consumer
        while destination.due and consumer is not None and not consumer.side.outgoing and consumer.side.room():
            copy = destination.due.popleft()
            consumer.side.deliver(copy.payload)
            departure_ns = time.monotonic_ns()
            try:
                self._flush(consumer)
            except OSError as err:
                self._disconnect(consumer, str(err))
                return
            self.departed.append((destination, copy, departure_ns))

    def _flush(self, client: Client) -> None:
        """Write what is queued; watch for room if the socket is full."""
        outgoing = client.side.outgoing
        while outgoing:
            try:
                written = client.socket.send(outgoing[0])
            except BlockingIOError:
                break
            if written == len(outgoing[0]):
                outgoing.popleft()
            else:
                outgoing[0] = outgoing[0][written:]
        if bool(outgoing) != client.watches_room:
            client.watches_room = bool(outgoing)
            self._epoll.modify(client.socket, select.EPOLLIN | (select.EPOLLOUT if outgoing else 0))

    # -- the truth -------------------------------------------------------------------------------------------------

    def write_truth(self, directory: Path) -> None:
        """One line per message and delivery; a message that was never delivered has one without a departure."""
        delivered = {(id(destination), copy.sender, copy.seq) for destination, copy, _ in self.departed}
        lost = [
            (destination, copy, None)
            for destination, copy in self.arrived
            if (id(destination), copy.sender, copy.seq) not in delivered
        ]
        with (directory / "messages.csv").open("w") as file:
            print("protocol,route,sender,seq,copy,arrival_ns,delay_ns,departure_ns,departed", file=file)
            for order, (destination, copy, departure_ns) in enumerate([*self.departed, *lost]):
                where = f"{destination.protocol},{destination.route},{copy.sender},{copy.seq},{copy.number}"
                print(f"{where},{copy.arrival_ns},{copy.delay_ns},{departure_ns or ''},{order}", file=file)
        with (directory / "stalls.csv").open("w") as file:
            print("start_ns,end_ns", file=file)
            for start_ns, end_ns in self.stalled:
                print(f"{start_ns},{end_ns}", file=file)


def main(scenario_file: Path, truth_dir: Path) -> None:
    server = ReferenceServer(msgspec.json.decode(scenario_file.read_bytes(), type=Scenario))
    gc.disable()
    gc.freeze()
    ctypes.CDLL(None).prctl(_TIMER_SLACK, 1, 0, 0, 0)
    print(json.dumps(server.ports), flush=True)
    server.serve()
    server.write_truth(truth_dir)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
