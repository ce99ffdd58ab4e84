"""What is one load peer asked to do?

In a SET note: everything a sender or receiver process needs, as one value that is validated on arrival. It is the same
on one machine and on twenty, and names no directory: a peer writes to its own, and reads what it was given.
"""

from typing import Any

from msgspec import Struct, field

from crescendo.control.notes import NotePayload
from crescendo.model.experiment import Experiment
from crescendo.model.experiment_file import to_document
from crescendo.model.experiment_parts import Phases
from crescendo.model.pacer import UNLIMITED, Pacer, messages_within
from crescendo.model.trace import TracePacer


class ConnectionSlot(Struct, frozen=True):
    """One connection that this peer opens, and the group it belongs to."""

    id: int
    group: str
    index: int = 0  # which sender or receiver of its group


class SliceMembers(Struct, frozen=True):
    """Whose messages belong to a slice: those of its senders, or if it has none, those that its receivers receive."""

    senders: list[int] = field(default_factory=list)
    receivers: list[int] = field(default_factory=list)


class LoadAssignment(NotePayload, frozen=True):
    """A peer's share of a run."""

    tag: int
    urls: dict[str, str]  # protocol -> URL of the system's endpoint
    experiment: dict[str, Any]
    places: list[ConnectionSlot]
    answered: dict[str, list[int]] = field(
        default_factory=dict
    )  # group -> the numbers of its senders, where receivers echo messages
    look_at: list[str] = field(default_factory=list)  # groups whose destinations may hold messages before the run
    limited: dict[str, SliceMembers] = field(default_factory=dict)  # slices that a limit of `stop_when` is on
    durable: bool = True  # whether the recording is synced to disk
    inputs: dict[str, bytes] = field(default_factory=dict)
    """The files that the experiment names, for a peer that was not given them when it was started."""


def load_assignment(
    tag: int,
    urls: dict[str, str],
    experiment: Experiment,
    places: list[ConnectionSlot],
    answered: dict[str, list[int]],
    look_at: list[str],
    limited: dict[str, SliceMembers] | None = None,
) -> LoadAssignment:
    return LoadAssignment(tag, urls, to_document(experiment), places, answered, look_at, limited or {})


class Quota(Struct, frozen=True):
    """How much one sending connection sends: by count, by time, or by count once the warm-up is over."""

    total: int
    until_ns: int  # offset from the start at which an unbounded sender stops
    count_after_warmup: int | None = None
    warmup_ns: int = 0


def quota_of(pacer: Pacer, phases: Phases) -> Quota:
    """The messages of one connection: those intended within warm-up and measure, or a count after the warm-up."""
    count, duration = phases.measure.messages, phases.measure.duration
    if count is not None:
        if pacer.bounded:
            limit = pacer.messages if isinstance(pacer, TracePacer) else UNLIMITED  # a trace is finite
            return Quota(min(messages_within(pacer, phases.warmup) + count, limit), UNLIMITED)
        return Quota(UNLIMITED, UNLIMITED, count, phases.warmup)
    end_ns = phases.warmup + (duration or 0)
    return Quota(messages_within(pacer, end_ns) if pacer.bounded else UNLIMITED, end_ns)
