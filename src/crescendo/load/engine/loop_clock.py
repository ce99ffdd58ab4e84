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
        self.overdue_ns = 0  # for how long what the last wait found may have been there because the loop did not turn
        self.woken_ns = now_ns  # when the last wait ended
        self._unreliable = False  # the last wait found nothing, but could not have
        self._stalls = stalls

    def wait_ns(self, before_ns: int, wanted_ns: int, paused_ns: int = 0) -> int:
        """How long a wait that begins now may last.

        Not at all after a stall: how long a wait lasted would not tell since when there was something, because this
        process may be held up again on its way back. A look that finds nothing shows that there was nothing.
        """
        stalled = self._unreliable or before_ns - self.woken_ns - paused_ns > STALL_NS
        return 0 if stalled else wanted_ns

    def woken(self, before_ns: int, wait_ns: int, woken_ns: int, *, found: bool, paused_ns: int = 0) -> None:
        """A wait that was meant to last at most `wait_ns` is over; before it the loop meant to pause, too."""
        waited_ns = woken_ns - before_ns
        overdue_ns = waited_ns - wait_ns if waited_ns > wait_ns else 0
        stalled_ns = before_ns - self.woken_ns - paused_ns + overdue_ns
        # After a wait that was interrupted, Python does not look again if its time is up. The look that follows finds
        # what has been there all the time.
        if not (self._unreliable and found):
            # A wait that lasted found nothing when it began; one that returned at once tells nothing about the past.
            tells_nothing = found and (not wait_ns or waited_ns <= READ_DELAY_FLOOR_NS)
            self.looked_ns = self.woken_ns if tells_nothing else before_ns
            self.overdue_ns = stalled_ns if tells_nothing else overdue_ns
        self._unreliable = overdue_ns > STALL_NS and not found
        self.woken_ns = woken_ns
        if stalled_ns > STALL_NS:
            self._stalls.add(woken_ns, stalled_ns)

    @property
    def is_overdue(self) -> bool:
        """Whether the process was stopped or starved before it found something."""
        return self.overdue_ns > STALL_NS

    @property
    def writable_ns(self) -> int:
        """Since when a socket that was reported writable just now may have been so.

        The kernel does not say. A wait ends at once when a socket becomes writable, unless the process is held up.
        """
        return self.looked_ns if self.is_overdue else self.woken_ns
