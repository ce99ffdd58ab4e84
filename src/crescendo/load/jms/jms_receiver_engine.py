"""How are messages recorded that a vendor's JMS client receives?

Each connection of the JVM has a thread that receives, reads the clock when `receive` returns, and reports the stamp.
Here the stamps become rows, as those of our own receivers do. What waits inside the client waits for the client, so
we report no read delay of our own. Settles nothing.
"""

import select
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from msgspec import UNSET

from crescendo.control.notes import Statistics
from crescendo.load.assignment import SliceMembers
from crescendo.load.engine.engine_control import Control
from crescendo.load.engine.received_rows import ReceiverCounts
from crescendo.load.engine.sliced_rows import rows_of
from crescendo.load.engine.statistics import RateMeter
from crescendo.load.jms.child_records import BUSY, RECEIVED, Closing, Records, start_command
from crescendo.model.errors import PeerError
from crescendo.model.peer_statistics import receiver_statistics
from crescendo.model.workload import Group
from crescendo.record.schema import Flag
from crescendo.record.writer import RowSink

if TYPE_CHECKING:
    from crescendo.load.jms.jvm_child import JvmChild

_WAIT_S = 0.01
_HOUSEKEEPING_NS = 50_000_000
_REPORT_NS = 1_000_000_000
_DRAIN_REPORT_NS = 100_000_000


class JmsReceiver:
    """One receiving connection of the JVM."""

    def __init__(self, number: int, group: Group) -> None:
        self.number = number
        self.group = group
        self.counts = ReceiverCounts(number)
        self.busy_ns = 0
        self.closed: str | None = None


class JmsReceiverEngine:
    """Records what the receivers of one process receive, which share a JVM."""

    def __init__(
        self,
        receivers: list[JmsReceiver],
        child: "JvmChild",
        log: RowSink,
        control: Control,
        *,
        tag: int,
        limited: Mapping[str, SliceMembers] | None = None,
    ) -> None:
        self._receivers = receivers
        self._child = child
        self._log = log
        self._control = control
        self._rows = rows_of(log, tag, limited or {}, unpaced=all(receiver.group.unpaced for receiver in receivers))
        self._started_ns = time.monotonic_ns()
        self._rate_meter = RateMeter(self._started_ns, self._cpu_seconds)
        self.draining = False

    def run(self) -> Statistics:
        """Receive until `Control` asks to stop."""
        self._started_ns = next_housekeeping_ns = last_report_ns = time.monotonic_ns()
        self._rate_meter = RateMeter(self._started_ns, self._cpu_seconds)
        self._child.write(start_command(self._started_ns))
        while True:
            reading = [self._child.fileno()] if self._child.ended is None else []
            select.select(reading, [], [], _WAIT_S)
            self._take()
            now_ns = time.monotonic_ns()
            if now_ns >= next_housekeeping_ns:
                next_housekeeping_ns = now_ns + _HOUSEKEEPING_NS
                if self._control.should_stop():
                    break
            if now_ns - last_report_ns >= (_DRAIN_REPORT_NS if self.draining else _REPORT_NS):
                last_report_ns = now_ns
                self._control.report(self.statistics(now_ns))
                self._log.tick(now_ns)
        return self.statistics(time.monotonic_ns())

    def close(self) -> None:
        self._child.close()

    @property
    def failure(self) -> str | None:
        return None if any(receiver.closed is None for receiver in self._receivers) else self._receivers[0].closed

    def _take(self) -> None:
        try:
            for found in self._child.read():
                if isinstance(found, Closing):
                    self._lose(self._receivers[found.connection], found.reason)
                else:
                    self._take_records(found)
        except PeerError as err:
            self._child.ended = str(err)
        if self._child.ended is not None:
            for receiver in self._receivers:
                self._lose(receiver, self._child.ended)

    def _take_records(self, records: Records) -> None:
        for index, receiver in enumerate(self._receivers):
            own = records[records["index"] == index] if len(self._receivers) > 1 else records
            rows = own[own["type"] == RECEIVED]
            if len(rows):
                words = rows["words"].astype(np.int64)
                flags = np.where(rows["flag"], int(Flag.REDELIVERED), 0)
                sizes = rows["size"].astype(np.int64)
                self._rows.take_stamps(receiver.counts, words[:, :4], words[:, 4], sizes, flags)
            busy = own[own["type"] == BUSY]
            if len(busy):
                receiver.busy_ns = int(busy["words"][-1][0])

    def _lose(self, receiver: JmsReceiver, reason: str) -> None:
        if receiver.closed is None:
            receiver.closed = reason
            self._control.event("disconnect", {"receiver": receiver.number, "reason": reason})

    def _cpu_seconds(self) -> float:
        return time.process_time() + self._child.cpu_seconds

    def statistics(self, now_ns: int) -> Statistics:
        counts = dict.fromkeys((one.group.shared_address for one in self._receivers), 0)
        for receiver in self._receivers:
            counts[receiver.group.shared_address] += receiver.counts.arrivals
        messages = sum(counts.values())
        rate, cores = self._rate_meter.sample(now_ns, messages)
        p99_ns = self._rows.response.fold(99.0)
        elapsed_ns = max(now_ns - self._started_ns, 1) * max(len(self._receivers), 1)
        measured = receiver_statistics(
            second_response_p90_ns=self._rows.response.latest(90.0),
            second_response_max_ns=self._rows.response.latest(100.0),
            busy_share=sum(receiver.busy_ns for receiver in self._receivers) / elapsed_ns,
            batch_share=None,
            cpu_seconds=self._cpu_seconds(),
            read_delay_max_ns=None,
            stalled_ns=0,
        )
        return Statistics(now_ns, counts, messages, rate, p99_ns, cores, measured, self._rows.last_second() or UNSET)
