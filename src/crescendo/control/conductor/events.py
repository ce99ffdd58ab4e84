"""What is to be played, what can happen, and what can be decided?

The values the conductor works on: the plan of a run, the events that reach it, the commands it gives, and the outcome
it ends with. Frozen and plain; they decide nothing, and times are nanoseconds on the conductor's monotonic clock.
"""

from dataclasses import dataclass

from crescendo.control import notes
from crescendo.control.notes import Failure, Hello, Identity, Statistics


@dataclass(frozen=True, slots=True)
class PeerJoined:
    """A peer has announced itself."""

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
    """A peer cannot do its part, and says so."""

    peer: str
    failure: Failure
    statistics: Statistics | None
    now_ns: int


@dataclass(frozen=True, slots=True)
class PeerLost:
    """A last will arrived, or somebody saw the process die."""

    peer: str
    reason: str
    now_ns: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed. A few of these every second keep every deadline."""

    now_ns: int


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A person wants the run to stop."""

    now_ns: int


Event = PeerJoined | PeerAnswered | PeerReported | PeerFinished | PeerFailed | PeerLost | Tick | Interrupted
