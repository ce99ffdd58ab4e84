"""How much do two plain sockets differ from the truth?

`plain_sockets.py PORT RATE FILE` sends stamped messages through the reference server and receives them, with nothing
of ours but the layout of the stamp, until its standard input is closed. What it measures differs from the truth by what
the kernel and the scheduler of this machine take at that time: so much of our difference is theirs.
"""

import ctypes
import select
import socket
import struct
import sys
import time
from pathlib import Path

from plain_protocol import FRAME, MESSAGE, PLAIN_DESTINATION, SUBSCRIBE, PlainCodec

PLAIN_SENDER = 32_000
_SIZE = 256
_STAMP = struct.Struct(">HHIQqq")
_TIMER_SLACK = 29


def _connected(port: int) -> socket.socket:
    connected = socket.create_connection(("127.0.0.1", port))
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected


def measure(port: int, rate: float) -> list[tuple[int, int, int]]:
    """Sequence number, send time and receive time of every message that came back."""
    incoming, outgoing = _connected(port), _connected(port)
    incoming.sendall(FRAME.pack(len(PLAIN_DESTINATION), SUBSCRIBE) + PLAIN_DESTINATION.encode())
    codec, rows = PlainCodec(), []
    frame = bytearray(FRAME.pack(_SIZE, MESSAGE) + bytes(_SIZE))
    sent, start_ns = 0, time.monotonic_ns()
    while True:
        due_ns = start_ns + int(sent * 1e9 / rate)
        ready = select.select([incoming, sys.stdin], [], [], max(due_ns - time.monotonic_ns(), 0) / 1e9)[0]
        if incoming in ready:
            count = incoming.recv_into(codec.receive_buffer())
            received_ns = time.monotonic_ns()
            codec.received(count)
            while (event := codec.next_event()) is not None:
                _, _, _, seq, _, sent_ns = _STAMP.unpack_from(event[1])
                rows.append((seq, sent_ns, received_ns))
        if sys.stdin in ready:
            return rows
        if time.monotonic_ns() >= due_ns:
            _STAMP.pack_into(frame, FRAME.size, 0xC501, PLAIN_SENDER, 0, sent, due_ns, time.monotonic_ns())
            outgoing.sendall(frame)
            sent += 1


def main(port: int, rate: float, file: Path) -> None:
    ctypes.CDLL(None).prctl(_TIMER_SLACK, 1, 0, 0, 0)
    rows = measure(port, rate)
    lines = "".join(f"{seq},{sent_ns},{received_ns}\n" for seq, sent_ns, received_ns in rows)
    file.write_text(f"seq,sent_ns,received_ns\n{lines}")


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3]))
