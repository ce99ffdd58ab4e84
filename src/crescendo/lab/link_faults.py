"""What can be done to the link of a host while a run measures?

Cut it, impair it, or move its station to another access point. None leaves a cure to a guardian: a link is gone with
the hosts of its run, whichever process was killed. Keeps no time: the executor of faults does, also for the delay of a
handoff, which may be drawn.
"""

from typing import Annotated

from msgspec import Meta, Struct, structs

from crescendo.faults.action import Cure, FaultAction, Length
from crescendo.lab.station import LinkDirection, Station
from crescendo.model.lab_network import CLEAN, Impairment, LabLink
from crescendo.model.units import Duration, LineRate

HOST = "host"
"""The kind of target: a host of the lab."""

MAX_ASSOCIATION_NS = 60 * 10**9


class ImpairSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """What the link does meanwhile. What is left out is as before."""

    up: Impairment | None = None
    down: Impairment | None = None
    rate: LineRate | None = None  # in each direction that has none of its own
    rate_up: LineRate | None = None
    rate_down: LineRate | None = None

    def __post_init__(self) -> None:
        if all(value is None for value in structs.astuple(self)):
            raise ValueError("name at least one of up, down, rate, rate_up and rate_down")
        self.limited(LabLink())

    def limited(self, link: LabLink) -> LabLink:
        """The link with these rates."""
        if self.rate is not None:
            link = structs.replace(link, rate=self.rate, rate_up=None, rate_down=None)
        return structs.replace(link, rate_up=self.rate_up or link.rate_up, rate_down=self.rate_down or link.rate_down)


class CutSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Which direction is cut: `up` is from the host."""

    direction: LinkDirection = "both"


class HandoffSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """To which access point, and how long the station has no link."""

    to: str | Annotated[list[str], Meta(min_length=1)]  # a list: one after the other, as the fault is repeated
    delay: Duration = Duration(10**9)  # of the association
    spread: Duration = Duration(0)  # up to this much longer, evenly distributed
    silent: bool = False  # in another network, connections are not ended: they hang until a timeout notices

    def __post_init__(self) -> None:
        if self.delay + self.spread > MAX_ASSOCIATION_NS:
            raise ValueError("delay and spread together are at most 60s")

    @property
    def walk(self) -> list[str]:
        return [self.to] if isinstance(self.to, str) else self.to


class CutLink(FaultAction[Station, CutSettings]):
    """Nothing passes; connections stay open."""

    name = "cut"
    summary = "nothing passes the host's link, or one `direction` of it, until `for` is over; connections stay open"
    settings = CutSettings
    acts_on = HOST
    length = Length.OPTIONAL

    def apply(self, target: Station, settings: CutSettings, cure: Cure | None) -> str:
        target.cut(settings.direction)
        return "" if settings.direction == "both" else f"{settings.direction} only"

    def end(self, target: Station, settings: CutSettings, cure: Cure | None, *, final: bool) -> None:
        target.restore(settings.direction)


class ImpairLinkFault(FaultAction[Station, ImpairSettings]):
    """Delay, loss and so on, or another bandwidth."""

    name = "impair"
    summary = "the host's link delays, loses, doubles, reorders or damages packets, or has other rates"
    settings = ImpairSettings
    acts_on = HOST
    length = Length.OPTIONAL

    def apply(self, target: Station, settings: ImpairSettings, cure: Cure | None) -> str:
        link, means = target.link, []
        if settings.up is not None or settings.down is not None:
            target.host.impair(settings.up or link.up or CLEAN, settings.down or link.down or CLEAN)
            means.append(target.host.link_means.partition(":")[0])
        limited = settings.limited(link)
        if limited != link:
            target.host.limit(*limited.rates_bps)
            means.append("token bucket (tbf)")
        return ", ".join(means)

    def end(self, target: Station, settings: ImpairSettings, cure: Cure | None, *, final: bool) -> None:
        target.reset()


class Handoff(FaultAction[Station, HandoffSettings]):
    """A station leaves its access point and joins another after a while."""

    name = "handoff"
    summary = "the station leaves its access point, has no link for `delay` (and up to `spread` more), and joins `to`"
    settings = HandoffSettings
    acts_on = HOST

    def apply(self, target: Station, settings: HandoffSettings, cure: Cure | None) -> str:
        target.host.leave()
        return ""

    def own_length_s(self, target: Station, settings: HandoffSettings) -> float:
        return (settings.delay + settings.spread * target.draw()) / 1e9

    def end(self, target: Station, settings: HandoffSettings, cure: Cure | None, *, final: bool) -> None:
        target.host.join(settings.walk[target.handoffs % len(settings.walk)], silent=settings.silent)
        target.handoffs += 1


CUT, IMPAIR, HANDOFF = CutLink(), ImpairLinkFault(), Handoff()
