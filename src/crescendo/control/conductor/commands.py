"""Which commands can the conductor give, and how can a run end?

Frozen values; times are nanoseconds on the conductor's monotonic clock. They decide nothing; run/ executes them.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from crescendo.control import notes
from crescendo.control.conductor.plan import Role
from crescendo.control.notes import Fault, Hello, Identity, Statistics

Ended = Literal["finished", "stopped", "failed", "lost"]
"""Finished: did its whole part. Stopped: ended early by the conductor. Failed: reported a failure. Lost: unknown."""

EndState = Literal["sealed", "interrupted", "incomplete", "refused"]


@dataclass(frozen=True, slots=True)
class LimitExceeded:
    """A limit that stops the whole run, and the peer that measured it."""

    metric: str
    value_ns: int
    limit_ns: int
    peer: str


@dataclass(frozen=True, slots=True)
class SendRequest:
    """Send this request to this peer."""

    peer: str
    command: notes.Command
    correlation: int
    payload: dict[str, Any]


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    """Answer a request that was made to the conductor; a reason says why it cannot be carried out."""

    requester: Identity
    correlation: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RateChange:
    """From this time after the start on, each connection sends this many messages per second."""

    offset_ns: int
    rate: float


@dataclass(frozen=True, slots=True)
class RecordEvent:
    """Write this to the events of the recording."""

    t_ns: int
    kind: str
    detail: dict[str, Any]


@dataclass(frozen=True, slots=True)
class PeerEnding:
    """How one peer ended."""

    id: str
    role: Role
    identity: Identity | None
    hello: Hello | None
    ended: Ended
    reason: str
    statistics: Statistics | None


@dataclass(frozen=True, slots=True)
class RunEnding:
    """How the run ended. Before the barrier there are no t0 and no phases: nothing was measured."""

    state: EndState
    reason: str
    stage: Literal["before barrier", "after barrier"]
    fault: Fault | None
    t0_ns: int | None
    phases: tuple[tuple[str, int, int], ...] = ()
    peers: tuple[PeerEnding, ...] = field(default=())
    exceeded: LimitExceeded | None = None
    rate_changes: tuple[RateChange, ...] = ()


@dataclass(frozen=True, slots=True)
class Conclude:
    """The run is over; always the last command."""

    ending: RunEnding


Command = SendRequest | AnswerRequest | RecordEvent | Conclude
