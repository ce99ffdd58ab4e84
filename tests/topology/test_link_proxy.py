"""A link that is cut and restored: connections end, new ones are refused, then it works again on the same port."""

import socket
import threading
from contextlib import closing

import pytest

from crescendo.topology.link_proxy import LinkProxy


class Echo:
    """A server that sends back what it receives."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client:
                try:
                    while data := client.recv(1024):
                        client.sendall(data)
                except ConnectionError:
                    continue

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)
        assert not self._thread.is_alive()


def _connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=5)


def _echoed(client: socket.socket, text: bytes) -> bytes:
    client.sendall(text)
    return client.recv(1024)


def test_a_cut_link_refuses_until_it_is_restored() -> None:
    with closing(Echo()) as server, closing(LinkProxy(server.port)) as proxy:
        with _connect(proxy.port) as client:
            assert _echoed(client, b"before") == b"before"
            proxy.cut()
            with pytest.raises(ConnectionResetError):
                assert client.recv(1024) == b"unreachable"
        with pytest.raises(ConnectionRefusedError):
            _connect(proxy.port)
        proxy.restore()
        with _connect(proxy.port) as client:
            assert _echoed(client, b"after") == b"after"


def test_nobody_else_can_take_the_port_of_a_cut_link() -> None:
    with closing(Echo()) as server, closing(LinkProxy(server.port)) as proxy:
        proxy.cut()
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", proxy.port))
        proxy.restore()


def test_nothing_of_a_proxy_is_left_when_it_is_closed() -> None:
    with closing(Echo()) as server:
        proxy = LinkProxy(server.port)
        with _connect(proxy.port) as client:
            assert _echoed(client, b"x") == b"x"
            proxy.close()
        with pytest.raises(ConnectionRefusedError):
            _connect(proxy.port)
        assert proxy.is_idle
