"""What do all inspectors have in common?

An inspector inspects one system once, on request, and returns what it found. When to inspect, how to handle a failed
inspection, and where the readings go is up to the worker and the same for all.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

TIMEOUT_S = 3.0
"""How long a system may take to answer. After that the inspection has failed with a PeerError."""

MAX_ANSWER_BYTES = 16 * 2**20
"""No answer of a system about itself is larger than this."""


class Reading(NamedTuple):
    """One number: a metric of an entity ("queue/perf", "heap", "allocator/qd_buffer_t")."""

    entity: str
    metric: str
    value: float


@dataclass(frozen=True)
class Inspection:
    """The result of one inspection. Attributes that are not numbers are kept as texts, unknown ones like known ones."""

    readings: list[Reading] = field(default_factory=list)
    texts: dict[tuple[str, str], str] = field(default_factory=dict)  # (entity, attribute) -> text


@dataclass(frozen=True)
class InspectionTarget:
    """What to inspect. A kind uses what it needs and raises a ConfigError when that is missing."""

    endpoints: Mapping[str, str]  # endpoint name -> URL with credentials, as systems name them
    pid: int | None = None


class Inspector(Protocol):
    """Inspects one system. Connects on demand, so that it reconnects after a failed inspection."""

    def inspect(self) -> Inspection:
        """Inspect once. PeerError: no answer, or not the expected one; the next inspection may succeed."""
        ...

    def close(self) -> None:
        """Close connections; safe to call twice."""
        ...
