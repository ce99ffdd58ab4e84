"""When did deliveries stop unexpectedly, and how did the system recover?

An outage is a gap between two deliveries of a subscription that is longer than two ticks, in which at least ten
messages should have arrived at the rate of the preceding five seconds, while messages were waiting or falling due. A
pause in the schedule is not an outage. Gap times are exact; recovery times have the resolution of a tick. Does not look
for causes: see `event_effects`.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from crescendo.pipeline.behaviour.backlog import SubscriptionSeries
from crescendo.pipeline.behaviour.ticks import Ticks
from crescendo.pipeline.source.connections import Connections
from crescendo.record.tables import OutageRow

LEAST_MISSING = 10
LEAST_TICKS = 2
BEFORE_NS = 5 * 10**9
WINDOW_NS = 10**9
RECOVERED_SHARE = 0.95


def outages(
    streams: list[SubscriptionSeries],
    lost: dict[int, int],
    ticks: Ticks,
    connections: Connections,
    *,
    lost_aside: bool = False,
) -> list[OutageRow]:
    """All outages, ordered by start. `lost` is the number of messages that each subscription never received.

    Lost messages stay in the backlog forever; with `lost_aside` it counts as caught up without them.
    """
    found = []
    for stream in streams:
        delivery_ticks = np.flatnonzero(stream.received)
        if not delivery_ticks.size:
            continue  # without a delivery there is no rate to drop from; the ledger reports the losses
        missing = lost.get(stream.number, 0)
        view = _SubscriptionView(stream, ticks, connections.subscriptions[stream.number], missing, lost_aside)
        for last, first in pairwise(delivery_ticks):
            if first - last >= LEAST_TICKS and view.is_outage(int(last), int(first), int(stream.first_ns[first])):
                found.append(view.outage(int(last), int(first)))
        demand_ticks = np.flatnonzero(stream.due + stream.sent)
        final, end = int(delivery_ticks[-1]), int(demand_ticks[-1]) + 1 if demand_ticks.size else 0
        if end > final and view.is_outage(final, end, view.start_ns(end)):
            found.append(view.open_ended_outage(final, end))
    return sorted(found, key=lambda outage: (outage.start_ns, outage.subscription))


@dataclass(frozen=True)
class _SubscriptionView:
    """One subscription. Ticks are counted from its first one."""

    stream: SubscriptionSeries
    ticks: Ticks
    name: str
    lost: int
    lost_aside: bool

    def is_outage(self, last: int, first: int, end_ns: int) -> bool:
        """Whether the gap between the deliveries in ticks `last` and `first` is an outage. The gap ends at `end_ns`."""
        gap_ns = end_ns - int(self.stream.last_ns[last])
        if gap_ns < LEAST_TICKS * self.ticks.length_ns:
            return False
        falling_due = self.stream.due[last + 1 : first].sum() > 0
        waiting = self.stream.demand[first - 1] > self.lost
        return bool(self._rate(last) * gap_ns / 1e9 >= LEAST_MISSING and (falling_due or waiting))

    def outage(self, last: int, first: int) -> OutageRow:
        start_ns, end_ns = int(self.stream.last_ns[last]), int(self.stream.first_ns[first])
        rate = self._rate(last)
        received, recovered = self.stream.received, self._recovered_tick(first, rate)
        until = received.size if recovered is None else recovered
        length_s = max(self.start_ns(until) - start_ns, end_ns - start_ns) / 1e9
        caught = self._caught_up_tick(last, first)
        catch_up = received[first : (received.size if caught is None else caught) + 1]
        return OutageRow(
            subscription=self.name,
            start_ns=start_ns,
            end_ns=end_ns,
            gap_ns=end_ns - start_ns,
            earlier_rate=rate,
            recovered_ns=None if recovered is None else max(self.start_ns(recovered), end_ns) - start_ns,
            area_lost=rate * length_s - int(received[first:until].sum()),
            caught_up_ns=None if caught is None else self.start_ns(caught + 1) - end_ns,
            catch_up_messages=int(catch_up.sum()),
            peak_rate=float(catch_up.max()) / self.ticks.length_ns * 1e9,
        )

    def open_ended_outage(self, last: int, end: int) -> OutageRow:
        """An outage that lasted until the end of the load."""
        start_ns, rate = int(self.stream.last_ns[last]), self._rate(last)
        gap_ns = self.start_ns(end) - start_ns
        return OutageRow(self.name, start_ns, None, gap_ns, rate, None, rate * gap_ns / 1e9, None, None, None)

    def _rate(self, last: int) -> float:
        """Deliveries per second over the whole ticks of the five seconds before the gap, or over the gap's own tick."""
        begun = int(np.flatnonzero(self.stream.received)[0])
        first = max(last - BEFORE_NS // self.ticks.length_ns, begun)
        if first == last:
            return float(self.stream.received[last]) / self.ticks.length_ns * 1e9
        messages = float(self.stream.received[first:last].sum())
        return messages / ((last - first) * self.ticks.length_ns) * 1e9

    def _recovered_tick(self, first: int, rate: float) -> int | None:
        """The first tick after the gap that starts a second with 95 % of the earlier rate."""
        width = max(WINDOW_NS // self.ticks.length_ns, 1)
        sums = np.convolve(self.stream.received, np.ones(width, np.int64), "valid")
        needed = RECOVERED_SHARE * rate * width * self.ticks.length_ns / 1e9
        good = np.flatnonzero(sums[first:] >= needed)
        return first + int(good[0]) if good.size else None

    def _caught_up_tick(self, last: int, first: int) -> int | None:
        """The first tick at whose end the backlog is no larger than its peak in the second before the gap."""
        width = max(WINDOW_NS // self.ticks.length_ns, 1)
        usual = self.stream.demand[max(last - width, 0) : max(last, 1)].max()
        settled = np.flatnonzero(self.stream.demand[first:] <= max(usual, 0) + (self.lost if self.lost_aside else 0))
        return first + int(settled[0]) if settled.size else None

    def start_ns(self, tick: int) -> int:
        return self.ticks.start_ns(self.stream.first_tick + tick)
