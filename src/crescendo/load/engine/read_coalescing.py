"""When may reading wait until more has arrived?

At full speed nobody waits for one message, and a broker that writes them one at a time would have us read them so, at
a hundred times the CPU. After a look that brought few, a pause lets more gather: as long as it takes at the pace of
late until a look is worth it, but never longer than a small share of what messages take anyway, so that it is lost in
the queueing that full speed means, and never longer than a small share of the window takes: a system that waits for us
to settle would be slowed down by just that share.
"""

FEW = 512  # messages
WINDOW_SHARE = 12
SHARE = 20
MOST_NS = 10_000_000
LEAST_NS = 100_000
"""Sleeping shorter than this costs more than it gathers."""
PERIOD_NS = 20_000_000
"""Over so long the pace is taken: single looks bring many or few by chance."""


class ReadCoalescer:
    """What the last looks brought, and the pause before the next one."""

    def __init__(self, *, unhurried: bool) -> None:
        self.unpaced = unhurried
        self._messages = 0
        self._took_ns = 0
        self._begun_ns = 0  # the period
        self._counted = 0  # in this period
        self._ns_a_message = 0.0  # in the last one; 0: none came

    def add(self, messages: int, took_ns: int) -> None:
        """So many came with this look; the last of them took so long."""
        self._messages += messages
        self._took_ns = took_ns

    def pause_s(self, now_ns: int, window: int) -> float:
        """How long to let more gather before the next look; 0 when somebody minds, or the last one brought enough.

        `window` is how many messages may be under way before the system waits for us.
        """
        if not self.unpaced:
            return 0.0
        messages, self._messages = self._messages, 0
        self._counted += messages
        if now_ns - self._begun_ns >= PERIOD_NS:
            self._ns_a_message = (now_ns - self._begun_ns) / self._counted if self._counted else 0.0
            self._begun_ns, self._counted = now_ns, 0
        enough = min(FEW, window // WINDOW_SHARE)
        if not 0 < messages < enough:
            return 0.0
        pause_ns = min((enough - messages) * self._ns_a_message, self._took_ns / SHARE, MOST_NS)
        return pause_ns / 1e9 if pause_ns >= LEAST_NS else 0.0
