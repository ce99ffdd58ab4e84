"""How does a null server run as a process, so that only the load generator is the limit?

A null sink does the handshake of a protocol and from then on only counts bytes; a null source does the handshake and
then delivers as fast as its client reads. Both serve one client after the other, on a port of the loopback interface,
in a process of their own: `python -m crescendo.calibrate.null_process PROTOCOL sink|source SIZE CLIENTS`. It prints
its port on the first line, then one line of JSON per client. Decodes no message and stores none.
"""

import argparse
import select
import socket
import sys
import time

import msgspec
import numpy as np
from msgspec import Struct

from crescendo.calibrate.null_servers import NullServer
from crescendo.calibrate.registry import calibrated_protocols, null_server_of
from crescendo.model.errors import PeerError
from crescendo.net.sockets import close_socket, configure_socket, fill, flush, listen
from crescendo.wire.stamp import MAGIC, stamps_of

TAG = 99
"""The run tag in the stamps of a null source."""

SINK, SOURCE = "sink", "source"
TIMEOUT_S = 30.0
_BUFFER_BYTES = 1 << 20


class NullServerCounts(Struct, frozen=True):
    """What a null server counted for one client."""

    octets: int = 0  # bytes that a sink received after the handshake
    messages: int = 0  # deliveries that a source wrote


def serve_one(listener: socket.socket, server: NullServer, *, source: bool) -> NullServerCounts:
    """Serve the next client until it disconnects."""
    client = configure_socket(listener.accept()[0])
    try:
        _handshake(client, server)
        return (
            NullServerCounts(messages=_deliver_until_closed(client, server))
            if source
            else NullServerCounts(octets=_count_bytes(client))
        )
    finally:
        close_socket(client)


def _handshake(client: socket.socket, server: NullServer) -> None:
    """Answer until load may flow. The load is exactly what the client sends after the last answer."""
    while not server.begun:
        _wait_for(client, select.POLLIN)
        count = fill(client, server.receive_buffer())
        if count == 0:
            raise PeerError("the client disconnected before the handshake was over")
        if count:
            server.received(count)
        while not flush(client, server.outgoing):
            _wait_for(client, select.POLLOUT)


def _count_bytes(client: socket.socket) -> int:
    """Count bytes until the client is done."""
    client.settimeout(TIMEOUT_S)
    buffer = bytearray(_BUFFER_BYTES)
    octets = 0
    try:
        while count := client.recv_into(buffer):
            octets += count
    except ConnectionResetError:
        pass  # it closed without reading our last bytes
    return octets


def _deliver_until_closed(client: socket.socket, server: NullServer) -> int:
    """Deliver until the client disconnects; returns how many messages were written."""
    stamps = stamps_of(server.bodies)
    stamps["magic"], stamps["sender"], stamps["tag"] = MAGIC, 0, TAG
    poll = select.poll()
    sent = 0
    try:
        while True:
            poll.register(client, select.POLLIN | (select.POLLOUT if server.outgoing or server.room() else 0))
            ready = poll.poll(TIMEOUT_S * 1000)
            if not ready:
                raise PeerError(f"the client read nothing for {TIMEOUT_S:g} s")
            if ready[0][1] & ~select.POLLOUT:
                count = fill(client, server.receive_buffer())
                if count == 0:
                    return sent
                server.received(count or 0)
            flush(client, server.outgoing)
            if room := server.room():
                now_ns = time.monotonic_ns()
                stamps["seq"][:room] = np.arange(sent, sent + room)
                stamps["intended_ns"][:room] = stamps["sent_ns"][:room] = now_ns
                server.deliver(room)
                sent += room
                flush(client, server.outgoing)
    except PeerError:
        if not sent:
            raise
        return sent  # it closed without a handshake; the client reports how much it received


def _wait_for(client: socket.socket, event: int) -> None:
    poll = select.poll()
    poll.register(client, event)
    if not poll.poll(TIMEOUT_S * 1000):
        raise PeerError(f"the client was silent for {TIMEOUT_S:g} s during the handshake")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m crescendo.calibrate.null_process")
    parser.add_argument("protocol", choices=sorted(calibrated_protocols()))
    parser.add_argument("role", choices=(SINK, SOURCE))
    parser.add_argument("size", type=int)
    parser.add_argument("clients", type=int)
    options = parser.parse_args(arguments)
    with listen() as listener:
        listener.settimeout(TIMEOUT_S)
        print(listener.getsockname()[1], flush=True)
        for _ in range(options.clients):
            server = null_server_of(options.protocol)(options.size, source=options.role == SOURCE)
            try:
                counts = serve_one(listener, server, source=options.role == SOURCE)
            except (PeerError, TimeoutError) as err:
                print(f"null {options.role} of {options.protocol}: {err}", file=sys.stderr)
                return 1
            print(msgspec.json.encode(counts).decode(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
