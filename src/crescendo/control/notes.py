"""Which messages do the conductor and the peers exchange?

A note is one MessagePack array: kind, command, correlation, sender, payload. The numbers of the commands are those of
the Maestro protocol. Payloads are plain maps on the wire and frozen values in the code; a payload that does not fit is
the other side's fault and raises a PeerError. Knows neither topics nor sockets, and reads no clock.
"""

from enum import IntEnum
from typing import Any, Literal, Self

import msgspec
from msgspec import Struct, field

from crescendo.model.errors import ConfigError, PeerError
from crescendo.model.peer_statistics import PeerStatistics

MAX_NOTE_BYTES = 2**20
"""Enough for the assignment of thousands of connections; anything larger is not a note."""

Fault = Literal["config", "peer", "lost"]
"""Whose fault: the user's (config), the system under test's (peer), or unknown (lost)."""


class NoteKind(IntEnum):
    REQUEST = 0
    RESPONSE = 1
    NOTIFICATION = 2


class Command(IntEnum):
    START_RECEIVER = 0
    STOP_RECEIVER = 1
    START_SENDER = 2
    STOP_SENDER = 3
    START_INSPECTOR = 4
    STOP_INSPECTOR = 5
    SET = 7
    STATS = 8
    HALT = 9
    OK = 11
    PROTOCOL_ERROR = 12
    INTERNAL_ERROR = 13
    ABNORMAL_DISCONNECT = 14
    NOTIFY_FAIL = 15
    NOTIFY_SUCCESS = 16
    DRAIN = 41
    GROUP_JOIN = 50


class Identity(Struct, frozen=True, array_like=True):
    """The sender of a note: the id that the conductor planned, and the process behind it."""

    id: str
    role: str
    host: str
    pid: int


class Note(Struct, frozen=True, array_like=True):
    """One message of the control protocol. Notifications answer no request; their correlation is 0."""

    kind: NoteKind
    command: Command
    correlation: int
    sender: Identity
    payload: dict[str, Any]


class NotePayload(Struct, frozen=True):
    """A typed payload. Unknown keys are ignored, so that a newer peer may send more."""

    def to_payload(self) -> dict[str, Any]:
        payload: dict[str, Any] = msgspec.to_builtins(self)
        return payload

    @classmethod
    def from_payload(cls, payload: dict[str, Any]) -> Self:
        try:
            return msgspec.convert(payload, cls)
        except msgspec.ValidationError as err:
            raise PeerError(f"not a valid {cls.__name__} payload: {err}") from err


class Hello(NotePayload, frozen=True):
    """GROUP_JOIN: wall clock minus monotonic clock on the peer's host, and the peer's version."""

    realtime_offset_ns: int
    version: str


class Start(NotePayload, frozen=True):
    """START_SENDER, START_RECEIVER, START_INSPECTOR: the moment message 0 is due, on the monotonic clock."""

    t0_ns: int


class Statistics(NotePayload, frozen=True):
    """STATS, NOTIFY_SUCCESS and answers: a peer's progress so far."""

    t_ns: int
    counts: dict[str, int] = field(default_factory=dict)  # address -> messages since the start
    messages: int = 0
    rate: float = 0.0  # messages in the last second
    p99_ns: int | None = None
    cpu: float = 0.0  # cores used in the last second
    values: PeerStatistics = PeerStatistics()  # what the peer measured about itself


class Failure(NotePayload, frozen=True):
    """Refusals and last wills: what went wrong, and whose fault it is."""

    reason: str
    fault: Fault


class FailureReport(NotePayload, frozen=True):
    """NOTIFY_FAIL: the failure, and the progress up to it."""

    failure: Failure
    statistics: Statistics


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Note)


def encode_note(note: Note) -> bytes:
    content = _encoder.encode(note)
    if len(content) > MAX_NOTE_BYTES:
        raise ConfigError(
            f"{note.command.name} for {note.sender.id} needs {len(content)} bytes, but a note has at most "
            f"{MAX_NOTE_BYTES}; spread the connections over more peers"
        )
    return content


def decode_note(content: bytes) -> Note:
    if len(content) > MAX_NOTE_BYTES:
        raise PeerError(f"a note of {len(content)} bytes; at most {MAX_NOTE_BYTES} are allowed")
    try:
        return _decoder.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as err:
        raise PeerError(f"not a note: {err}") from err
