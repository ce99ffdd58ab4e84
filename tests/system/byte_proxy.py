"""A proxy that drops and repeats messages, and records which.

It sits between the relay and a receiver, cuts the bytes into frames by itself (four bytes of length), and finds the
stamp by its magic number: it shares no code with what is tested, and what is tested cannot know what it will do.
"""

import contextlib
import random
import socket
import struct
import threading
from collections.abc import Callable

TRANSFER = 0x14
Key = tuple[int, int]  # sender, seq


class ByteProxy:
    """Forwards one connection; `copies` says how often each message frame is passed on: 0 drops, 2 repeats."""

    def __init__(self, target_port: int, copies: Callable[[int], int]) -> None:
        self._target_port = target_port
        self._copies = copies
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.dropped: list[Key] = []
        self.repeated: list[Key] = []
        self._sockets: list[socket.socket] = [self._listener]
        self._threads = [threading.Thread(target=self._serve, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(5)

    def _serve(self) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:
            return
        server = socket.create_connection(("127.0.0.1", self._target_port))
        self._sockets += [client, server]
        upstream = threading.Thread(target=_copy, args=(client, server), daemon=True)
        self._threads.append(upstream)
        upstream.start()
        with contextlib.suppress(OSError):
            self._tamper(server, client)

    def _tamper(self, source: socket.socket, target: socket.socket) -> None:
        pending = b""
        number = 0
        while data := source.recv(1 << 16):
            pending += data
            out = bytearray()
            while len(pending) >= 8:
                length = 8 if pending[:4] == b"AMQP" else struct.unpack_from(">I", pending)[0]
                if len(pending) < length:
                    break
                frame, pending = pending[:length], pending[length:]
                if pending_is_transfer(frame):
                    times = self._copies(number)
                    number += 1
                    self._remember(frame, times)
                    out += frame * times
                else:
                    out += frame
            target.sendall(out)

    def _remember(self, frame: bytes, times: int) -> None:
        at = frame.index(b"\xc5\x01")
        sender, _, seq = struct.unpack_from(">HIQ", frame, at + 2)
        if times == 0:
            self.dropped.append((sender, seq))
        elif times == 2:
            self.repeated.append((sender, seq))


def pending_is_transfer(frame: bytes) -> bool:
    return len(frame) > 40 and frame[8:11] == b"\x00\x53\x14"


def seeded_copies(seed: int) -> Callable[[int], int]:
    """A few percent of the messages are dropped or repeated, in clusters of one to three; the seed alone decides."""
    generator = random.Random(seed)
    loss, repeat = generator.uniform(0, 0.02), generator.uniform(0, 0.02)
    left = [0, 1]

    def copies(_number: int) -> int:
        if left[0]:
            left[0] -= 1
            return left[1]
        draw = generator.random()
        if draw < loss + repeat:
            left[:] = [generator.randrange(3), 0 if draw < loss else 2]
            return left[1]
        return 1

    return copies


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
