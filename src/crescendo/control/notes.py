"""Which messages do the conductor and the peers exchange?

A note is one MessagePack array: version, kind, command, correlation, counter, addressee, sender, payload. The numbers
of the commands are those of the Maestro protocol. Payloads are plain maps on the wire and frozen values in the code; a
payload that does not fit is the other side's fault and raises a PeerError. Knows neither topics nor sockets, reads no
clock, and authenticates nothing.
"""

from enum import IntEnum
from typing import Annotated, Any, Literal, Self

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field

from crescendo.model.errors import ConfigError, PeerError
from crescendo.model.peer_statistics import Measured, PeerStatistics

PROTOCOL_VERSION = 2
"""Version 1 had neither version, counter nor addressee, and nothing was authenticated."""

MAX_NOTE_BYTES = 2**20
"""Enough for the assignment of thousands of connections; anything larger is not a note."""

Fault = Literal["config", "peer", "lost"]
"""Whose fault: the user's (config), the system under test's (peer), or unknown (lost)."""


class NoteKind(IntEnum):
    REQUEST = 0
    RESPONSE = 1
    NOTIFICATION = 2


class Command(IntEnum):
    """Up to 30 as in Appendix B of the thesis, from 40 on as in later Maestro."""

    START_RECEIVER = 0
    STOP_RECEIVER = 1
    START_SENDER = 2
    STOP_SENDER = 3
    START_INSPECTOR = 4
    STOP_INSPECTOR = 5
    FLUSH = 6
    SET = 7
    STATS = 8
    HALT = 9
    PING = 10
    OK = 11
    PROTOCOL_ERROR = 12
    INTERNAL_ERROR = 13
    ABNORMAL_DISCONNECT = 14
    NOTIFY_FAIL = 15
    NOTIFY_SUCCESS = 16
    GET = 17
    START_AGENT = 18
    STOP_AGENT = 19
    AGENT_SOURCE = 21
    USER_COMMAND_1 = 30
    LOG = 40
    DRAIN = 41
    NOTIFY_DRAIN_COMPLETE = 42
    GROUP_JOIN = 50
    GROUP_LEAVE = 51
    ROLE_ASSIGN = 60
    ROLE_UNASSIGN = 61
    NOTIFY_TEST_STARTED = 70


START_COMMANDS = frozenset(
    (Command.START_RECEIVER, Command.START_SENDER, Command.START_INSPECTOR, Command.START_AGENT)
)  # fmt: skip
STOP_COMMANDS = frozenset(
    (Command.STOP_RECEIVER, Command.STOP_SENDER, Command.STOP_INSPECTOR, Command.STOP_AGENT)
)  # fmt: skip
AGENT_COMMANDS = frozenset(
    (Command.START_AGENT, Command.STOP_AGENT, Command.AGENT_SOURCE, Command.USER_COMMAND_1)
)  # fmt: skip
READING_COMMANDS = frozenset((Command.PING, Command.STATS, Command.GET, Command.LOG))
"""They change nothing, so they may be addressed to every peer at once."""

SECRET_COMMANDS = frozenset((Command.SET, Command.AGENT_SOURCE, Command.USER_COMMAND_1))
"""Their requests may contain passwords, so their payloads are encrypted."""

EVERYBODY = 0
"""The addressee of notes that are not meant for one process."""

MAX_REASON_CHARS = 4000
"""A reason may quote what was sent, and must still fit into the answer."""

Nanoseconds = Annotated[int, Meta(ge=-(2**62), le=2**62)]
"""A clock reading that can be added to another one in 64 bits."""

_Name = Annotated[str, Meta(max_length=255)]
_Whole = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Messages = Annotated[int, Meta(ge=0, le=2**62)]


class Identity(Struct, frozen=True, array_like=True):
    """The sender of a note: the id that the conductor planned, and the process behind it.

    `session` is a random number of this process, so that no note is mistaken for one of an earlier process.
    """

    id: _Name
    role: _Name
    host: _Name
    pid: _Whole
    session: _Whole = 0


class Note(Struct, frozen=True, array_like=True):
    """One message of the control protocol. Notifications answer no request; their correlation is 0."""

    kind: NoteKind
    command: Command
    correlation: int
    sender: Identity
    payload: dict[str, Any]
    to: int = EVERYBODY  # the session of the process that it is meant for
    scope: str = ""  # of a note that was received: the run or lab it belongs to; not on the wire


class _WireNote(Struct, frozen=True, array_like=True):
    version: _Whole
    kind: _Whole
    command: _Whole
    correlation: _Whole
    counter: _Whole
    to: _Whole
    sender: Identity
    payload: msgspec.Raw


class NotUnderstoodError(PeerError):
    """A note of another version, with a command or kind that does not exist, or with a payload that cannot be read."""

    def __init__(self, reason: str, frame: "_WireNote | Note", counter: int) -> None:
        super().__init__(reason)
        self.sender, self.correlation, self.to, self.counter = frame.sender, frame.correlation, frame.to, counter
        self.is_request = frame.kind == NoteKind.REQUEST


class NotePayload(Struct, frozen=True):
    """A typed payload. Unknown keys are ignored, so that a newer peer may send more."""

    def to_payload(self) -> dict[str, Any]:
        payload: dict[str, Any] = msgspec.to_builtins(self, builtin_types=(bytes,))
        return payload

    @classmethod
    def from_payload(cls, payload: dict[str, Any]) -> Self:
        try:
            return msgspec.convert(payload, cls, builtin_types=(bytes,))
        except msgspec.ValidationError as err:
            raise PeerError(f"not a valid {cls.__name__} payload: {err}") from err


class Hello(NotePayload, frozen=True):
    """GROUP_JOIN: wall clock minus monotonic clock on the peer's host, and the peer's version."""

    realtime_offset_ns: Nanoseconds
    version: str


class Start(NotePayload, frozen=True):
    """START_SENDER, START_RECEIVER, START_INSPECTOR: the moment message 0 is due, on the monotonic clock."""

    t0_ns: Nanoseconds


class Statistics(NotePayload, frozen=True):
    """STATS, NOTIFY_SUCCESS and answers: a peer's progress so far."""

    t_ns: Nanoseconds
    counts: dict[str, _Messages] = field(default_factory=dict)  # address -> messages since the start
    messages: _Messages = 0
    rate: Measured = 0.0  # messages in the last second
    p99_ns: Nanoseconds | None = None
    cpu: Measured = 0.0  # cores used in the last second
    values: PeerStatistics = PeerStatistics()  # what the peer measured about itself
    slices: dict[str, PeerStatistics] | UnsetType = UNSET  # slice that a limit is on -> its last second
    gauges: dict[str, float] | UnsetType = UNSET  # of inspectors: gauge -> its highest reading, in the last look

    @property
    def by_slice(self) -> dict[str, PeerStatistics]:
        return {} if isinstance(self.slices, UnsetType) else self.slices

    @property
    def by_gauge(self) -> dict[str, float]:
        return {} if isinstance(self.gauges, UnsetType) else self.gauges


class Failure(NotePayload, frozen=True):
    """Refusals and last wills: what went wrong, and whose fault it is."""

    reason: str
    fault: Fault

    def __post_init__(self) -> None:
        if len(self.reason) > MAX_REASON_CHARS:
            msgspec.structs.force_setattr(self, "reason", f"{self.reason[:MAX_REASON_CHARS]} …")


class FailureReport(NotePayload, frozen=True):
    """NOTIFY_FAIL: the failure, and the progress up to it."""

    failure: Failure
    statistics: Statistics


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_WireNote)
_payload_decoder = msgspec.msgpack.Decoder(dict[str, Any])


def encode_note(note: Note, counter: int = 0) -> bytes:
    """The body of a note, which its authentication code follows on the wire."""
    payload = msgspec.Raw(_encoder.encode(note.payload))
    content = _encoder.encode(
        _WireNote(PROTOCOL_VERSION, note.kind, note.command, note.correlation, counter, note.to, note.sender, payload)
    )
    if len(content) > MAX_NOTE_BYTES:
        raise ConfigError(
            f"{note.command.name} for {note.sender.id} needs {len(content)} bytes, but a note has at most "
            f"{MAX_NOTE_BYTES}; spread the connections over more peers"
        )
    return content


def decode_note(content: bytes) -> tuple[Note, int]:
    """A note and its counter. NotUnderstoodError if only its frame can be read, else PeerError."""
    if len(content) > MAX_NOTE_BYTES:
        raise PeerError(f"a note of {len(content)} bytes; at most {MAX_NOTE_BYTES} are allowed")
    try:
        wire = _decoder.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as err:
        raise PeerError(f"not a note: {err}") from err
    if wire.version != PROTOCOL_VERSION:
        reason = f"version {wire.version} is not spoken here, but {PROTOCOL_VERSION}"
        raise NotUnderstoodError(reason, wire, wire.counter)
    try:
        kind, command = NoteKind(wire.kind), Command(wire.command)
    except ValueError as err:
        raise NotUnderstoodError(f"there is no such note: {err}", wire, wire.counter) from err
    try:
        payload = decode_payload(wire.payload)
    except PeerError as err:
        raise NotUnderstoodError(str(err), wire, wire.counter) from err
    return Note(kind, command, wire.correlation, wire.sender, payload, wire.to), wire.counter


def decode_payload(content: bytes | msgspec.Raw) -> dict[str, Any]:
    try:
        return _payload_decoder.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as err:
        raise PeerError(f"not a payload: {err}") from err
