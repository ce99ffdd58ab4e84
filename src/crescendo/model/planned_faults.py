"""What shall break in a run, and when?

One fault of an experiment file: what is done to which node, when, for how long, how often. Times count from the start
of the run or of a phase; `fault_schedule.py` turns them into times. Which actions and nodes exist is not known here.
"""

import re
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from crescendo.model.redaction import redact_value
from crescendo.model.suggestions import choice
from crescendo.model.units import DURATION_PATTERN, Duration

SYSTEM = "system"
"""The name of the one system that a run starts."""

PHASES = ("warmup", "measure", "drain")
MAX_TIMES = 1000
MOMENT_PATTERN = rf"^(?:{DURATION_PATTERN}|(?:{'|'.join(PHASES)})(?:\s*\+{DURATION_PATTERN})?)$"
MOMENT_HINT = "a time such as 30s (since the start of the run), 'measure + 10s' or 'drain + 1s'"
_RELATIVE = re.compile(r"\s*([A-Za-z]+)\s*(?:\+(.*))?")


class FaultMoment(str):
    """When a fault begins, as written: a time since the start of the run, or since the start of a phase."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: object) -> "FaultMoment":
        relative = _RELATIVE.fullmatch(text) if isinstance(text, str) else None
        if relative is not None and relative[1] not in PHASES:
            raise ValueError(f"{text!r} is not {MOMENT_HINT}; for the phase, {choice(relative[1], PHASES)}")
        try:
            offset = Duration.parse((relative[2] or 0) if relative is not None else text)
        except ValueError:
            raise ValueError(f"{text!r} is not {MOMENT_HINT}") from None
        return cls(offset) if relative is None else cls(f"{relative[1]} + {offset}")

    @property
    def phase(self) -> str | None:
        """The phase that it counts from; None for the start of the run."""
        phase, plus, _ = self.partition(" + ")
        return phase if plus else None

    @property
    def offset(self) -> Duration:
        """How long after the start of the phase, or of the run."""
        return Duration.parse(self.rpartition(" + ")[2])

    def plain(self) -> str:
        return str(self)


class PlannedFault(Struct, frozen=True, forbid_unknown_fields=True):
    """One thing that is done to a node while the run measures, and undone."""

    at: FaultMoment
    do: Annotated[str, Meta(min_length=1, max_length=100)]
    on: Annotated[str, Meta(min_length=1, max_length=200)] = SYSTEM
    lasts: Duration | None = field(default=None, name="for")  # None: at once, or until the run ends
    every: Duration | None = None
    times: Annotated[int, Meta(ge=1, le=MAX_TIMES)] = 1
    within: Duration | None = None  # a random time of this interval, drawn from the seed
    settings: dict[str, Any] = field(default_factory=dict, name="with")

    def __post_init__(self) -> None:
        if (self.every is None) != (self.times == 1):
            raise ValueError("every and times go together: every: 30s, times: 3")
        if self.lasts is not None and self.lasts <= 0:
            raise ValueError("for must be longer than 0; leave it out for a fault that has no length")
        if self.every is not None and self.every <= (self.lasts or 0) + (self.within or 0):
            raise ValueError("every must be longer than for and within together, or the fault would overlap itself")

    def redacted(self) -> "PlannedFault":
        """The same fault without secrets."""
        return PlannedFault(
            self.at, self.do, self.on, self.lasts, self.every, self.times, self.within, redact_value(self.settings)
        )
