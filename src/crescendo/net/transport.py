"""How do bytes reach a system, with or without TLS?

One small interface over a non-blocking socket. Without TLS it is the socket's own calls and nothing more. With TLS,
records are encrypted and decrypted in memory, so that reading never waits for writing nor writing for reading, and an
event loop over many connections needs only one extra check: `pending`. Knows no protocol.
"""

import contextlib
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any, Protocol

from crescendo.model.connection_timeouts import ConnectionTimeouts
from crescendo.model.errors import PeerError
from crescendo.net import arrival_time, sockets
from crescendo.net.sockets import CONNECT_TIMEOUT_S, advance, close_socket, fill
from crescendo.net.tls import Tls, client_context, tls_error_text

_RECORD_BYTES = 1 << 14  # the maximum payload of one TLS record
_READ_BYTES = 1 << 16
_WRITE_BYTES = 1 << 18


class Transport(Protocol):
    """One connection. It never blocks; a fault of the peer is a PeerError."""

    socket_send: Callable[[memoryview], int] | None
    """The socket's own `send` if bytes are sent unchanged, otherwise None; it raises the socket's own errors."""

    @property
    def pending(self) -> bool:
        """Whether to call `recv_into` again before waiting: more data is buffered, and epoll will not report it."""
        ...

    def fileno(self) -> int:
        """The file descriptor to poll."""
        ...

    def recv_into(self, buffer: memoryview) -> int | None:
        """Read what is available: a number of bytes, 0 if the peer has closed, None if nothing is available."""
        ...

    def stamp_arrivals(self) -> None:
        """Let the kernel stamp what arrives."""
        ...

    def recv_stamped(self, buffer: memoryview) -> tuple[int | None, int | None]:
        """The same as `recv_into`; also returns when the newest of the bytes arrived, None if unknown."""
        ...

    def oldest_unread_ns(self) -> int | None:
        """When the first byte that the next `recv_into` will read from the kernel arrived there; None if unknown."""
        ...

    def send(self, view: memoryview) -> int:
        """Write a prefix: a number of bytes, 0 if the socket is full; then retry with the same bytes."""
        ...

    def flush(self, outgoing: deque[memoryview]) -> bool:
        """Write as much as possible; True when nothing is left."""
        ...

    def limit_silence(self, settings: ConnectionTimeouts) -> None:
        """Tell TCP after how long without an answer the connection is lost."""
        ...

    def close(self) -> None:
        """Close, after a TLS close_notify if there is TLS, without waiting for an answer."""
        ...


def connect(host: str, port: int, *, tls: Tls | None = None, timeout_s: float = CONNECT_TIMEOUT_S) -> Transport:
    """Connect, including the TLS handshake if requested, within the timeout."""
    if tls is None:
        return PlainTransport(sockets.connect(host, port, timeout_s))
    context = client_context(tls)  # first: report a missing file before connecting
    deadline_s = time.monotonic() + timeout_s
    connected = sockets.connect(host, port, timeout_s)
    try:
        secure = TlsTransport(connected, context, server_name=tls.server_name or host)
        _await_handshake(secure, deadline_s, timeout_s)
    except PeerError as err:
        close_socket(connected)
        raise PeerError(f"{host}:{port}: {err}") from err
    except BaseException:
        close_socket(connected)
        raise
    return secure


class PlainTransport:
    """Plain TCP."""

    pending = False  # the kernel buffers everything, and epoll reports it

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self.socket_send: Callable[[memoryview], int] | None = connected.send
        self.flush = partial(sockets.flush, connected)  # called for every message: save one call

    def fileno(self) -> int:
        return self._socket.fileno()

    def recv_into(self, buffer: memoryview) -> int | None:
        return fill(self._socket, buffer)

    def stamp_arrivals(self) -> None:
        arrival_time.stamp_arrivals(self._socket)

    def recv_stamped(self, buffer: memoryview) -> tuple[int | None, int | None]:
        return arrival_time.fill_stamped(self._socket, buffer)

    def oldest_unread_ns(self) -> int | None:
        return arrival_time.oldest_unread_ns(self._socket)

    def send(self, view: memoryview) -> int:
        try:
            return self._socket.send(view)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as err:
            raise PeerError(f"the connection broke: {err.strerror or err}") from err

    def limit_silence(self, settings: ConnectionTimeouts) -> None:
        sockets.limit_silence(self._socket, settings)

    def close(self) -> None:
        close_socket(self._socket)


class TlsTransport:
    """TLS over TCP, as client or server."""

    def __init__(
        self,
        connected: socket.socket,
        context: ssl.SSLContext,
        *,
        server_side: bool = False,
        server_name: str | None = None,
    ) -> None:
        self._socket = connected
        self.socket_send: Callable[[memoryview], int] | None = None
        self._incoming, self._records = ssl.MemoryBIO(), ssl.MemoryBIO()
        # Any: the type stubs allow only bytearray, but any buffer works.
        self._tls: Any = context.wrap_bio(
            self._incoming, self._records, server_side=server_side, server_hostname=server_name
        )
        self._scratch = memoryview(bytearray(_READ_BYTES))
        self._unsent = memoryview(b"")  # records that the kernel has not accepted yet
        self._covered_bytes = 0  # how many of the caller's bytes those records contain
        self._ended = False  # the peer sent close_notify
        self._error: PeerError | None = None  # raised once all data before it has been returned
        self._write_failed = False  # writing has failed; reading will show the reason
        self._arrived_ns: int | None = None  # of the newest bytes that were read from the socket
        self.established = False
        self.pending = False

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def wants_write(self) -> bool:
        """Whether records wait to be written to the socket."""
        return bool(self._unsent or self._records.pending)

    def handshake_step(self) -> bool:
        """Continue the handshake with the bytes that arrived; True when complete. Reading and sending do this too."""
        if self.established:
            return True
        self._feed()
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLEOFError as err:
            raise PeerError("the system closed the connection during the TLS handshake") from err
        except ssl.SSLError as err:
            self._push()  # send our alert, so that the peer learns why
            raise PeerError(tls_error_text(err)) from err
        else:
            self.established = self.pending = True  # the first data may have arrived with the end of the handshake
        self._push()
        return self.established

    def recv_into(self, buffer: memoryview) -> int | None:
        if not self.handshake_step():
            return None
        count = self._decrypt(buffer) if self.pending else 0
        if not count and not self._ended and self._feed():
            count = self._decrypt(buffer)
        self._push()  # TLS itself may have an answer to send
        return count or (0 if self._ended else None)

    def stamp_arrivals(self) -> None:
        arrival_time.stamp_arrivals(self._socket)

    def recv_stamped(self, buffer: memoryview) -> tuple[int | None, int | None]:
        self._arrived_ns = None
        return self.recv_into(buffer), self._arrived_ns

    def oldest_unread_ns(self) -> int | None:
        return arrival_time.oldest_unread_ns(self._socket)

    def send(self, view: memoryview) -> int:
        if not self.handshake_step() or not self._push():
            return 0
        if not self._covered_bytes:
            self._encrypt(view)
            if not self._push():
                return 0
        covered, self._covered_bytes = self._covered_bytes, 0
        return covered

    def flush(self, outgoing: deque[memoryview]) -> bool:
        while outgoing:
            # Bytes leave the queue only when the kernel has their records: an empty queue means that all are written.
            first = outgoing[0] if self._covered_bytes else _coalesced(outgoing)
            written = self.send(first)
            if len(first) and not written:
                return False
            advance(outgoing, written)
        return self._push()

    def limit_silence(self, settings: ConnectionTimeouts) -> None:
        sockets.limit_silence(self._socket, settings)

    def close(self) -> None:
        if self.established and self._push():
            with contextlib.suppress(ssl.SSLError):  # the peer has not answered yet, and we do not wait
                self._tls.unwrap()
            self._push()
            with contextlib.suppress(PeerError):
                # Unread bytes, even a mere session ticket, would make the kernel close with a reset, which discards
                # what we wrote last.
                fill(self._socket, self._scratch)
        close_socket(self._socket)

    # -- records -------------------------------------------------------------------------------------------------

    def _decrypt(self, buffer: memoryview) -> int:
        """Decrypt the bytes that are available and fit. Sets `pending` if data, an end or an error is left."""
        if self._error is not None:
            raise self._error
        count, self.pending = 0, True
        try:
            while count < len(buffer) and not self._ended:
                opened = self._tls.read(len(buffer) - count, buffer[count:])
                self._ended = not opened
                count += opened
        except ssl.SSLWantReadError:
            self.pending = False
        except ssl.SSLError as err:
            cut = isinstance(err, ssl.SSLEOFError)
            reason = "the system closed the connection in the middle of TLS" if cut else tls_error_text(err)
            self._error = PeerError(reason)
            if not count:
                raise self._error from err
        return count

    def _encrypt(self, view: memoryview) -> None:
        try:
            while self._covered_bytes < min(len(view), _WRITE_BYTES):
                self._covered_bytes += self._tls.write(view[self._covered_bytes : self._covered_bytes + _RECORD_BYTES])
        except ssl.SSLError as err:
            raise PeerError(tls_error_text(err)) from err

    # -- the socket ----------------------------------------------------------------------------------------------

    def _feed(self) -> bool:
        """Read what the kernel has; False if it has nothing."""
        count, self._arrived_ns = arrival_time.fill_stamped(self._socket, self._scratch)
        if count is None:
            return False
        if count:
            self._incoming.write(self._scratch[:count])
        else:
            self._incoming.write_eof()
        return True

    def _push(self) -> bool:
        """Hand our records to the kernel; True when it has all of them."""
        while self._unsent or self._records.pending:
            if self._write_failed:
                return False
            if not self._unsent:
                self._unsent = memoryview(self._records.read())
            try:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
            except (BlockingIOError, InterruptedError):
                return False
            except OSError:
                # The peer may have sent the reason before it closed: an alert, or an error of its protocol. The poll
                # on this socket returns at once, and the caller reads that reason, then the end.
                self._write_failed = True
        return True


def _await_handshake(secure: TlsTransport, deadline_s: float, timeout_s: float) -> None:
    poll = select.poll()
    while not secure.handshake_step():
        poll.register(secure.fileno(), select.POLLIN | (select.POLLOUT if secure.wants_write else 0))
        left_s = deadline_s - time.monotonic()
        if left_s <= 0 or not poll.poll(left_s * 1000):
            raise PeerError(f"the TLS handshake did not complete within {timeout_s:g} s")


def _coalesced(outgoing: deque[memoryview]) -> memoryview:
    """The front of the queue, with small chunks joined: every record costs the same, however little it holds."""
    first = outgoing[0]
    if len(outgoing) == 1 or len(first) >= _RECORD_BYTES:
        return first
    joined = bytearray()
    for chunk in islice(outgoing, _WRITE_BYTES // 64):
        if joined and len(joined) + len(chunk) > _WRITE_BYTES:
            break
        joined += chunk
    return memoryview(joined)
