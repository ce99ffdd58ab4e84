"""What do a load process and its JVM say to each other?

Commands go in, records of one size come out, all big-endian. A hello with a version comes first in both directions, so
that a JVM built from other sources is found before it connects. Reads and writes nothing by itself. The other half of
this is `java/jms-clients`.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from crescendo.model.arrays import Int64s
from crescendo.model.errors import PeerError

MAGIC, VERSION = 0x43524A4D, 1
HELLO, READY, SENT, SETTLED, RECEIVED, ECHOED, CLOSED, DONE, BUSY, ENDED = range(1, 11)
"""Types of records. CLOSED is followed by a reason; ENDED: it sends no more; DONE: its connection is closed."""

RECORD = np.dtype(
    [("type", "u1"), ("flag", "u1"), ("index", ">u2"), ("size", ">i4"), ("words", ">i8", 6)]
)  # words: what they mean depends on the type
RECORD_BYTES = RECORD.itemsize
MAX_DUE_ROWS = 1 << 14
"""Due times in one command."""

_START, _DUE, _END, _STOP = 1, 2, 3, 4
_MAX_REASON_BYTES = 2_000
_HEAD = struct.Struct(">IHHIH")
_COMMAND = struct.Struct(">BBHIq")
_DUE_ROW = np.dtype([("due_ns", ">i8"), ("size", ">i4")])

Records = npt.NDArray[np.void]


class Closing(NamedTuple):
    """A connection ended, for this reason."""

    connection: int
    reason: str


# -- commands --------------------------------------------------------------------------------------------------------


def hello_command(role: str, tag: int, connections: Sequence[Mapping[str, str]]) -> bytes:
    """Our version and role, and the settings of each connection."""
    parts = [_HEAD.pack(MAGIC, VERSION, 0 if role == "sender" else 1, tag, len(connections))]
    for settings in connections:
        parts.append(struct.pack(">H", len(settings)))
        for text in (part for pair in settings.items() for part in pair):
            octets = text.encode()
            parts += [struct.pack(">I", len(octets)), octets]
    return b"".join(parts)


def start_command(t0_ns: int) -> bytes:
    return _COMMAND.pack(_START, 0, 0, 0, t0_ns)


def due_command(index: int, first_seq: int, due_ns: Int64s | int, sizes: Int64s | int, count: int) -> bytes:
    """Messages to send: when each is due (0: at once), and how large it is."""
    rows = np.empty(count, _DUE_ROW)
    rows["due_ns"], rows["size"] = due_ns, sizes
    return _COMMAND.pack(_DUE, 0, index, count, first_seq) + rows.tobytes()


def end_command(index: int) -> bytes:
    """Send no more on this connection, not even what is due."""
    return _COMMAND.pack(_END, 0, index, 0, 0)


def stop_command() -> bytes:
    return _COMMAND.pack(_STOP, 0, 0, 0, 0)


# -- records ---------------------------------------------------------------------------------------------------------


class RecordReader:
    """Turns what arrives, in any pieces, into runs of records and reasons."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, octets: bytes) -> Iterator[Records | Closing]:
        """Everything that is complete, in order."""
        data = self._rest + octets
        whole = len(data) // RECORD_BYTES
        records = np.frombuffer(data, RECORD, whole)
        first = 0
        while first < whole:
            closings = np.flatnonzero(records["type"][first:] == CLOSED)
            end = first + int(closings[0]) if len(closings) else whole
            if end > first:
                yield _checked(records[first:end])
                first = end
            if end == whole:
                break
            length = int(records["size"][end])
            if not 0 <= length <= _MAX_REASON_BYTES:
                raise PeerError(f"the JVM of the JMS client sent a reason of {length} bytes")
            after = end + 1 + -(-length // RECORD_BYTES)
            if after > whole:
                break
            begin = (end + 1) * RECORD_BYTES
            yield Closing(int(records["index"][end]), data[begin : begin + length].decode(errors="replace"))
            first = after
        self._rest = data[first * RECORD_BYTES :]


def _checked(records: Records) -> Records:
    types = records["type"]
    if not ((types >= HELLO) & (types <= ENDED)).all():
        raise PeerError("the JVM of the JMS client sent something that is not a record; see its log")
    return records
