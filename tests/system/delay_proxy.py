"""A proxy in front of a system: whatever the system says arrives later, always by the same time."""

import contextlib
import queue
import socket
import threading
import time
from types import TracebackType
from typing import Self


class DelayProxy:
    """Passes connections on to a port of this machine. Use as a context manager."""

    def __init__(self, target_port: int, delay_s: float, watched: bytes = b"") -> None:
        """`watched`: what clients may say; `seen_s` has the moments at which they did."""
        self._target_port, self._delay_s, self._watched = target_port, delay_s, watched
        self.seen_s: list[float] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets = [self._listener]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None) -> None:
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target_port))
                self._sockets += [client, server]
                said: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
                for target, arguments in (
                    (self._pass_on, (client, server)),
                    (self._listen, (server, said)),
                    (_say_late, (said, client)),
                ):
                    threading.Thread(target=target, args=arguments, daemon=True).start()

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                if self._watched and self._watched in data:
                    self.seen_s.append(time.monotonic())
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)

    def _listen(self, server: socket.socket, said: "queue.SimpleQueue[tuple[float, bytes]]") -> None:
        data = b"?"
        while data:
            try:
                data = server.recv(1 << 16)
            except OSError:
                data = b""
            said.put((time.monotonic() + self._delay_s, data))


def _say_late(said: "queue.SimpleQueue[tuple[float, bytes]]", client: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            due_s, data = said.get()
            time.sleep(max(due_s - time.monotonic(), 0.0))
            if not data:
                client.shutdown(socket.SHUT_WR)
                return
            client.sendall(data)
