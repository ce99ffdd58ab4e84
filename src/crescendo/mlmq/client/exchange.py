"""How long did one request take, and where did the time go?

The broker tells its own tiers with the answer; what is left of the client's time is the network: the way there and
back, and both machines' share of it. Measures nothing itself.
"""

from typing import NamedTuple

from crescendo.wire.mlmq.codec import Times


class Exchange(NamedTuple):
    """One request of a client, from asking to knowing."""

    kind: str
    outcome: str  # ok, empty, unanswered, or the refusal
    asked_ns: int
    ended_ns: int
    attempts: int
    times: Times | None  # of the attempt that was answered; None when nobody answered

    @property
    def duration_ns(self) -> int:
        return self.ended_ns - self.asked_ns

    @property
    def network_ns(self) -> int | None:
        """None when the request was asked more than once: then nobody knows what the lost attempts spent where."""
        if self.times is None or self.attempts != 1:
            return None
        return self.duration_ns - sum(self.times)
