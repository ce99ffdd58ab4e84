"""Of which values does an experiment consist, besides its load?

The system, what is inspected, the phases, and the processes that share the load. Each value is checked by itself; what
they must agree on is in `experiment_rules.py`.
"""

from typing import Annotated, Any

from msgspec import Meta, Struct, field

from crescendo.model.system_url import check_system_url
from crescendo.model.units import Duration, Extent

PROCESS = "process"
MIN_EVERY_NS = 100_000_000
_DRAIN_FACTOR = 4


class System(Struct, frozen=True, forbid_unknown_fields=True):
    """The system under test: a kind that Crescendo starts, or the URL of one that is already running."""

    kind: str | None = None
    url: str | None = None
    version: str | None = None  # None: the installed one
    home: str | None = None  # directory of an installation that Crescendo did not make
    settings: dict[str, Any] = field(default_factory=dict)
    fresh: bool = False  # a fresh installation for this run

    def __post_init__(self) -> None:
        if self.fresh and self.home is not None:
            raise ValueError("fresh: a run does not install what home names; leave one of them out")
        if (self.kind is None) == (self.url is None):
            raise ValueError("give either kind (a system to start) or url (one that is already running)")
        if self.url is not None:
            check_system_url(self.url)
            given = [key for key in ("version", "home", "settings", "fresh") if getattr(self, key)]
            if given:
                raise ValueError(f"{given[0]} has no effect with url; it is for a system that Crescendo starts")


class Inspect(Struct, frozen=True, forbid_unknown_fields=True):
    """An inspector: its kind, its period, and its target unless that is the experiment's own system."""

    kind: str
    every: Duration | None = None
    url: str | None = None
    pid: Annotated[int, Meta(ge=1)] | None = None
    on: Annotated[str, Meta(min_length=1, max_length=200)] | None = None  # a standing inspector, by host, name or label

    def __post_init__(self) -> None:
        if self.every is not None and self.every < MIN_EVERY_NS:
            raise ValueError(f"every must be at least {Duration(MIN_EVERY_NS)}; polling more often would add load")
        if self.pid is not None and self.kind != PROCESS:
            raise ValueError(f"pid needs kind: {PROCESS}; kind: {self.kind} needs a url")
        if self.url is not None and self.kind == PROCESS:
            raise ValueError("a process inspector needs a pid on this machine, not a url")
        if self.on is not None and not self.has_target:
            raise ValueError(f"on: {self.on}: an inspector elsewhere needs its target: a url, or a pid of that host")

    @property
    def has_target(self) -> bool:
        """Whether it says itself what to inspect."""
        return self.url is not None or self.pid is not None

    @property
    def period_ns(self) -> int:
        return int(self.every or 0) or (10**9 if self.kind == PROCESS else 5 * 10**9)


class Phases(Struct, frozen=True, forbid_unknown_fields=True):
    """Warm-up is not judged; measure is; drain limits how long the last messages may take to arrive."""

    warmup: Duration = Duration(2 * 10**9)
    measure: Extent = Extent("10s")
    drain: Duration = Duration(10 * 10**9)
    drain_limit: Duration | None = None  # None: four times the drain

    def __post_init__(self) -> None:
        if self.measure.duration is not None and self.measure.duration <= 0:
            raise ValueError("measure must be longer than 0; write a duration such as 30s, or a count")
        if self.drain_limit is not None and self.drain_limit < self.drain:
            raise ValueError(f"drain_limit must be at least as long as drain, which is {self.drain}")

    @property
    def drain_limit_ns(self) -> int:
        """How long the drain may last while messages arrive."""
        return int(_DRAIN_FACTOR * self.drain if self.drain_limit is None else self.drain_limit)


_ProcessCount = Annotated[int, Meta(ge=1, le=1000)]


class PeerPlace(Struct, frozen=True, forbid_unknown_fields=True):
    """Some standing peers of one host, or with one name or label."""

    on: Annotated[str, Meta(min_length=1, max_length=100)]
    count: _ProcessCount = 1


class Peers(Struct, frozen=True, forbid_unknown_fields=True):
    """How many processes share the connections of each role, or how many where."""

    senders: _ProcessCount | Annotated[list[PeerPlace], Meta(min_length=1, max_length=1000)] = 1
    receivers: _ProcessCount | Annotated[list[PeerPlace], Meta(min_length=1, max_length=1000)] = 1
    clients: _ProcessCount = 1

    def places(self, role: str) -> list[str]:
        """Where each process of senders or receivers runs; empty for anywhere."""
        wanted = self.senders if role == "sender" else self.receivers
        return [""] * wanted if isinstance(wanted, int) else [place.on for place in wanted for _ in range(place.count)]

    def count(self, role: str) -> int:
        return len(self.places(role))
