"""When did the bytes that a socket holds arrive?

The kernel stamps what a socket receives (SO_TIMESTAMPNS), also while this process is stopped or starved, so the stamp
tells a late reader from a late sender. A read can return the stamp of the newest bytes that it took, at little cost;
the stamp of the oldest unread ones takes a peek at the first byte, a system call of its own. The kernel joins small
segments, up to 17 of them, and keeps the time of the latest. The stamps are of the wall clock; a stamp in the future
was made before the clock was set, and is ignored.
"""

import contextlib
import socket
import struct
import time

from crescendo.model.errors import PeerError

SO_TIMESTAMPNS = 35  # Linux; Python does not know its name
_TIMESPEC = struct.Struct("qq")
_ANCILLARY_BYTES = 64
_peeked = bytearray(1)


def stamp_arrivals(connected: socket.socket) -> None:
    """Let the kernel stamp what arrives from now on. Where it cannot, `oldest_unread_ns` has no answer."""
    with contextlib.suppress(OSError):
        connected.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)


def oldest_unread_ns(connected: socket.socket) -> int | None:
    """When the first unread byte arrived, as a time of the monotonic clock; None if that is not known."""
    try:
        _, ancillary, _, _ = connected.recvmsg_into((_peeked,), _ANCILLARY_BYTES, socket.MSG_PEEK)
    except OSError:
        return None
    return _arrival_ns(ancillary)


def fill_stamped(source: socket.socket, buffer: memoryview) -> tuple[int | None, int | None]:
    """Read as `fill` does; also returns when the newest byte arrived, or None if that is not known."""
    try:
        count, ancillary, _, _ = source.recvmsg_into((buffer,), _ANCILLARY_BYTES)
    except (BlockingIOError, InterruptedError):
        return None, None
    except OSError as err:
        raise PeerError(f"the connection broke: {err.strerror or err}") from err
    return count, _arrival_ns(ancillary)


def _arrival_ns(ancillary: list[tuple[int, int, bytes]]) -> int | None:
    """As a time of the monotonic clock."""
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS and len(data) >= _TIMESPEC.size:
            seconds, nanoseconds = _TIMESPEC.unpack_from(data)
            age_ns = time.time_ns() - seconds * 1_000_000_000 - nanoseconds
            return time.monotonic_ns() - age_ns if age_ns >= 0 else None
    return None
