"""What can be done to the link of a host while a run measures?

Cut it, impair it, or move its station to another access point. None leaves a cure to a guardian: a link is gone with
the hosts of its run, whoever was killed. Times are kept by the executor of faults, except for the delay of a handoff,
which may be drawn.
"""

import threading
from typing import Annotated

from msgspec import Meta, Struct

from crescendo.faults.action import Cure, FaultAction, Length, NoSettings
from crescendo.lab.station import Station
from crescendo.model.lab_network import CLEAN, Impairment
from crescendo.model.units import Duration, LineRate

HOST = "host"
"""The kind of target: a host of the lab."""

MAX_ASSOCIATION_NS = 60 * 10**9


class ImpairSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """What the link does meanwhile. What is left out is as before."""

    up: Impairment | None = None
    down: Impairment | None = None
    rate: LineRate | None = None

    def __post_init__(self) -> None:
        if self == ImpairSettings():
            raise ValueError("name at least one of up, down and rate")


class HandoffSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """To which access point, and how long the station has no link."""

    to: str | Annotated[list[str], Meta(min_length=1)]  # a list: one after the other, as the fault is repeated
    delay: Duration = Duration(10**9)  # of the association
    spread: Duration = Duration(0)  # up to this much longer, evenly distributed

    def __post_init__(self) -> None:
        if self.delay + self.spread > MAX_ASSOCIATION_NS:
            raise ValueError("delay and spread together are at most 60s")

    @property
    def walk(self) -> list[str]:
        return [self.to] if isinstance(self.to, str) else self.to


class CutLink(FaultAction[Station, NoSettings]):
    """Nothing passes; connections stay open."""

    name = "cut"
    summary = "nothing passes the host's link, in either direction, until `for` is over; connections stay open"
    settings = NoSettings
    acts_on = HOST
    length = Length.OPTIONAL

    def apply(self, target: Station, settings: NoSettings, cure: Cure | None) -> str:
        target.host.cut()
        return ""

    def end(self, target: Station, settings: NoSettings, cure: Cure | None, *, final: bool) -> None:
        target.host.restore()


class ImpairLinkFault(FaultAction[Station, ImpairSettings]):
    """Delay, loss and so on, or another bandwidth."""

    name = "impair"
    summary = "the host's link delays, loses, doubles, reorders or damages packets, or has another `rate`"
    settings = ImpairSettings
    acts_on = HOST
    length = Length.OPTIONAL

    def apply(self, target: Station, settings: ImpairSettings, cure: Cure | None) -> str:
        link, means = target.link, []
        if settings.up is not None or settings.down is not None:
            target.host.impair(settings.up or link.up or CLEAN, settings.down or link.down or CLEAN)
            means.append("TAP link")
        if settings.rate is not None:
            target.host.limit(int(settings.rate))
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

    def end(self, target: Station, settings: HandoffSettings, cure: Cure | None, *, final: bool) -> None:
        delay_s = (settings.delay + settings.spread * target.draw()) / 1e9
        if not final:
            threading.Event().wait(delay_s)
        target.host.join(settings.walk[target.handoffs % len(settings.walk)])
        target.handoffs += 1


CUT, IMPAIR, HANDOFF = CutLink(), ImpairLinkFault(), Handoff()
