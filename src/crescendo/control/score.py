"""What is to be played, what can happen, and what can be decided?

The values the conductor works on: the plan of a run, the events that reach it, the commands it gives, and the outcome
it ends with. Frozen and plain; they decide nothing, and times are nanoseconds on the conductor's monotonic clock.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from crescendo.control import notes
from crescendo.control.notes import Failure, Fault, Hello, Identity, Statistics

Role = Literal["sender", "receiver", "inspector"]
Ended = Literal["finished", "stopped", "failed", "lost"]
"""Finished: did all that was asked. Stopped: we ended it early. Failed: said so itself. Lost: nobody knows."""
EndState = Literal["sealed", "interrupted", "incomplete", "refused"]

SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class PeerPlan:
    """One expected peer, and what SET will tell it."""

    id: str
    role: Role
    assignment: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Plan:
    """One run, before anything has happened."""

    peers: tuple[PeerPlan, ...]
    warmup_ns: int
    measure_ns: int | None  # None: a count, so nobody knows how long it will take
    drain_ns: int
    fan_out: dict[str, int]  # address -> how many subscriptions owe each message
    stop_when: dict[str, int] = field(default_factory=dict)  # what a receiver may see in a second, and its limit in ns
    lease_ns: int = 6 * SECOND_NS
    gather_ns: int = 20 * SECOND_NS
    prepare_ns: int = 20 * SECOND_NS
    start_delay_ns: int = 300_000_000
    stop_ns: int = 3 * SECOND_NS
    grace_ns: int = 300_000_000


@dataclass(frozen=True, slots=True)
class Exceeded:
    """A limit at which the whole run ends, and who saw it passed."""

    metric: str
    value_ns: int
    limit_ns: int
    peer: str


@dataclass(frozen=True, slots=True)
class Joined:
    """A peer has announced itself."""

    peer: str
    identity: Identity
    hello: Hello
    now_ns: int


@dataclass(frozen=True, slots=True)
class Answered:
    """A peer has answered a request."""

    peer: str
    correlation: int
    command: notes.Command
    ok: bool
    failure: Failure | None
    statistics: Statistics | None
    now_ns: int


@dataclass(frozen=True, slots=True)
class Reported:
    """Statistics, which are also the heartbeat."""

    peer: str
    statistics: Statistics
    now_ns: int


@dataclass(frozen=True, slots=True)
class Finished:
    """A peer has done its part."""

    peer: str
    statistics: Statistics
    now_ns: int


@dataclass(frozen=True, slots=True)
class Failed:
    """A peer cannot do its part, and says so."""

    peer: str
    failure: Failure
    statistics: Statistics | None
    now_ns: int


@dataclass(frozen=True, slots=True)
class Lost:
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


Event = Joined | Answered | Reported | Finished | Failed | Lost | Tick | Interrupted


@dataclass(frozen=True, slots=True)
class Request:
    """Send this request to this peer."""

    peer: str
    command: notes.Command
    correlation: int
    payload: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Mark:
    """Write this into the events of the recording."""

    t_ns: int
    kind: str
    detail: dict[str, Any]


@dataclass(frozen=True, slots=True)
class PeerOutcome:
    """What became of one peer."""

    id: str
    role: Role
    identity: Identity | None
    hello: Hello | None
    ended: Ended
    reason: str
    statistics: Statistics | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the run ended. Before the barrier there is no t0 and there are no phases: nothing was measured."""

    state: EndState
    reason: str
    stage: Literal["before barrier", "after barrier"]
    fault: Fault | None
    t0_ns: int | None
    phases: tuple[tuple[str, int, int], ...] = ()
    peers: tuple[PeerOutcome, ...] = field(default=())
    exceeded: Exceeded | None = None


@dataclass(frozen=True, slots=True)
class Conclude:
    """The run is over; always the last command."""

    outcome: Outcome


Command = Request | Mark | Conclude
