"""Which events can reach the conductor?

Frozen values; times are nanoseconds on the conductor's monotonic clock. They decide nothing.
"""

from dataclasses import dataclass

from crescendo.control import notes
from crescendo.control.notes import Failure, Hello, Identity, Statistics


@dataclass(frozen=True, slots=True)
class PeerJoined:
    """A peer has joined."""

    peer: str
    identity: Identity
    hello: Hello
    now_ns: int


@dataclass(frozen=True, slots=True)
class PeerAnswered:
    """A peer has answered a request."""

    peer: str
    correlation: int
    command: notes.Command
    ok: bool
    failure: Failure | None
    statistics: Statistics | None
    now_ns: int


@dataclass(frozen=True, slots=True)
class PeerReported:
    """Statistics, which are also the heartbeat."""

    peer: str
    statistics: Statistics
    now_ns: int


@dataclass(frozen=True, slots=True)
class PeerFinished:
    """A peer has done its part."""

    peer: str
    statistics: Statistics
    now_ns: int


@dataclass(frozen=True, slots=True)
class PeerFailed:
    """A peer reports that it cannot do its part."""

    peer: str
    failure: Failure
    statistics: Statistics | None
    now_ns: int


@dataclass(frozen=True, slots=True)
class PeerLost:
    """A last will arrived, or the peer's process exited."""

    peer: str
    reason: str
    now_ns: int


@dataclass(frozen=True, slots=True)
class SystemBroken:
    """A fault of the run keeps the system from serving, and will be undone. Said again while that lasts."""

    now_ns: int


@dataclass(frozen=True, slots=True)
class SystemEnded:
    """A process of the system that this run started has ended; how, and what it logged last."""

    how: str
    log_lines: str
    now_ns: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed. A few ticks per second enforce every deadline."""

    now_ns: int


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The user asked the run to stop."""

    now_ns: int


@dataclass(frozen=True, slots=True)
class RateRequested:
    """Somebody who holds the key of the run asks for another rate: messages per second of each connection."""

    rate: float
    requester: Identity
    correlation: int
    now_ns: int


@dataclass(frozen=True, slots=True)
class ControlLost:
    """The conductor lost its connection to the control broker: it can neither ask nor hear any peer."""

    reason: str
    now_ns: int


Event = (
    PeerJoined
    | PeerAnswered
    | PeerReported
    | PeerFinished
    | PeerFailed
    | PeerLost
    | SystemBroken
    | SystemEnded
    | Tick
    | Interrupted
    | RateRequested
    | ControlLost
)
