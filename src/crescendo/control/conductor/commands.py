"""What can the conductor decide, and how does a run end?

Frozen values, in nanoseconds on the conductor's monotonic clock. run/ carries the commands out."""

from dataclasses import dataclass, field
from typing import Any, Literal

from crescendo.control import notes
from crescendo.control.conductor.plan import Role
from crescendo.control.notes import Fault, Hello, Identity, Statistics

Ended = Literal["finished", "stopped", "failed", "lost"]
"""Finished: did all that was asked. Stopped: we ended it early. Failed: said so itself. Lost: nobody knows."""


EndState = Literal["sealed", "interrupted", "incomplete", "refused"]


@dataclass(frozen=True, slots=True)
class LimitExceeded:
    """A limit at which the whole run ends, and who saw it passed."""

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
class RecordEvent:
    """Write this into the events of the recording."""

    t_ns: int
    kind: str
    detail: dict[str, Any]


@dataclass(frozen=True, slots=True)
class PeerEnding:
    """What became of one peer."""

    id: str
    role: Role
    identity: Identity | None
    hello: Hello | None
    ended: Ended
    reason: str
    statistics: Statistics | None


@dataclass(frozen=True, slots=True)
class RunEnding:
    """How the run ended. Before the barrier there is no t0 and there are no phases: nothing was measured."""

    state: EndState
    reason: str
    stage: Literal["before barrier", "after barrier"]
    fault: Fault | None
    t0_ns: int | None
    phases: tuple[tuple[str, int, int], ...] = ()
    peers: tuple[PeerEnding, ...] = field(default=())
    exceeded: LimitExceeded | None = None


@dataclass(frozen=True, slots=True)
class Conclude:
    """The run is over; always the last command."""

    outcome: RunEnding


Command = SendRequest | RecordEvent | Conclude
