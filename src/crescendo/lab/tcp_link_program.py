"""Which process is a link where no packet can be touched?

This one, as `python -m crescendo.lab.tcp_link_program KEEPER ADDRESS`, on the host of the system. It listens on another
host, which KEEPER keeps, at the address of the system, and passes on the bytes of each connection, later and
at a rate. It can end connections with a reset, or leave them half-open: they exist, and nothing comes through. It sees
bytes and not packets, so it loses, doubles, reorders and damages none. One request per line (JSON) on its standard
input, each answered with one line; when its input ends it exits. Understands nothing of what passes.
"""

import contextlib
import ctypes
import os
import selectors
import socket
import struct
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from msgspec import Struct

from crescendo.lab.byte_lane import ByteLane, LaneShape
from crescendo.lab.switch_requests import OK

_CHUNK_BYTES, _PACED_CHUNK_BYTES = 1 << 16, 1 << 12
_CONNECT_S = 5.0
_MAX_WAIT_S = 1.0
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER on, no time: close sends a reset
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_ARP_IGNORE = Path("/proc/sys/net/ipv4/conf/all/arp_ignore")  # of the network of the process that writes
_ON_THIS_INTERFACE = "1"


class OpenPort(Struct, frozen=True, tag="open"):
    """Connections to this port of the system pass from now on."""

    port: int


class ShapeLink(Struct, frozen=True, tag="shape"):
    """What each direction does from now on."""

    up: LaneShape
    down: LaneShape


class EndConnections(Struct, frozen=True, tag="end"):
    """Reset every connection; with `silent`, leave it half-open forever."""

    silent: bool = False


class CountBytes(Struct, frozen=True, tag="count"):
    """Answered with the counts."""


TcpLinkRequest = OpenPort | ShapeLink | EndConnections | CountBytes


class TcpLinkCounts(Struct):
    """What passed, and what was done to connections."""

    up_bytes: int = 0
    down_bytes: int = 0
    connections: int = 0
    reset: int = 0
    half_open: int = 0


@dataclass(eq=False)
class _Side:
    """One socket of a connection, and what waits for it to be written."""

    socket: socket.socket
    is_near: bool  # at the host, not at the system
    unwritten: deque[bytes] = field(default_factory=deque)
    held_bytes: int = 0  # read here, and not yet written at the other side
    at_end: bool = False
    other: "_Side" = field(init=False)


class TcpLink:
    """The connections of one link, and both of its directions."""

    def __init__(self, keeper: int, address: str) -> None:
        self._station = os.open(f"/proc/{keeper}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self._here = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self._address = address
        self._answer_for_own_address_only()
        self.selector = selectors.DefaultSelector()
        self.counts = TcpLinkCounts()
        self._up: ByteLane[tuple[_Side, bytes]] = ByteLane()
        self._down: ByteLane[tuple[_Side, bytes]] = ByteLane()
        self._listeners: list[tuple[socket.socket, int]] = []
        self._sides: set[_Side] = set()
        self._half_open: list[_Side] = []  # kept, because a socket that nobody keeps is closed

    def _answer_for_own_address_only(self) -> None:
        """The host has the address of the system on its loopback interface; other hosts must not find it there."""
        _enter_network(self._station)
        try:
            _ARP_IGNORE.write_text(_ON_THIS_INTERFACE)
        finally:
            _enter_network(self._here)

    def open_port(self, port: int) -> None:
        _enter_network(self._station)
        try:
            listener = socket.create_server((self._address, port), backlog=1024)
        finally:
            _enter_network(self._here)
        listener.setblocking(False)
        self._listeners.append((listener, port))
        self._watch_listeners()

    def shape(self, up: LaneShape, down: LaneShape) -> None:
        now_ns = time.monotonic_ns()
        self._up.change(up, now_ns)
        self._down.change(down, now_ns)
        self._watch_listeners()
        for side in self._sides:
            self._watch(side)

    def end_connections(self, *, silent: bool) -> None:
        for side in [one for one in self._sides if one.is_near]:
            if silent:
                self.counts.half_open += 1
                self._half_open.append(side)
                self._forget(side)
            else:
                self._reset(side)

    def _watch_listeners(self) -> None:
        """Nobody gets through a link that is cut, in either direction."""
        passes = self._up.shape.rate_bps is not None and self._down.shape.rate_bps is not None
        for listener, port in self._listeners:
            self._set_events(listener, selectors.EVENT_READ if passes else 0, port)

    def _set_events(self, one: socket.socket, events: int, data: "int | _Side") -> None:
        watched = one in self.selector.get_map()
        if events and watched:
            self.selector.modify(one, events, data)
        elif events:
            self.selector.register(one, events, data)
        elif watched:
            self.selector.unregister(one)

    def _lane(self, side: _Side) -> ByteLane[tuple[_Side, bytes]]:
        """The direction of what is read from this side."""
        return self._up if side.is_near else self._down

    def _watch(self, side: _Side) -> None:
        if side not in self._sides:
            return
        may_read = not side.at_end and side.held_bytes < self._lane(side).shape.queue_bytes
        events = (selectors.EVENT_READ if may_read else 0) | (selectors.EVENT_WRITE if side.unwritten else 0)
        self._set_events(side.socket, events, side)

    def accept(self, listener: socket.socket, port: int) -> None:
        try:
            near, _ = listener.accept()
        except OSError:
            return  # it gave up meanwhile
        try:
            far = socket.create_connection((self._address, port), _CONNECT_S)
        except OSError:
            _close_with_reset(near)
            return
        self.counts.connections += 1
        pair = _Side(near, is_near=True), _Side(far, is_near=False)
        pair[0].other, pair[1].other = pair[1], pair[0]
        for side in pair:
            side.socket.setblocking(False)
            side.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sides.add(side)
            self._watch(side)

    def read(self, side: _Side) -> None:
        lane = self._lane(side)
        try:
            data = side.socket.recv(_PACED_CHUNK_BYTES if lane.shape.rate_bps else _CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            self._reset(side)
            return
        side.at_end = not data
        side.held_bytes += len(data)
        lane.add((side, data), len(data), time.monotonic_ns())
        self._watch(side)

    def pass_due(self) -> None:
        now_ns = time.monotonic_ns()
        for lane in (self._up, self._down):
            for source, data in lane.due(now_ns):
                if source in self._sides:
                    source.other.unwritten.append(data)
                    self.write(source.other)

    def write(self, side: _Side) -> None:
        """Write what waits; an empty chunk is the end of what the other side sent."""
        while side.unwritten and side in self._sides:
            data = side.unwritten[0]
            try:
                if not data:
                    side.unwritten.popleft()
                    self._end_writing(side)
                    continue
                written = side.socket.send(data)
            except BlockingIOError:
                break
            except OSError:
                self._reset(side)
                return
            self._count(side, written)
            if written == len(data):
                side.unwritten.popleft()
            else:
                side.unwritten[0] = data[written:]
        self._watch(side)
        self._watch(side.other)

    def _count(self, side: _Side, written: int) -> None:
        side.other.held_bytes -= written
        if side.is_near:
            self.counts.down_bytes += written
        else:
            self.counts.up_bytes += written

    def _end_writing(self, side: _Side) -> None:
        side.socket.shutdown(socket.SHUT_WR)
        if side.at_end and not side.other.unwritten and not side.held_bytes:
            self._forget(side)
            side.socket.close()
            side.other.socket.close()

    def _forget(self, side: _Side) -> None:
        for one in (side, side.other):
            self._set_events(one.socket, 0, one)
            self._sides.discard(one)

    def _reset(self, side: _Side) -> None:
        self.counts.reset += 1
        self._forget(side)
        _close_with_reset(side.socket)
        _close_with_reset(side.other.socket)

    def wait_s(self) -> float:
        due = [lane.next_due_ns for lane in (self._up, self._down) if lane.next_due_ns is not None]
        return min(max((min(due) - time.monotonic_ns()) / 1e9, 0), _MAX_WAIT_S) if due else _MAX_WAIT_S


def _enter_network(network: int) -> None:
    """Sockets belong to the network where they are made. This process has one thread, so it may change its own."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(network, _NEW_NETWORK):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _close_with_reset(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    one.close()


def serve(link: TcpLink, requests: int) -> None:
    """Pass bytes on until the requests end."""
    decoder = msgspec.json.Decoder(TcpLinkRequest)
    link.selector.register(requests, selectors.EVENT_READ, None)
    unread = b""
    while True:
        for key, events in link.selector.select(link.wait_s()):
            if key.data is None:
                data = os.read(requests, 65536)
                if not data:
                    return
                *lines, unread = (unread + data).split(b"\n")
                for line in lines:
                    print(_answer(decoder.decode(line), link), flush=True)
            elif isinstance(key.data, _Side):
                if events & selectors.EVENT_WRITE:
                    link.write(key.data)
                if events & selectors.EVENT_READ and key.data.socket.fileno() >= 0:
                    link.read(key.data)
            else:
                link.accept(key.fileobj, key.data)  # type: ignore[arg-type]
        link.pass_due()


def _answer(request: TcpLinkRequest, link: TcpLink) -> str:
    try:
        match request:
            case OpenPort(port):
                link.open_port(port)
            case ShapeLink(up, down):
                link.shape(up, down)
            case EndConnections(silent):
                link.end_connections(silent=silent)
            case CountBytes():
                return msgspec.json.encode(link.counts).decode()
    except OSError as err:
        return err.strerror or str(err)
    return OK


def main() -> None:
    keeper, address = sys.argv[1:]
    if not Path(f"/proc/{keeper}").exists():
        print("its host has ended", flush=True)
        return
    try:
        link = TcpLink(int(keeper), address)
    except OSError as err:
        print(err.strerror or err, flush=True)
        return
    print(OK, flush=True)
    serve(link, sys.stdin.fileno())


if __name__ == "__main__":
    main()
