"""When did a loop last look at all its sockets, and did it turn in time?

Kept by both engines, one call per pass. Everything that a loop reads arrived after it last looked in vain; a wait that
lasted longer than it was meant to shows that the process was stopped or starved. Reads no clock.
"""

from crescendo.load.engine.stalls import STALL_NS, StallLog
from crescendo.record.schema import READ_DELAY_FLOOR_NS


class LoopClock:
    """The passes of one loop."""

    def __init__(self, now_ns: int, stalls: StallLog) -> None:
        self.looked_ns = now_ns  # what a pass finds was not there at this time
        self.overdue_ns = 0  # for how long the last wait lasted longer than it was meant to
        self.woken_ns = now_ns  # when the last wait ended
        self._unreliable = False  # the last wait found nothing, but could not have
        self._stalls = stalls

    def woken(self, before_ns: int, wait_ns: int, woken_ns: int, *, found: bool, paused_ns: int = 0) -> None:
        """A wait that was meant to last at most `wait_ns` is over; before it the loop meant to pause, too."""
        waited_ns = woken_ns - before_ns
        overdue_ns = waited_ns - wait_ns if waited_ns > wait_ns else 0
        stalled_ns = before_ns - self.woken_ns - paused_ns + overdue_ns
        # After a wait that was interrupted, Python does not look again if its time is up. The next wait returns at once
        # with what has been there all the time; only if it does not, there was nothing.
        if not (self._unreliable and found and waited_ns <= STALL_NS):
            # A wait that lasted found nothing when it began; one that returned at once tells nothing about the past.
            self.looked_ns = before_ns if waited_ns > READ_DELAY_FLOOR_NS else self.woken_ns
            self.overdue_ns = overdue_ns
        self._unreliable = overdue_ns > STALL_NS and not found
        self.woken_ns = woken_ns
        if stalled_ns > STALL_NS:
            self._stalls.add(woken_ns, stalled_ns)

    @property
    def is_overdue(self) -> bool:
        """Whether the process was stopped or starved while it waited."""
        return self.overdue_ns > STALL_NS

    @property
    def writable_ns(self) -> int:
        """Since when a socket that was reported writable just now may have been so.

        The kernel does not say. A wait ends at once when a socket becomes writable, unless the process is held up.
        """
        return self.looked_ns if self.is_overdue else self.woken_ns
