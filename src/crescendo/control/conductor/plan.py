"""What does a run consist of, before it starts?

Frozen values; times are nanoseconds. They decide nothing.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["sender", "receiver", "inspector", "agent"]

SECOND_NS = 1_000_000_000
PREPARE_NS = 20 * SECOND_NS
"""How long peers may take to connect."""

STOP_NS = 8 * SECOND_NS
"""How long peers may take to close their recordings, also on a slow disk or beside other work."""


@dataclass(frozen=True, slots=True)
class PeerPlan:
    """One expected peer, and the assignment that SET will give it."""

    id: str
    role: Role
    assignment: dict[str, Any]


@dataclass(frozen=True, slots=True)
class RunPlan:
    """One run, before it starts."""

    peers: tuple[PeerPlan, ...]
    warmup_ns: int
    measure_ns: int | None  # None: a message count, so the length is unknown
    drain_ns: int
    fan_out: dict[str, int]  # address -> how many subscriptions owe each message
    stop_when: dict[str, int] = field(default_factory=dict)  # metric of a receiver's second -> its limit in ns
    fixed_rate: str = ""  # why the rate cannot be changed during the run; empty if it can
    outlives_system: bool = False  # connections go elsewhere when the system that the run started has ended
    drain_limit_ns: int = 0  # while messages arrive, the drain goes on up to this
    lease_ns: int = 6 * SECOND_NS
    gather_ns: int = 20 * SECOND_NS
    prepare_ns: int = PREPARE_NS
    start_delay_ns: int = 300_000_000
    stop_ns: int = STOP_NS
    grace_ns: int = 300_000_000
    rate_lead_ns: int = SECOND_NS  # how far ahead a change of rate is agreed
