"""How do bytes reach a system, whether or not they are encrypted on the way?

One small interface over a non-blocking socket. Without TLS it is the socket's own calls and nothing more. With TLS the
records are made and opened in memory, so that reading never has to wait for writing nor writing for reading, and a loop
over many connections needs to know one thing only: `pending`. Knows no protocol.
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

from crescendo.model.errors import PeerError
from crescendo.net import sockets
from crescendo.net.sockets import CONNECT_TIMEOUT_S, advance, fill, shut
from crescendo.net.tls import Tls, client_context, in_words

_RECORD_BYTES = 1 << 14  # what one TLS record holds at most
_READ_BYTES = 1 << 16
_WRITE_BYTES = 1 << 18


class Transport(Protocol):
    """One connection. It never blocks; what the other side does wrong is a PeerError."""

    straight: Callable[[memoryview], int] | None
    """The socket's own `send`, where bytes go into it as they are; its errors are the socket's own too."""

    @property
    def pending(self) -> bool:
        """Whether to call `recv_into` again before waiting: there is more, and no epoll will tell of it."""
        ...

    def fileno(self) -> int:
        """What to wait for."""
        ...

    def recv_into(self, buffer: memoryview) -> int | None:
        """Read what is there: a number of bytes, 0 when the other side has closed, None when nothing is there."""
        ...

    def send(self, view: memoryview) -> int:
        """Write the beginning: a number of bytes, 0 when there is no room; then come again with the same bytes."""
        ...

    def flush(self, outgoing: deque[memoryview]) -> bool:
        """Write what can be written; True when nothing is left."""
        ...

    def close(self) -> None:
        """Say good-bye if TLS wants one, and let go, without waiting for an answer."""
        ...


def connect(host: str, port: int, *, tls: Tls | None = None, timeout_s: float = CONNECT_TIMEOUT_S) -> Transport:
    """Connect, and shake hands where TLS is asked for; all within the time-out."""
    if tls is None:
        return Plain(sockets.connect(host, port, timeout_s))
    context = client_context(tls)  # first: a missing file is said before anybody is bothered
    deadline_s = time.monotonic() + timeout_s
    connected = sockets.connect(host, port, timeout_s)
    try:
        secure = Secure(connected, context, server_name=tls.server_name or host)
        _await_handshake(secure, deadline_s, timeout_s)
    except PeerError as err:
        shut(connected)
        raise PeerError(f"{host}:{port}: {err}") from err
    except BaseException:
        shut(connected)
        raise
    return secure


class Plain:
    """TCP as it is."""

    pending = False  # the kernel holds everything, and epoll tells of it

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self.straight: Callable[[memoryview], int] | None = connected.send
        self.flush = partial(sockets.flush, connected)  # for each message there is one: spare it a call

    def fileno(self) -> int:
        return self._socket.fileno()

    def recv_into(self, buffer: memoryview) -> int | None:
        return fill(self._socket, buffer)

    def send(self, view: memoryview) -> int:
        try:
            return self._socket.send(view)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as err:
            raise PeerError(f"the connection broke: {err.strerror or err}") from err

    def close(self) -> None:
        shut(self._socket)


class Secure:
    """TLS over TCP, either side of it."""

    def __init__(
        self,
        connected: socket.socket,
        context: ssl.SSLContext,
        *,
        server_side: bool = False,
        server_name: str | None = None,
    ) -> None:
        self._socket = connected
        self.straight: Callable[[memoryview], int] | None = None
        self._incoming, self._records = ssl.MemoryBIO(), ssl.MemoryBIO()
        # Any: the type stubs know of bytearray only, where any buffer is taken.
        self._tls: Any = context.wrap_bio(
            self._incoming, self._records, server_side=server_side, server_hostname=server_name
        )
        self._scratch = memoryview(bytearray(_READ_BYTES))
        self._unsent = memoryview(b"")  # records that the kernel has not taken yet
        self._covered = 0  # how many bytes of the caller's those records stand for
        self._ended = False  # the other side said good-bye
        self._error: PeerError | None = None  # to be raised once what came before it is handed out
        self._mute = False  # writing has failed; why, the reading side knows better
        self.established = False
        self.pending = False

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def wants_write(self) -> bool:
        """Whether records of ours wait for room in the socket."""
        return bool(self._unsent or self._records.pending)

    def shake_hands(self) -> bool:
        """One step of the handshake, with what has arrived; True when it is over. Reading takes the steps by itself."""
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
            self._push()  # our alert tells the other side why
            raise PeerError(in_words(err)) from err
        else:
            self.established = self.pending = True  # the first data may have come with the last of the handshake
        self._push()
        return self.established

    def recv_into(self, buffer: memoryview) -> int | None:
        if not self.shake_hands():
            return None
        count = self._open_records(buffer) if self.pending else 0
        if not count and not self._ended and self._feed():
            count = self._open_records(buffer)
        self._push()  # TLS itself may have something to answer
        return count or (0 if self._ended else None)

    def send(self, view: memoryview) -> int:
        if not self.shake_hands() or not self._push():
            return 0
        if not self._covered:
            self._make_records(view)
            if not self._push():
                return 0
        covered, self._covered = self._covered, 0
        return covered

    def flush(self, outgoing: deque[memoryview]) -> bool:
        while outgoing:
            # Bytes leave the queue when the kernel has their records: an empty queue means that nothing is left.
            first = outgoing[0] if self._covered else _first_of(outgoing)
            written = self.send(first)
            if len(first) and not written:
                return False
            advance(outgoing, written)
        return self._push()

    def close(self) -> None:
        if self.established and self._push():
            with contextlib.suppress(ssl.SSLError):  # it has no answer yet, and we do not wait for one
                self._tls.unwrap()
            self._push()
            with contextlib.suppress(PeerError):
                # What nobody read, and be it only a session ticket, would make the kernel hang up with a reset, which
                # takes back what we wrote last.
                fill(self._socket, self._scratch)
        shut(self._socket)

    # -- records -------------------------------------------------------------------------------------------------

    def _open_records(self, buffer: memoryview) -> int:
        """As many bytes as there are and as fit. Sets `pending` when something is left to be told."""
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
            words = "the system closed the connection in the middle of TLS" if cut else in_words(err)
            self._error = PeerError(words)
            if not count:
                raise self._error from err
        return count

    def _make_records(self, view: memoryview) -> None:
        try:
            while self._covered < min(len(view), _WRITE_BYTES):
                self._covered += self._tls.write(view[self._covered : self._covered + _RECORD_BYTES])
        except ssl.SSLError as err:
            raise PeerError(in_words(err)) from err

    # -- the socket ----------------------------------------------------------------------------------------------

    def _feed(self) -> bool:
        """Take what the kernel has; False when it has nothing."""
        count = fill(self._socket, self._scratch)
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
            if self._mute:
                return False
            if not self._unsent:
                self._unsent = memoryview(self._records.read())
            try:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
            except (BlockingIOError, InterruptedError):
                return False
            except OSError:
                # It may have said why before it hung up: an alert, or words of its protocol. Whoever waits for this
                # socket is woken at once, reads that, and then the end.
                self._mute = True
        return True


def _await_handshake(secure: Secure, deadline_s: float, timeout_s: float) -> None:
    poll = select.poll()
    while not secure.shake_hands():
        poll.register(secure.fileno(), select.POLLIN | (select.POLLOUT if secure.wants_write else 0))
        left_s = deadline_s - time.monotonic()
        if left_s <= 0 or not poll.poll(left_s * 1000):
            raise PeerError(f"the TLS handshake was not over within {timeout_s:g} s")


def _first_of(outgoing: deque[memoryview]) -> memoryview:
    """The beginning of the queue, small pieces joined: each record costs the same, however little it holds."""
    first = outgoing[0]
    if len(outgoing) == 1 or len(first) >= _RECORD_BYTES:
        return first
    joined = bytearray()
    for piece in islice(outgoing, _WRITE_BYTES // 64):
        if joined and len(joined) + len(piece) > _WRITE_BYTES:
            break
        joined += piece
    return memoryview(joined)
