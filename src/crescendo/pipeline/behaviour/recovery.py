"""What did each fault cost, and how long until the system was well again?

For every fault that was caused: when clients noticed, the longest gap in deliveries, when the rate and the backlog were
back, the messages that it cost, and the latency around it. Its messages are those sent from the oldest one that was
still in the system when it began, until its effects were over or the next fault began. Figures around a fault are not
proof that it was the cause.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs

from crescendo.pipeline.behaviour.backlog import SubscriptionSeries
from crescendo.pipeline.behaviour.event_effects import AROUND_S, p99_between
from crescendo.pipeline.behaviour.recorded_events import DISCONNECT, FaultWindow
from crescendo.pipeline.behaviour.recovery_counts import LOST_ACKNOWLEDGED, REDELIVERED, SHED, FaultSpan
from crescendo.pipeline.behaviour.ticks import Ticks
from crescendo.pipeline.columns import KIND, T_NS
from crescendo.pipeline.ledger.discrepancies import DUPLICATED, LOST, REORDERED
from crescendo.record.tables import OutageRow, RecoveryRow
from crescendo.record.timeline import RunTimeline

LEAD_NS = 10**9
"""Messages sent this long before a fault count as its own even if the backlog says that all had arrived."""

_BEFORE_NS = 5 * 10**9
_REACTION_NS = 5 * 10**9  # after a fault was undone, what begins later is not its effect


@dataclass(frozen=True)
class FaultEffects:
    """One fault, the outages that overlap it, and the span of its messages."""

    window: FaultWindow
    outages: list[OutageRow]
    span: FaultSpan

    @property
    def outage_ns(self) -> int | None:
        return max((outage.gap_ns for outage in self.outages), default=None)

    @property
    def resumed(self) -> bool:
        return all(outage.end_ns is not None for outage in self.outages)

    @property
    def recovered_ns(self) -> int | None:
        return _latest([_recovered_ns(outage, self.span.start_ns) for outage in self.outages])

    @property
    def caught_up_ns(self) -> int | None:
        return _latest([_caught_up_ns(outage, self.span.start_ns) for outage in self.outages])

    def row_of(self, run: RecoveryRow, subscriptions: Collection[str]) -> RecoveryRow:
        """The row of the whole run, with the outages and times of these subscriptions only."""
        mine = replace(self, outages=[outage for outage in self.outages if outage.subscription in subscriptions])
        return structs.replace(
            run,
            outage_ns=mine.outage_ns,
            resumed=mine.resumed,
            recovered_ns=mine.recovered_ns,
            caught_up_ns=mine.caught_up_ns,
        )


def fault_effects(
    windows: Sequence[FaultWindow],
    outages: Sequence[OutageRow],
    streams: Sequence[SubscriptionSeries],
    ticks: Ticks,
    end_ns: int,
) -> list[FaultEffects]:
    """The effects of each fault, in order of time; `end_ns` is the end of the recording."""
    effects: list[FaultEffects] = []
    earlier_ns = ticks.origin_ns - LEAD_NS
    for number, window in enumerate(windows):
        next_ns = windows[number + 1].start_ns if number + 1 < len(windows) else end_ns
        mine = [outage for outage in outages if _overlaps(outage, window, next_ns)]
        over_ns = [window.end_ns or end_ns, *(_over_ns(outage, end_ns) for outage in mine)]
        until_ns = max(min(max(over_ns) + ticks.length_ns, next_ns), window.start_ns + 1)
        from_ns = max(min(_oldest_ns(streams, ticks, window.start_ns), window.start_ns - LEAD_NS), earlier_ns)
        effects.append(FaultEffects(window, mine, FaultSpan(window.number, from_ns, window.start_ns, until_ns)))
        earlier_ns = until_ns
    return effects


def _overlaps(outage: OutageRow, window: FaultWindow, next_ns: int) -> bool:
    last_ns = next_ns if window.end_ns is None else min(window.end_ns + _REACTION_NS, next_ns)
    return outage.start_ns < last_ns and outage.start_ns + outage.gap_ns > window.start_ns


def _over_ns(outage: OutageRow, end_ns: int) -> int:
    """When rate and backlog were as before."""
    if outage.end_ns is None or outage.recovered_ns is None or outage.caught_up_ns is None:
        return end_ns
    return max(outage.start_ns + outage.recovered_ns, outage.end_ns + outage.caught_up_ns)


def _oldest_ns(streams: Sequence[SubscriptionSeries], ticks: Ticks, t_ns: int) -> int:
    """When the oldest message was sent that was in the system at this time, if it keeps their order."""
    oldest_ns = t_ns
    for stream in streams:
        tick = min(max((t_ns - ticks.origin_ns) // ticks.length_ns - stream.first_tick, 0), stream.sent.size)
        received = int(stream.received[:tick].sum())
        later = np.flatnonzero(np.cumsum(stream.sent) > received)
        if later.size:
            oldest_ns = min(oldest_ns, ticks.start_ns(stream.first_tick + int(later[0])))
    return oldest_ns


def recovery_rows(
    effects: Sequence[FaultEffects],
    counts: Mapping[int, Mapping[str, int]],
    unoffered: Mapping[int, int],
    events: Sequence[Mapping[str, Any]],
    timeline: RunTimeline,
    histogram: list[Path],
) -> list[RecoveryRow]:
    """One row per fault. `counts` has its messages by kind, `unoffered` those that were not even shed."""
    rows = []
    for effect in effects:
        window, span = effect.window, effect.span
        mine = counts.get(window.number, {})
        first, end = timeline.second_at(window.start_ns), timeline.second_at(_during_until_ns(effect)) + 1
        rows.append(
            RecoveryRow(
                fault=window.number,
                action=window.action,
                target=window.target,
                means=window.means,
                planned_ns=window.planned_ns,
                start_ns=window.start_ns,
                end_ns=window.end_ns,
                detected_ns=_detected_ns(events, span),
                outage_ns=effect.outage_ns,
                resumed=effect.resumed,
                recovered_ns=effect.recovered_ns,
                caught_up_ns=effect.caught_up_ns,
                until_ns=span.until_ns,
                lost=mine.get(LOST, 0),
                lost_acknowledged=mine.get(LOST_ACKNOWLEDGED, 0),
                never_offered=mine.get(SHED, 0) + unoffered.get(window.number, 0),
                redelivered=mine.get(REDELIVERED, 0),
                duplicated=mine.get(DUPLICATED, 0),
                reordered=mine.get(REORDERED, 0),
                p99_before_ns=p99_between(histogram, first - AROUND_S, first),
                p99_during_ns=p99_between(histogram, first, end),
                p99_after_ns=p99_between(histogram, end, end + AROUND_S),
            )
        )
    return rows


def _during_until_ns(effect: FaultEffects) -> int:
    """Until the fault was undone and deliveries had resumed."""
    ends_ns = [outage.start_ns + outage.gap_ns for outage in effect.outages]
    return min(max([effect.window.end_ns or effect.span.until_ns, *ends_ns]), effect.span.until_ns)


def _detected_ns(events: Sequence[Mapping[str, Any]], span: FaultSpan) -> int | None:
    seen = [event[T_NS] for event in events if event[KIND] == DISCONNECT]
    return min((t_ns - span.start_ns for t_ns in seen if span.start_ns <= t_ns < span.until_ns), default=None)


def _recovered_ns(outage: OutageRow, start_ns: int) -> int | None:
    return None if outage.recovered_ns is None else outage.start_ns + outage.recovered_ns - start_ns


def _caught_up_ns(outage: OutageRow, start_ns: int) -> int | None:
    if outage.end_ns is None or outage.caught_up_ns is None:
        return None
    return outage.end_ns + outage.caught_up_ns - start_ns


def _latest(times_ns: list[int | None]) -> int | None:
    """The latest of all; None if one of them never came, or if there are none."""
    known = [t_ns for t_ns in times_ns if t_ns is not None]
    return max(known) if known and len(known) == len(times_ns) else None


def missing_at_earlier_rate(
    effects: Sequence[FaultEffects], streams: Sequence[SubscriptionSeries], ticks: Ticks, load_end_ns: int
) -> dict[int, int]:
    """Fault -> messages that unbounded senders would have sent at their earlier rate, and did not."""
    missing = {}
    for effect in effects:
        start_ns, until_ns = effect.span.start_ns, min(effect.span.until_ns, load_end_ns)
        count = 0.0
        for stream in streams:
            earlier = _sent_between(stream, ticks, start_ns - _BEFORE_NS, start_ns)
            rate = earlier / (min(_BEFORE_NS, max(start_ns - ticks.start_ns(stream.first_tick), 1)) / 1e9)
            expected = rate * max(until_ns - start_ns, 0) / 1e9
            count += max(expected - _sent_between(stream, ticks, start_ns, until_ns), 0.0)
        missing[effect.window.number] = round(count)
    return missing


def _sent_between(stream: SubscriptionSeries, ticks: Ticks, first_ns: int, end_ns: int) -> int:
    first, end = (
        min(max((t_ns - ticks.origin_ns) // ticks.length_ns - stream.first_tick, 0), stream.sent.size)
        for t_ns in (first_ns, end_ns)
    )
    return int(stream.sent[first:end].sum())
