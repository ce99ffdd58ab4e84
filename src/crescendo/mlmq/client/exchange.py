"""How long did one request take, and in which tiers?

The broker sends its own tiers with the answer; the rest of the client's time is the network: both directions, and the
share of both machines in it. Measures nothing itself.
"""

from typing import NamedTuple

from crescendo.wire.mlmq.codec import Times


class Exchange(NamedTuple):
    """One request of a client, from sending it to knowing its outcome."""

    kind: str
    outcome: str  # ok, empty, unanswered, or the refusal
    asked_ns: int
    ended_ns: int
    attempts: int
    times: Times | None  # of the answered attempt; None without an answer

    @property
    def duration_ns(self) -> int:
        return self.ended_ns - self.asked_ns

    @property
    def network_ns(self) -> int | None:
        """None after a retry: the tiers of the lost attempts are unknown."""
        if self.times is None or self.attempts != 1:
            return None
        return self.duration_ns - sum(self.times)
