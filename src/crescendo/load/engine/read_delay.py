"""How long had messages been readable when they were read?

Messages of a read cannot have arrived before the loop last looked and found nothing. Where that leaves a doubt, the
kernel is asked when they arrived, which it knows even if this process was stopped meanwhile. It tells about the last
message of a read. So after a stall the messages of a read count from the last look, and what accumulated until its end
is read in small pieces, each counted from the end of the one before. What a slow receiver leaves in its socket while it
consumes is not late.
"""

from crescendo.load.engine.loop_clock import LoopClock
from crescendo.load.engine.stalls import LONG_STALL_NS
from crescendo.load.protocols.interfaces import ReceiveChannel
from crescendo.record.schema import READ_DELAY, READ_DELAY_FLOOR_NS
from crescendo.record.writer import RowSink

PIECE_BYTES = 1 << 12
"""After a long stall at most this much is read at a time."""


class ReadDelay:
    """How late the messages of one receiver were read."""

    def __init__(self, receiver: int) -> None:
        self.max_ns = 0
        self.free_ns = 0  # it was not meant to read before this
        self.unread_ns = 0  # what the last read left in the socket arrived after this; 0 if it left nothing
        self._stall_end_ns = 0
        self._receiver = receiver

    def before_read(self, channel: ReceiveChannel, clock: LoopClock) -> None:
        """The loop has not just looked: ask the kernel. To be called only then, because that has a cost."""
        channel.stamps_reads, channel.arrived_ns = True, None
        if clock.overdue_ns > LONG_STALL_NS:
            channel.read_limit, self._stall_end_ns = PIECE_BYTES, clock.woken_ns

    def after_read(self, channel: ReceiveChannel, clock: LoopClock, arrivals: range, log: RowSink) -> None:
        """These messages were read. To be called if the loop had not just looked, or if the read left something."""
        since_ns = looked_ns = self.unread_ns or clock.looked_ns
        newest_ns = channel.arrived_ns if channel.stamps_reads else None
        if newest_ns is not None:
            newest_ns = max(newest_ns, looked_ns)
            if len(arrivals) == 1:
                since_ns = newest_ns
            elif not (clock.is_overdue or self.unread_ns):
                since_ns = min(newest_ns, clock.woken_ns)  # the first of them ended the wait; others came meanwhile
        late_ns = channel.read_ns - max(since_ns, self.free_ns)
        if arrivals and late_ns >= READ_DELAY_FLOOR_NS:
            log.append_one(READ_DELAY, self._receiver, arrivals.start, arrivals.stop - 1, late_ns)
            self.max_ns = max(self.max_ns, late_ns)
        channel.stamps_reads = False
        if channel.drained:
            self.unread_ns, channel.read_limit = 0, None
        else:  # what is left arrived after what was read
            self.unread_ns = newest_ns or looked_ns
            if self.unread_ns >= self._stall_end_ns:
                channel.read_limit = None
