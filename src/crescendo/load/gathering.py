"""When may reading wait until more has arrived?

At full speed nobody waits for one message, and a broker that writes them one at a time would have us read them so, at
a hundred times the CPU. After a look that brought few, a pause lets more gather: as long as it takes at their pace
until a look is worth it, but never longer than a small share of what messages take anyway, so that it is lost in the
queueing that full speed means, and never so long that the window runs dry: a system that waits for us to settle would
be slowed down by the wait.
"""

FEW = 512  # messages
WINDOW_SHARE = 4
SHARE = 20
MOST_NS = 10_000_000
LEAST_NS = 100_000
"""Sleeping shorter than this costs more than it gathers."""


class Gathering:
    """What the last look brought, and the pause before the next one."""

    def __init__(self, *, unhurried: bool) -> None:
        self.unhurried = unhurried
        self._messages = 0
        self._took_ns = 0
        self._looked_ns = 0

    def add(self, messages: int, took_ns: int) -> None:
        """So many came with this look; the last of them took so long."""
        self._messages += messages
        self._took_ns = took_ns

    def pause_s(self, now_ns: int, window: int) -> float:
        """How long to let more gather before the next look; 0 when somebody minds, or the last one brought enough.

        `window` is how many messages may be under way before the system waits for us.
        """
        messages, self._messages = self._messages, 0
        since_ns, self._looked_ns = now_ns - self._looked_ns, now_ns
        enough = min(FEW, window // WINDOW_SHARE)
        if not self.unhurried or not 0 < messages < enough:
            return 0.0
        pause_ns = min(since_ns * enough // messages, self._took_ns // SHARE, MOST_NS)
        return pause_ns / 1e9 if pause_ns >= LEAST_NS else 0.0
