"""How fast could the load be if nobody stood in its way?

A null sink does the handshake of a protocol and from then on only counts bytes; a null source does the handshake and
then delivers as fast as its client reads. Both serve one client after the other, on a port of the loopback interface,
in a process of their own: `python -m crescendo.calibrate.null_process PROTOCOL sink|source SIZE CLIENTS`. It prints
its port on the first line, then one line of JSON per client. Decodes no message and keeps none.
"""

import argparse
import select
import socket
import sys
import time

import msgspec
import numpy as np
from msgspec import Struct

from crescendo.calibrate.null_servers import ENDS, NullServer
from crescendo.model.errors import PeerError
from crescendo.net.sockets import close_socket, configure_socket, fill, flush, listen
from crescendo.wire.stamp import MAGIC, stamps_of

TAG = 99
"""The run that the messages of a null source say they belong to."""

SINK, SOURCE = "sink", "source"
PATIENCE_S = 30.0
_BUFFER_BYTES = 1 << 20


class Taken(Struct, frozen=True):
    """What one client did to a null end."""

    octets: int = 0  # bytes that a sink took after the handshake
    messages: int = 0  # deliveries that a source wrote


def serve_one(listener: socket.socket, end: NullServer, *, source: bool) -> Taken:
    """Serve the next client until it leaves."""
    client = configure_socket(listener.accept()[0])
    try:
        _shake_hands(client, end)
        return Taken(messages=_blast(client, end)) if source else Taken(octets=_swallow(client))
    finally:
        close_socket(client)


def _shake_hands(client: socket.socket, end: NullServer) -> None:
    """Answer until load may flow. What the client sends after the last answer is load, and nothing before it is."""
    while not end.begun:
        _await(client, select.POLLIN)
        count = fill(client, end.receive_buffer())
        if count == 0:
            raise PeerError("the client left before the handshake was over")
        if count:
            end.received(count)
        while not flush(client, end.outgoing):
            _await(client, select.POLLOUT)


def _swallow(client: socket.socket) -> int:
    """Count bytes until the client is done."""
    client.settimeout(PATIENCE_S)
    buffer = bytearray(_BUFFER_BYTES)
    octets = 0
    try:
        while count := client.recv_into(buffer):
            octets += count
    except ConnectionResetError:
        pass  # it left without reading our last words
    return octets


def _blast(client: socket.socket, end: NullServer) -> int:
    """Deliver until the client leaves; how many messages were written."""
    stamps = stamps_of(end.bodies)
    stamps["magic"], stamps["sender"], stamps["tag"] = MAGIC, 0, TAG
    poll = select.poll()
    sent = 0
    try:
        while True:
            poll.register(client, select.POLLIN | (select.POLLOUT if end.outgoing or end.room() else 0))
            ready = poll.poll(PATIENCE_S * 1000)
            if not ready:
                raise PeerError(f"the client took nothing for {PATIENCE_S:g} s")
            if ready[0][1] & ~select.POLLOUT:
                count = fill(client, end.receive_buffer())
                if count == 0:
                    return sent
                end.received(count or 0)
            flush(client, end.outgoing)
            if room := end.room():
                now_ns = time.monotonic_ns()
                stamps["seq"][:room] = np.arange(sent, sent + room)
                stamps["intended_ns"][:room] = stamps["sent_ns"][:room] = now_ns
                end.deliver(room)
                sent += room
                flush(client, end.outgoing)
    except PeerError:
        if not sent:
            raise
        return sent  # it left without a word; what it took is its own to say


def _await(client: socket.socket, event: int) -> None:
    poll = select.poll()
    poll.register(client, event)
    if not poll.poll(PATIENCE_S * 1000):
        raise PeerError(f"the client was silent for {PATIENCE_S:g} s in the middle of the handshake")


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m crescendo.calibrate.null_process")
    parser.add_argument("protocol", choices=sorted(ENDS))
    parser.add_argument("role", choices=(SINK, SOURCE))
    parser.add_argument("size", type=int)
    parser.add_argument("clients", type=int)
    given = parser.parse_args(words)
    with listen() as listener:
        listener.settimeout(PATIENCE_S)
        print(listener.getsockname()[1], flush=True)
        for _ in range(given.clients):
            end = ENDS[given.protocol](given.size, source=given.role == SOURCE)
            try:
                taken = serve_one(listener, end, source=given.role == SOURCE)
            except (PeerError, TimeoutError) as err:
                print(f"null {given.role} of {given.protocol}: {err}", file=sys.stderr)
                return 1
            print(msgspec.json.encode(taken).decode(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
