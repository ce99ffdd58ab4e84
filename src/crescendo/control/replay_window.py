"""Was this counter used before?

Every note of a process has a higher counter than the one before. Brokers may deliver twice, and a note of QoS 0 may
overtake one of QoS 1, so a window of the latest counters remembers which of them arrived; what is older counts as a
repeat. Pure bookkeeping: knows no notes and no clocks.
"""

from collections import OrderedDict

WINDOW = 4096
MAX_SESSIONS = 16_384
LAST_COUNTER = 2**63 - 1
"""Of a last will: nothing of that process is accepted after it."""


class ReplayWindow:
    """The counters of one process that were seen."""

    __slots__ = ("_highest", "_seen")

    def __init__(self) -> None:
        self._highest = -1
        self._seen = 0  # bit n: the counter n below the highest was seen

    def is_new(self, counter: int) -> bool:
        """Whether this counter comes for the first time. It does not come again."""
        ahead = counter - self._highest
        if ahead > 0:
            self._seen = 1 if ahead >= WINDOW else ((self._seen << ahead) | 1) & ((1 << WINDOW) - 1)
            self._highest = counter
            return True
        if -ahead >= WINDOW or self._seen >> -ahead & 1:
            return False
        self._seen |= 1 << -ahead
        return True


class ReplayWindows:
    """The windows of all processes that sent an authentic note; the least recent is forgotten beyond a limit."""

    def __init__(self) -> None:
        self._windows: OrderedDict[tuple[str, str, int], ReplayWindow] = OrderedDict()

    def is_new(self, scope: str, sender: str, session: int, counter: int) -> bool:
        key = (scope, sender, session)
        window = self._windows.pop(key, None) or ReplayWindow()
        self._windows[key] = window
        if len(self._windows) > MAX_SESSIONS:
            self._windows.popitem(last=False)
        return window.is_new(counter)
