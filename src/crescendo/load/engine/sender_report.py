"""What does a process that sends report about itself?

Once per second and at its end: how much was sent, and how well its own loop kept up. Read from the senders; counts
nothing by itself.
"""

import time

from crescendo.control.notes import Statistics
from crescendo.load.engine.sender import Sender
from crescendo.load.engine.stalls import StallLog
from crescendo.load.engine.statistics import Distribution, RateMeter
from crescendo.model.peer_statistics import sender_statistics


class SenderReport:
    """Statistics over all senders of a process."""

    def __init__(self, senders: list[Sender], stalls: StallLog) -> None:
        self.own_delay = Distribution()  # of messages with a schedule
        self._senders = senders
        self._stalls = stalls
        self._start_ns = 0
        self._rate_meter = RateMeter(time.monotonic_ns())

    def start(self, start_ns: int, now_ns: int) -> None:
        self._start_ns = start_ns
        self._rate_meter = RateMeter(now_ns)

    def statistics(self, now_ns: int, in_time: set[int]) -> Statistics:
        """`in_time` are the indices of the senders whose next message is not due yet."""
        counts: dict[str, int] = {}
        for sender in self._senders:
            counts[sender.group.shared_address] = counts.get(sender.group.shared_address, 0) + sender.window.sent
        messages = sum(counts.values())
        rate, cores = self._rate_meter.sample(now_ns, messages)
        p99_ns = self.own_delay.fold(99.0)
        elapsed_ns = max(now_ns - self._start_ns, 1) * max(len(self._senders), 1)
        held_ns = sum(sender.window.held.elapsed_ns(now_ns) for sender in self._senders)
        unsent = {
            index: max(sender.schedule.due(now_ns), 0)
            for index, sender in enumerate(self._senders)
            if sender.schedule.bounded and (index not in in_time or sender.window.is_waiting)
        }
        measured = sender_statistics(
            blocked_share=held_ns / elapsed_ns,
            lateness_p50_ns=self.own_delay.overall(50.0),
            lateness_p99_ns=self.own_delay.overall(99.0),
            own_delay_p99_ns=self.own_delay.overall(99.0),
            own_delay_max_ns=self.own_delay.overall(100.0),
            last_sent_ns=max((sender.window.last_sent_ns for sender in self._senders), default=0) or None,
            unsent=sum(unsent.values()),
            unsent_own=sum(due for index, due in unsent.items() if not self._senders[index].window.is_held),
            unsettled=sum(sender.window.in_flight for sender in self._senders),
            shed=sum(sender.schedule.shed for sender in self._senders) or None,
            batch_share=sum(sender.batched for sender in self._senders) / messages if messages else None,
            cpu_seconds=time.process_time(),
            stalled_ns=self._stalls.total_ns,
        )
        return Statistics(now_ns, counts, messages, rate, p99_ns, cores, measured)
