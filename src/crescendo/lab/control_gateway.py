"""How does a process on a host of the lab reach the control broker of this machine?

Hosts reach each other and nothing else. For the control plane alone, a thread of this process listens on the loopback
interface of each host, at the port of the broker, and passes bytes on. Load never takes this way: its connections are
those of the hosts. Understands nothing of what passes.
"""

import contextlib
import selectors
import socket
import threading

_CHUNK_BYTES = 1 << 16
_CONNECT_S = 5.0


class ControlGateway:
    """Passes connections of one or more listeners on to one address. close() ends all of them."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._lock = threading.Lock()
        self._new: list[socket.socket] = []
        self._thread = threading.Thread(target=self._pass_on, name="gateway", daemon=True)
        self._thread.start()

    def add(self, listener: socket.socket) -> None:
        """Accept connections here, too."""
        with self._lock:
            self._new.append(listener)
        self._wake.send(b"n")

    def close(self) -> None:
        """End the thread and all connections. Safe to call twice."""
        with contextlib.suppress(OSError):
            self._wake.shutdown(socket.SHUT_WR)
        self._thread.join()
        self._wake.close()

    def _pass_on(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._woken:
                    if not self._woken.recv(64):
                        self._end()
                        return
                    self._take_listeners()
                elif key.data is None:
                    self._connect(key.fileobj)  # type: ignore[arg-type]
                else:
                    self._copy(key.fileobj, key.data)  # type: ignore[arg-type]

    def _take_listeners(self) -> None:
        with self._lock:
            new, self._new = self._new, []
        for listener in new:
            self._selector.register(listener, selectors.EVENT_READ)

    def _connect(self, listener: socket.socket) -> None:
        near, _ = listener.accept()
        try:
            far = socket.create_connection(self._target, _CONNECT_S)
        except OSError:
            near.close()  # as if nobody listened
            return
        for one, other in ((near, far), (far, near)):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            one.settimeout(_CONNECT_S)  # for a reader that does not read: notes are small
            self._selector.register(one, selectors.EVENT_READ, other)

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        if source.fileno() < 0:
            return  # closed together with its partner, in this turn
        try:
            data = source.recv(_CHUNK_BYTES)
            if data:
                target.sendall(data)
                return
        except OSError:
            pass
        for one in (source, target):
            self._selector.unregister(one)
            one.close()

    def _end(self) -> None:
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()
