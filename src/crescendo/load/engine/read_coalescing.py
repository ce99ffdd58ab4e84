"""When may the next read wait until more has arrived?

At full speed no single message is urgent, and a broker that writes messages one at a time would make us read them one
at a time, at a hundred times the CPU. After a read that brought few, a pause lets more accumulate: long enough, at the
recent arrival rate, to make the next read worthwhile. It never exceeds a small share of the message latency, so that it
is lost in the queueing of full speed, nor the time that a small share of the window takes: a system that waits for our
settlements would be slowed down by that share. A read that left something in its socket is followed by the next at
once: what lies there can only grow, and a receiver that reads little at a time would never catch up.
"""

ENOUGH_MESSAGES = 512  # messages
WINDOW_SHARE = 12
LATENCY_SHARE = 20
MAX_PAUSE_NS = 10_000_000
MIN_PAUSE_NS = 100_000
"""A shorter sleep costs more than it saves."""
PERIOD_NS = 20_000_000
"""The arrival rate is averaged over this time: single reads bring many or few by chance."""


class ReadCoalescer:
    """What recent reads brought, and how long to pause before the next one."""

    def __init__(self, *, unpaced: bool) -> None:
        self.unpaced = unpaced
        self._messages = 0
        self._latency_ns = 0
        self._left_some = False
        self._begun_ns = 0  # start of the current period
        self._counted = 0  # messages in the current period
        self._ns_per_message = 0.0  # in the previous period; 0: none arrived

    def add(self, messages: int, latency_ns: int, *, drained: bool = True) -> None:
        """A read brought this many messages; the last had this latency. `drained`: it left nothing in the socket."""
        self._messages += messages
        self._latency_ns = latency_ns
        self._left_some |= not drained

    def pause_s(self, now_ns: int, window: int) -> float:
        """How long to pause before the next read; 0 when the load is paced, or the last read brought enough.

        `window` is how many messages may be in flight before the system waits for us.
        """
        if not self.unpaced:
            return 0.0
        messages, self._messages = self._messages, 0
        left_some, self._left_some = self._left_some, False
        self._counted += messages
        if now_ns - self._begun_ns >= PERIOD_NS:
            self._ns_per_message = (now_ns - self._begun_ns) / self._counted if self._counted else 0.0
            self._begun_ns, self._counted = now_ns, 0
        enough = min(ENOUGH_MESSAGES, window // WINDOW_SHARE)
        if left_some or not 0 < messages < enough:
            return 0.0
        pause_ns = min((enough - messages) * self._ns_per_message, self._latency_ns / LATENCY_SHARE, MAX_PAUSE_NS)
        return pause_ns / 1e9 if pause_ns >= MIN_PAUSE_NS else 0.0
