"""An HTTP server that answers whatever a test wants, valid or not."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Behaviour = Callable[[socket.socket, bytes], None]
_HEAD_BYTES = 65_536


@contextmanager
def serving(behave: Behaviour) -> Iterator[str]:
    """The URL of a server that hands each connection and the head of its request to `behave`."""
    ended = threading.Event()

    def serve() -> None:
        while not ended.is_set():
            with suppress(OSError):
                connected, _ = server.accept()
                with connected:
                    connected.settimeout(10)
                    behave(connected, connected.recv(_HEAD_BYTES))

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://user:hush@127.0.0.1:{server.getsockname()[1]}"
        finally:
            ended.set()
            thread.join()


def answering(status: str, body: bytes, headers: str = "") -> Behaviour:
    def behave(connected: socket.socket, _request: bytes) -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n{headers}\r\n"
        connected.sendall(head.encode() + body)

    return behave


def silent(connected: socket.socket, _request: bytes) -> None:
    """Never answers; ends when the client closes."""
    while connected.recv(_HEAD_BYTES):
        pass


def endless(connected: socket.socket, _request: bytes) -> None:
    connected.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n[")
    while True:
        connected.sendall(b"1," * 32_768)


def dribbling(connected: socket.socket, _request: bytes) -> None:
    """A byte now and then: never silent for long, and never complete."""
    connected.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n[")
    pause = threading.Event()
    while not pause.wait(0.05):
        connected.sendall(b"1,")


def abrupt(connected: socket.socket, _request: bytes) -> None:
    connected.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n[1,")
