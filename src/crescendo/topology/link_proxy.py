"""How is a link of a local network cut and restored while messages cross it?

A forwarder of bytes stands between the node that opens the link and the one that accepts it. Cut: every connection is
reset and new ones are refused. Restored: it forwards again, on the same port. It reads nothing of what it forwards.
"""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator, Mapping
from copy import deepcopy

from crescendo.systems.ports import HOST
from crescendo.topology.generate import Network, wired_links
from crescendo.topology.listener_ports import port_of

_CHUNK_BYTES = 1 << 16
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER on, no time: close sends a reset
_JOIN_S = 5.0


class LinkProxy:
    """Forwards connections to one port of this machine."""

    def __init__(self, port: int) -> None:
        self._target = port
        # Bound but not listening, it keeps the port ours while the link is cut.
        self._reserved = socket.socket()
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._reserved.bind((HOST, 0))
        self.port: int = self._reserved.getsockname()[1]
        self._listener: socket.socket | None = None
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self.restore()

    def cut(self) -> None:
        """Reset every connection and refuse new ones."""
        with self._lock:
            listener, self._listener = self._listener, None
            pairs, self._pairs = self._pairs, []
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            listener.close()
        for pair in pairs:
            _reset(*pair)

    def restore(self) -> None:
        listener = socket.create_server((HOST, self.port))
        with self._lock:
            self._listener = listener
        self._start(self._accept, listener)

    def close(self) -> None:
        self.cut()
        self._reserved.close()
        for thread in self._threads:
            thread.join(_JOIN_S)

    @property
    def is_idle(self) -> bool:
        """Whether no thread of it runs any more."""
        return not any(thread.is_alive() for thread in self._threads)

    def _start(self, function: object, *arguments: socket.socket) -> None:
        thread = threading.Thread(target=function, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):  # closed by cut
            while True:
                near, _ = listener.accept()
                try:
                    far = socket.create_connection((HOST, self._target))
                except OSError:
                    near.close()
                    continue
                with self._lock:
                    alive = self._listener is listener
                    if alive:
                        self._pairs.append((near, far))
                if not alive:
                    _reset(near, far)
                    return
                self._start(self._forward, near, far)
                self._start(self._forward, far, near)

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK_BYTES):
                target.sendall(data)
            with self._lock:  # a connection that was cut is reset, not closed in order
                if any(source in pair for pair in self._pairs):
                    target.shutdown(socket.SHUT_WR)


def _reset(*sockets: socket.socket) -> None:
    for one in sockets:
        with contextlib.suppress(OSError):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            one.shutdown(socket.SHUT_RD)  # wakes the thread that reads, and tells the other side nothing yet
        one.close()


@contextlib.contextmanager
def proxied_links(network: Network) -> Iterator[tuple[Network, Mapping[tuple[str, str], list[LinkProxy]]]]:
    """The same network with a proxy between every two nodes that a link joins, by source and target of the link.

    Links that the same node opens to the same port share one, as they would share a cable.
    """
    copied = Network(network.topology, deepcopy(network.variables))
    shared: dict[tuple[str, int], LinkProxy] = {}
    proxies: dict[tuple[str, str], list[LinkProxy]] = {}
    with contextlib.ExitStack() as stack:
        for wired in wired_links(copied):
            port = port_of(wired.connector)
            if port is None:
                continue
            key = wired.opener.id, port
            if key not in shared:
                shared[key] = LinkProxy(port)
                stack.callback(shared[key].close)
            wired.connector["port"] = shared[key].port
            of_link = proxies.setdefault(wired.link.ends, [])
            if shared[key] not in of_link:
                of_link.append(shared[key])
        yield copied, proxies
