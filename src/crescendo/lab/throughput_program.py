"""How fast is the network between two hosts, before any load?

Two ends of one program: `throughput_program.py serve ADDRESS` on one host prints its port, and
`throughput_program.py measure ADDRESS PORT SECONDS` on another prints what it measured, as JSON: the rate in each
direction alone, in both at once, and the time of a round trip. Rates are of bytes that arrived, over TCP. Imports
nothing of Crescendo.
"""

import json
import socket
import struct
import sys
import threading
import time

_CHUNK = b"\0" * 65536
_ROUND_TRIPS = 50
_SINK, _SOURCE, _ECHO = b"i", b"o", b"e"
_COUNT = struct.Struct("!Qd")
_TIMEOUT_S = 30.0


def serve(address: str) -> None:
    server = socket.create_server((address, 0))
    print(server.getsockname()[1], flush=True)
    while True:
        threading.Thread(target=_answer, args=(server.accept()[0],), daemon=True).start()


def _answer(connection: socket.socket) -> None:
    with connection:
        kind = connection.recv(1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if kind == _SINK:
                connection.sendall(_COUNT.pack(*_sink(connection)))
            elif kind == _SOURCE:
                while True:
                    connection.sendall(_CHUNK)
            while data := connection.recv(64):
                connection.sendall(data)
        except OSError:
            pass  # the other end has seen enough


def _sink(connection: socket.socket) -> tuple[int, float]:
    """Bytes that arrived until the other end stopped, and in how many seconds."""
    connection.recv(1 << 18)  # these waited until we read: the clock starts with the next ones
    count, begin = 0, time.perf_counter()
    last = begin
    while data := connection.recv(1 << 18):
        last = time.perf_counter()
        count += len(data)
    return count, last - begin


def measure(address: str, port: int, seconds: float) -> dict[str, float]:
    def connect(kind: bytes) -> socket.socket:
        connection = socket.create_connection((address, port), _TIMEOUT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(kind)
        return connection

    def send() -> float:
        with connect(_SINK) as connection:
            until = time.perf_counter() + seconds
            while time.perf_counter() < until:
                connection.sendall(_CHUNK)
            connection.shutdown(socket.SHUT_WR)
            count, took = _COUNT.unpack(connection.recv(_COUNT.size, socket.MSG_WAITALL))
        return count * 8 / took if took else 0.0

    def receive() -> float:
        count = 0
        with connect(_SOURCE) as connection:
            connection.recv(1 << 18)
            begin = time.perf_counter()
            while (took := time.perf_counter() - begin) < seconds:
                count += len(connection.recv(1 << 18))
        return count * 8 / took

    result = {"up_bps": send(), "down_bps": receive()}
    both: dict[str, float] = {}
    sending = threading.Thread(target=lambda: both.update(both_up_bps=send()))
    sending.start()
    both["both_down_bps"] = receive()
    sending.join()
    times = []
    with connect(_ECHO) as connection:
        for _ in range(_ROUND_TRIPS):
            begin = time.perf_counter()
            connection.sendall(b"x")
            connection.recv(1)
            times.append(time.perf_counter() - begin)
    times.sort()
    return {**result, **both, "round_trip_ns": round(times[len(times) // 2] * 1e9)}


def main() -> None:
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        try:
            print(json.dumps(measure(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))), flush=True)
        except OSError as err:
            print(err.strerror or err, flush=True)


if __name__ == "__main__":
    main()
