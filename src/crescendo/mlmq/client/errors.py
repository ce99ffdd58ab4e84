"""What can go wrong with a request, in the words of whoever made it?

Two errors of the client, both kinds of those that all of Crescendo uses. Decides nothing.
"""

from crescendo.model.errors import LostError, PeerError
from crescendo.wire.mlmq.operations import Refusal, Refused

UNKNOWN = frozenset({Refusal.UNAVAILABLE, Refusal.INTERNAL})


class RefusedError(PeerError):
    """A broker answered, and the answer was no. Nothing was stored and nothing was taken, unless it could not tell."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(f"{refused.reason.name.lower().replace('_', ' ')}: {refused.text}")
        self.reason: Refusal = refused.reason

    @property
    def outcome_unknown(self) -> bool:
        """Whether the broker lost its database on the way: the request may have been served all the same."""
        return self.reason in UNKNOWN


class UnansweredError(LostError):
    """No broker answered in time, so nobody knows whether the request was served.

    A dequeue that ends like this loses nothing: the next one with the same query asks for the same answer again.
    """
