"""Which errors can a request of a client end with?

Two errors of the client, both derived from the errors of Crescendo. Decides nothing.
"""

from crescendo.model.errors import LostError, PeerError
from crescendo.wire.mlmq.operations import Refusal, Refused

OUTCOME_UNKNOWN = frozenset({Refusal.UNAVAILABLE, Refusal.INTERNAL})


class RefusedError(PeerError):
    """A broker refused the request. Nothing was stored or taken, unless the outcome is unknown."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(f"{refused.reason.name.lower().replace('_', ' ')}: {refused.text}")
        self.reason: Refusal = refused.reason

    @property
    def outcome_unknown(self) -> bool:
        """Whether the broker lost its database meanwhile: the request may have been served nevertheless."""
        return self.reason in OUTCOME_UNKNOWN


class UnansweredError(LostError):
    """No broker answered in time, so it is unknown whether the request was served.

    A dequeue that ends like this loses nothing: the next one with the same query requests the same answer again.
    """
