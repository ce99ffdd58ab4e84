"""Which hosts does a lab have, and how good are their links?

Frozen values, as a person writes them under `lab` in an experiment file: hosts, access points, and what a link does to
packets, in each direction of its own. Makes no host and impairs nothing.
"""

import re
from typing import Annotated

from msgspec import Meta, Struct, field

from crescendo.model.suggestions import choice
from crescendo.model.units import Duration, LineRate, Share

MAX_HOSTS = 100
MAX_SUBNETS = 16
MIN_RATE_BPS = 8_000
MIN_RETRY_NS, MAX_RETRY_NS = 10**6, 120 * 10**9
_HOST_NAME = re.compile(r"[a-z][a-z0-9-]{0,40}")


class Impairment(Struct, frozen=True, forbid_unknown_fields=True):
    """What happens to packets in one direction of a link. Shares are independent of each other."""

    delay: Duration = Duration(0)
    jitter: Duration = Duration(0)  # the delay differs by up to this much, in either direction; order is kept
    loss: Share = Share(0)
    duplicate: Share = Share(0)
    reorder: Share = Share(0)  # passes at once, before packets that wait
    corrupt: Share = Share(0)  # one bit is changed

    def __post_init__(self) -> None:
        if self.jitter > self.delay:
            raise ValueError(f"jitter must not be longer than delay, which is {self.delay}")
        if self.reorder and not self.delay:
            raise ValueError("reorder needs a delay: without one, no packet waits that another could overtake")


CLEAN = Impairment()


class LabLink(Struct, frozen=True, forbid_unknown_fields=True):
    """One host, and its link."""

    access_point: str | None = None  # the host is a station; None: connected by cable
    rate: LineRate | None = None  # in each direction that has none of its own
    rate_up: LineRate | None = None
    rate_down: LineRate | None = None
    up: Impairment | None = None  # from the host
    down: Impairment | None = None  # to the host
    rto_min: Duration | None = None  # of its TCP; None: the kernel's own, 200 ms
    arp_retry: Duration | None = None  # None: the kernel's own, 1 s

    def __post_init__(self) -> None:
        for key, rate in (("rate", self.rate), ("rate_up", self.rate_up), ("rate_down", self.rate_down)):
            if rate is not None and rate < MIN_RATE_BPS:
                raise ValueError(f"{key} must be at least {LineRate(MIN_RATE_BPS)}")
        for key, value in (("rto_min", self.rto_min), ("arp_retry", self.arp_retry)):
            if value is not None and not MIN_RETRY_NS <= value <= MAX_RETRY_NS:
                raise ValueError(f"{key} must be 1ms to 120s")

    @property
    def rates_bps(self) -> tuple[int, int]:
        """From the host and to it; 0: not limited."""
        both = self.rate or 0
        return int(self.rate_up or both), int(self.rate_down or both)

    @property
    def is_impaired(self) -> bool:
        return (self.up or CLEAN, self.down or CLEAN) != (CLEAN, CLEAN)


class AccessPoint(Struct, frozen=True, forbid_unknown_fields=True):
    """Where stations connect. Those of one network number are in one IP network."""

    network: Annotated[int, Meta(ge=0, le=MAX_SUBNETS - 1)] = 0


class LabSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Hosts on this machine, and on which of them the system runs. Peers are placed by name."""

    hosts: dict[str, LabLink]
    system: str
    access_points: dict[str, AccessPoint] = field(default_factory=dict)
    baseline: bool = True

    def __post_init__(self) -> None:
        for key, names in (("hosts", self.hosts), ("access_points", self.access_points)):
            if len(names) > MAX_HOSTS or not self.hosts:
                raise ValueError(f"{key}: a lab has 1 to {MAX_HOSTS} of them")
            if wrong := [name for name in names if _HOST_NAME.fullmatch(name) is None]:
                raise ValueError(f"{key}: {wrong[0]!r} is not a valid name; use lower-case letters, digits and hyphens")
        if self.system not in self.hosts:
            raise ValueError(f"system: {self.system!r} is not a host of the lab; {choice(self.system, self.hosts)}")
        for name, link in self.hosts.items():
            if link.access_point is not None and link.access_point not in self.access_points:
                known = list(self.access_points)
                wanted = choice(link.access_point, known) if known else "there are no access_points"
                raise ValueError(f"hosts.{name}.access_point: {link.access_point!r} is not an access point; {wanted}")
        if self.hosts[self.system].access_point is not None:
            raise ValueError(f"system: {self.system} is a station; its address could change, so give it a cable")
