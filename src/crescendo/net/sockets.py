"""How do bytes move between a socket and a codec without being copied twice?

Non-blocking TCP, on loopback or over a network. Knows no protocol: it fills a buffer, drains a queue of buffers, and
says in one sentence why a connection failed.
"""

import contextlib
import errno
import resource
import socket
from collections import deque

from crescendo.model.connection_timeouts import KEEPALIVE_PROBES, ConnectionTimeouts
from crescendo.model.errors import ConfigError, PeerError

CONNECT_TIMEOUT_S = 5.0
_BUFFER_BYTES = 1 << 20
_MAX_VECTORS = 64


def connect(host: str, port: int, timeout_s: float = CONNECT_TIMEOUT_S) -> socket.socket:
    """Connect and return a non-blocking socket."""
    try:
        connected = socket.create_connection((host, port), timeout=timeout_s)
    except TimeoutError as err:
        raise PeerError(
            f"{host}:{port} did not answer within {timeout_s:g} s; are host and port right, and no firewall between?"
        ) from err
    except OSError as err:
        if err.errno == errno.EMFILE:
            allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            raise ConfigError(
                f"a process here may have {allowed:,} open files, too few for this many connections; "
                "share them among more peers, or raise the limit with ulimit -n"
            ) from err
        raise PeerError(f"{host}:{port} {_why_unreachable(err)}") from err
    return configure_socket(connected)


def _why_unreachable(err: OSError) -> str:
    if isinstance(err, socket.gaierror):
        return f"cannot be found: {err.strerror}; is the name of the host spelled correctly?"
    if err.errno == errno.ECONNREFUSED:
        return "refused the connection; is it running?"
    return f"cannot be reached: {err.strerror or err}"


def listen(host: str = "127.0.0.1", port: int = 0) -> socket.socket:
    """Listen on a port, or on a free one if it is 0."""
    return socket.create_server((host, port), backlog=4096)


def configure_socket(connected: socket.socket) -> socket.socket:
    """Apply the settings of all our connections: no delay, non-blocking, buffers for a batch."""
    connected.setblocking(False)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
    return connected


def limit_silence(connected: socket.socket, settings: ConnectionTimeouts) -> None:
    """Tell TCP after how long without an answer the connection is lost."""
    if settings.keepalive_s:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            (socket.TCP_KEEPIDLE, settings.keepalive_s),
            (socket.TCP_KEEPINTVL, settings.keepalive_s),
            (socket.TCP_KEEPCNT, KEEPALIVE_PROBES),
        ):
            connected.setsockopt(socket.IPPROTO_TCP, option, value)
    if settings.user_timeout_ms:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, settings.user_timeout_ms)


def fill(source: socket.socket, buffer: memoryview) -> int | None:
    """Read what is available: a number of bytes, 0 if the peer has closed, None if nothing is available."""
    try:
        return source.recv_into(buffer)
    except (BlockingIOError, InterruptedError):
        return None
    except OSError as err:
        raise PeerError(f"the connection broke: {err.strerror or err}") from err


def flush(target: socket.socket, outgoing: deque[memoryview]) -> bool:
    """Write as much as possible; True when nothing is left."""
    while outgoing:
        try:
            if len(outgoing) == 1:
                only = outgoing[0]
                written = target.send(only)
                if written == len(only):
                    outgoing.clear()
                    return True
            else:
                written = target.sendmsg([outgoing[index] for index in range(min(len(outgoing), _MAX_VECTORS))])
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as err:
            raise PeerError(f"the connection broke: {err.strerror or err}") from err
        if advance(outgoing, written):
            return False
    return True


def advance(outgoing: deque[memoryview], written: int) -> bool:
    """Remove the written bytes from the queue; True if the last buffer was written only in part."""
    while outgoing and written >= len(outgoing[0]):
        written -= len(outgoing.popleft())
    if written:
        outgoing[0] = outgoing[0][written:]
    return bool(written)


def close_socket(connected: socket.socket) -> None:
    """Close and ignore errors."""
    with contextlib.suppress(OSError):
        connected.close()
