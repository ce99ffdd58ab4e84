"""What do requests and their answers contain, beside the assignment and the statistics?

One frozen value per payload. Times are microseconds where Maestro has them, else nanoseconds.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from crescendo.control.notes import Nanoseconds, NotePayload
from crescendo.model.pacer import MAX_RATE, MIN_RATE

LogLevel = Literal["error", "warning", "info", "debug"]
RUN_PATTERN = r"^[0-9a-f]{16}\Z"  # not $, which allows a line break after it

_Count = Annotated[int, Meta(ge=1, le=100_000)]
_Rate = Annotated[float, Meta(ge=MIN_RATE, le=MAX_RATE)]
_Text = Annotated[str, Meta(max_length=4096)]
_FileContent = Annotated[bytes, Meta(max_length=256 * 1024)]

OPTION_NUMBERS = {
    "broker": 0,
    "duration": 1,
    "log_level": 2,
    "parallel_count": 3,
    "message_size": 4,
    "throttle": 5,
    "rate": 6,
    "fcl": 7,
    "management_interface": 8,
}
"""The options of SET by Maestro's numbers."""


class Ping(NotePayload, frozen=True):
    """PING: the requester's wall clock."""

    sec: Annotated[int, Meta(ge=0, le=2**40)]
    usec: Annotated[int, Meta(ge=0, lt=1_000_000)]


class PeerOffer(NotePayload, frozen=True):
    """What a standing peer says about itself and its host, so that a run can choose it and reach it."""

    version: str
    clock: Annotated[str, Meta(max_length=255)]  # equal for peers that share a monotonic clock
    realtime_offset_ns: Nanoseconds
    address: Annotated[str, Meta(max_length=255)]  # where it answers
    clock_port: Annotated[int, Meta(ge=0, le=65_535)]  # UDP
    files_port: Annotated[int, Meta(ge=0, le=65_535)] = 0  # HTTPS, or HTTP on a loopback address
    authority: Annotated[str, Meta(max_length=8192)] = ""  # the certificate authority to trust there, as PEM
    cores: int = 0
    labels: Annotated[list[Annotated[str, Meta(max_length=100)]], Meta(max_length=32)] = field(default_factory=list)
    protocols: Annotated[list[Annotated[str, Meta(max_length=100)]], Meta(max_length=64)] = field(default_factory=list)


FREE, BUSY = "free", "busy"
"""The states of a standing peer."""


class Pong(NotePayload, frozen=True):
    """The answer to PING: how long ago that was on the peer's wall clock, and its clocks when it answered."""

    sec: int
    usec: int
    elapsed_us: int
    monotonic_ns: Nanoseconds
    realtime_ns: Nanoseconds
    state: str
    run: str = ""  # of a standing peer: the run that it takes part in
    offer: PeerOffer | None = None  # of a standing peer


class SetOptions(NotePayload, frozen=True, forbid_unknown_fields=True):
    """SET without an assignment: Maestro's options. Each may also be given by its number."""

    broker: _Text | None = None  # the URL to send to and receive from
    duration: Annotated[float, Meta(gt=0, le=1e9)] | None = None  # seconds
    log_level: LogLevel | None = None  # which lines it keeps for LOG
    parallel_count: _Count | None = None  # connections
    message_size: Annotated[int, Meta(ge=1, le=2**30)] | None = None  # bytes
    throttle: _Rate | None = None  # messages per second of the whole peer
    rate: _Rate | None = None  # messages per second of each connection
    fcl: Annotated[int, Meta(gt=0, le=10**12)] | None = None  # fail-condition latency, microseconds
    management_interface: _Text | None = None  # the URL that an inspector asks

    @property
    def given(self) -> dict[str, Any]:
        """What was set, by name."""
        return {name: value for name, value in self.to_payload().items() if value is not None}


class SetRequest(NotePayload, frozen=True):
    """SET: an assignment, or options, which apply from an instant on if the peer is running."""

    assignment: dict[str, Any] | None = None
    options: dict[str | int, Any] = field(default_factory=dict)
    from_ns: Nanoseconds | None = None  # monotonic clock
    files: dict[_Text, _FileContent] = field(default_factory=dict)  # what `ca`, `cert` and `key` of a URL name


class About(NotePayload, frozen=True):
    """The answer to GET: what a peer says about itself."""

    protocol: int
    version: str
    scope: str
    state: str
    options: dict[str, Any] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)  # why -> messages that the peer did not accept
    run: str = ""
    files: list[tuple[str, int]] = field(default_factory=list)  # of a standing peer: what a run left, and its size


class FileRequest(NotePayload, frozen=True):
    """GET to a standing peer: what did a run leave, or a piece of one of those files."""

    run: Annotated[str, Meta(pattern=RUN_PATTERN)]
    file: _Text = ""
    offset: Annotated[int, Meta(ge=0, le=2**62)] = 0


class FilePiece(NotePayload, frozen=True):
    """A piece of a file, and how long the whole file is."""

    content: bytes
    octets: int


class LogLines(NotePayload, frozen=True):
    """The answer to LOG: the peer's latest lines."""

    lines: list[str]


class GroupName(NotePayload, frozen=True):
    """GROUP_JOIN and GROUP_LEAVE as requests."""

    group: Annotated[str, Meta(min_length=1, max_length=200)]


class RoleAssignment(NotePayload, frozen=True):
    """ROLE_ASSIGN and ROLE_UNASSIGN: take part in this run under this id."""

    run: Annotated[str, Meta(pattern=RUN_PATTERN)]
    id: Annotated[str, Meta(min_length=1, max_length=200)] = ""


class StartByHand(NotePayload, frozen=True):
    """START_SENDER, START_RECEIVER, START_INSPECTOR or START_AGENT to a standing peer: a test as the options say."""

    run: Annotated[str, Meta(pattern=RUN_PATTERN)]  # the same for all peers of one test
    kind: Annotated[str, Meta(max_length=64)] = ""  # of an inspector: the kind of system that it inspects


def options_from(given: dict[str | int, Any]) -> SetOptions:
    """Options by name or by number."""
    names = {number: name for name, number in OPTION_NUMBERS.items()}
    return SetOptions.from_payload(
        {names.get(key, str(key)) if isinstance(key, int) else key: value for key, value in given.items()}
    )
