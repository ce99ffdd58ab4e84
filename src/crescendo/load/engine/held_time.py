"""For how long did the other side hold a sender back?

A hold begins when a sender finds that nothing may be sent: no credit, no room in the window, a full socket, a lost
connection. It ends when the reason to go on became readable, not when we looked. The time of a message between its
intended and its send time is divided by these holds: what lies inside them is the other side's, the rest is our own, so
that what was late before a hold stays late. Reads no clock.
"""

import numpy as np
import numpy.typing as npt

from crescendo.model.arrays import Int64s

MAX_POINTS = 4096
"""Holds since the oldest message that is due and unsent are kept exactly up to half of this number."""


class HeldTime:
    """The holds of one connection, as the total time held up to any moment: a line of slope 0 or 1."""

    def __init__(self, max_points: int = MAX_POINTS) -> None:
        self.total_ns = 0
        self.since_ns: int | None = None  # the hold that lasts
        self.ended_ns = 0  # the end of the last one
        self._begun_ns = 0  # the last one
        self._before_last_ns = 0  # the end of the one before it
        # Begin and end of each hold, and the total held at that moment. Exact: counted from the first hold, 53 bits of
        # nanoseconds are more than a hundred days.
        self._origin_ns = 0
        self._times: npt.NDArray[np.float64] = np.zeros(max_points)
        self._totals: npt.NDArray[np.float64] = np.zeros(max_points)
        self._points = 0
        self._max_points = max_points

    def begin(self, now_ns: int) -> None:
        """Nothing may be sent from here on."""
        if self.since_ns is None:
            self.since_ns = max(now_ns, self.ended_ns)

    def end(self, readable_ns: int) -> None:
        """The reason to go on became readable at this time; if that was before the hold, there was none."""
        begun_ns, self.since_ns = self.since_ns, None
        if begun_ns is None or readable_ns <= begun_ns:
            return
        if not self._points:
            self._origin_ns = begun_ns
        self._before_last_ns, self._begun_ns, self.ended_ns = self.ended_ns, begun_ns, readable_ns
        self._add_point(begun_ns)
        self.total_ns += readable_ns - begun_ns
        self._add_point(readable_ns)

    def add_many(self, begun_ns: Int64s, ended_ns: Int64s) -> None:
        """Holds that were measured elsewhere, in order; none overlaps another."""
        if not self._points:
            self._origin_ns = int(begun_ns[0])
        duration_ns = ended_ns - begun_ns
        totals = self.total_ns + np.cumsum(duration_ns)
        while (room := self._max_points - self._points) < 2 * len(begun_ns):
            if self._points < self._max_points // 2:  # more than fit at all: of the oldest, only the sum is kept
                early = len(begun_ns) - room // 2
                self.total_ns, totals = int(totals[early - 1]), totals[early:]
                begun_ns, ended_ns, duration_ns = begun_ns[early:], ended_ns[early:], duration_ns[early:]
                break
            self._halve()
        points = slice(self._points, self._points + 2 * len(begun_ns))
        self._times[points][0::2], self._times[points][1::2] = begun_ns - self._origin_ns, ended_ns - self._origin_ns
        self._totals[points][0::2], self._totals[points][1::2] = totals - duration_ns, totals
        self._points = points.stop
        self.total_ns, self.ended_ns = int(totals[-1]), int(ended_ns[-1])

    def elapsed_ns(self, now_ns: int) -> int:
        """Time held up to now, including a hold that lasts."""
        return self.total_ns + (max(now_ns - self.since_ns, 0) if self.since_ns is not None else 0)

    def within_one(self, from_ns: int, until_ns: int) -> int:
        """How much of this time was held; no hold lasts at its end."""
        if from_ns >= self.ended_ns:
            return 0
        if from_ns >= self._before_last_ns and until_ns >= self.ended_ns:  # nearly always
            return self.ended_ns - max(from_ns, self._begun_ns)
        return int(self.within(np.array([from_ns]), np.array([until_ns]))[0])

    def within(self, from_ns: Int64s, until_ns: Int64s | int) -> Int64s:
        """How much of each of these times was held. Their beginnings ascend, from call to call as well."""
        count = self._points
        times, totals = self._times[:count], self._totals[:count]
        if not count:
            return np.zeros(len(from_ns), np.int64)
        begun, ended = from_ns - self._origin_ns, until_ns - self._origin_ns
        held = np.interp(ended, times, totals) - np.interp(begun, times, totals)
        passed = int(np.searchsorted(times, begun[0], "right")) - 1
        if passed > self._max_points // 2:  # what ended before the oldest unsent message was due is no longer needed
            self._keep(np.arange(passed, count))
        found: Int64s = np.rint(held).astype(np.int64)
        return found

    def _add_point(self, t_ns: int) -> None:
        if self._points == self._max_points:
            self._halve()
        self._times[self._points] = t_ns - self._origin_ns
        self._totals[self._points] = self.total_ns
        self._points += 1

    def _halve(self) -> None:
        """More holds than fit while one message waits: of all but the latest, every other point has to do."""
        early = self._points // 2
        self._keep(np.concatenate((np.arange(0, early, 2), np.arange(early, self._points))))

    def _keep(self, points: Int64s) -> None:
        count = self._points = len(points)
        self._times[:count], self._totals[:count] = self._times[points], self._totals[points]
