"""What does a run consist of, before anything has happened?

Frozen values, in nanoseconds. They decide nothing."""

from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["sender", "receiver", "inspector"]


SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class PeerPlan:
    """One expected peer, and what SET will tell it."""

    id: str
    role: Role
    assignment: dict[str, Any]


@dataclass(frozen=True, slots=True)
class RunPlan:
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
