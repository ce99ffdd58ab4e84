"""What does every inspector have in common?

It looks at one system once, when it is told to, and says what it saw. When to look, what became of a look that failed,
and where the readings go is the worker's business and the same for all.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

TIMEOUT_S = 3.0
"""How long a system may take to answer. Then the look has failed: a PeerError."""

MAX_ANSWER_BYTES = 16 * 2**20
"""Nothing a system says about itself is larger than this."""


class Reading(NamedTuple):
    """One number. The entity says of what ("queue/perf", "heap", "allocator/qd_buffer_t"), the metric which one."""

    entity: str
    metric: str
    value: float


@dataclass(frozen=True)
class Inspection:
    """What one look showed. Attributes that are no numbers are kept as texts, unknown ones like known ones."""

    readings: list[Reading] = field(default_factory=list)
    texts: dict[tuple[str, str], str] = field(default_factory=dict)  # (entity, attribute) -> text


@dataclass(frozen=True)
class InspectionTarget:
    """Where to look. A kind uses what it needs and refuses, with a ConfigError, what it cannot do without."""

    endpoints: Mapping[str, str]  # endpoint name -> URL with credentials, as systems name them
    pid: int | None = None


class Inspector(Protocol):
    """Looks at one system. Connects when it must, so that the look after a failed one begins afresh."""

    def inspect(self) -> Inspection:
        """One look. PeerError: the system did not answer, or not with what it should; the next look may succeed."""
        ...

    def close(self) -> None:
        """Let go of connections; safe to call twice."""
        ...
