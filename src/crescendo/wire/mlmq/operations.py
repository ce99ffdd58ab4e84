"""What may a client of MLMQ request, and what may it get as an answer?

Every request and every answer is one self-contained frozen value: a request names its client, so any broker can serve
it and requests of many clients can share one statement. All limits are defined here. Does no I/O and decides nothing:
the storage does.
"""

import enum
from typing import Annotated, Final

from msgspec import Meta, Struct

from crescendo.model.protocols import MLMQ_CONTENT_BYTES, MLMQ_NAME_CHARACTERS

MAX_CONTENT_BYTES: Final = MLMQ_CONTENT_BYTES
MAX_NAME_CHARACTERS: Final = MLMQ_NAME_CHARACTERS
MAX_QUEUES_PER_SEND: Final = 100
MAX_MESSAGES_PER_ANSWER: Final = 100
MAX_QUEUES_PER_ANSWER: Final = 1_000
MAX_WAIT_MS: Final = 60_000
MAX_LEASE_MS: Final = 3_600_000
MAX_DELAY_MS: Final = 7 * 24 * 3_600_000
MAX_EXPIRY_MS: Final = 10 * 365 * 24 * 3_600_000
MAX_DELIVERIES: Final = 1_000
MAX_SLOTS: Final = 64  # requests of one session with an `Once` that may be in flight
MAX_BATCH: Final = 256  # requests that one statement may serve
LOWEST_PRIORITY: Final = 1
HIGHEST_PRIORITY: Final = 10

_LARGEST = 2**63 - 1
Id = Annotated[int, Meta(ge=1, le=_LARGEST)]
# PostgreSQL stores no NUL, and a control character would garble every list that shows the name.
Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_CHARACTERS, pattern=r"\A[^\x00-\x1f\x7f]+\Z")]
Priority = Annotated[int, Meta(ge=LOWEST_PRIORITY, le=HIGHEST_PRIORITY)]
ExpiryMs = Annotated[int, Meta(ge=1, le=MAX_EXPIRY_MS)]
LeaseMs = Annotated[int, Meta(ge=0, le=MAX_LEASE_MS)]


class Order(enum.IntEnum):
    """Which message comes first. Ties are broken by id, so the order is total."""

    PRIORITY = 0  # the highest priority, then the oldest
    AGE = 1  # the oldest, regardless of priority


class Refusal(enum.IntEnum):
    """Why a request was not served. Nothing was stored and nothing was taken."""

    INVALID = 1  # the request is not valid; the text says why
    UNKNOWN_KIND = 2  # a frame type that this broker does not know
    TOO_LARGE = 3
    NO_SUCH_CLIENT = 4
    NO_SUCH_QUEUE = 5
    NOT_YOURS = 6  # another client's own queue, or a queue that another client created
    NAME_TAKEN = 7  # clients and public queues share one set of names
    STALE = 8  # a later request has used the slot: the client has already got this answer, or has given up
    OVERLOADED = 9  # shed unserved; retry later
    UNAVAILABLE = 10  # the database is down or refuses; the outcome is unknown, so retry with the same `Once`
    CLOSING = 11  # this broker is shutting down; use another one
    INTERNAL = 12  # an internal error of the broker; the outcome is unknown


class _Value(Struct, frozen=True, array_like=True, gc=False):
    """Encoded as an array: fields may be appended, never moved."""


class Once(_Value, frozen=True, array_like=True):
    """Makes a request safe to retry after its answer was lost.

    A session has slots, and a slot remembers its last request. The same number gets the same answer again; a higher
    number is a new request and confirms the previous answer; a lower one is stale. The registration returns `session`.
    Only one request at a time may use a slot.
    """

    session: Id
    slot: Annotated[int, Meta(ge=0, lt=MAX_SLOTS)]
    number: Id


class Query(_Value, frozen=True, array_like=True):
    """Selects the messages that pass every given filter. At least one filter is required.

    Without `queue`: the client's own queue and all public ones. Messages for another receiver are never visible.
    """

    queue: Id | None = None
    sender: Id | None = None
    context: Id | None = None
    order: Order = Order.PRIORITY

    def __post_init__(self) -> None:
        if self.queue is None and self.sender is None and self.context is None:
            raise ValueError("name a queue, a sender or a context")


class Delivery(_Value, frozen=True, array_like=True):
    """One delivery of one message. A redelivery is another delivery, and invalidates the previous one."""

    message: Id
    delivery: Id


class Register(_Value, frozen=True, array_like=True):
    """Register as the client of this name, new or existing. Answer: `Registered`."""

    name: Name


class Deregister(_Value, frozen=True, array_like=True):
    """Delete a client, its own queue and the messages in it. Public queues that it created stay, without an owner."""

    client: Id


class CreateQueue(_Value, frozen=True, array_like=True):
    """Create a public queue, or find the one of this name. Answer: `QueueFound`."""

    client: Id
    name: Name


class DeleteQueue(_Value, frozen=True, array_like=True):
    """Delete a public queue and its messages: by its owner, or by any client if it has no owner. Answer: `Done`."""

    client: Id
    queue: Id


class LookupClient(_Value, frozen=True, array_like=True):
    """Answer: `ClientFound`."""

    name: Name


class LookupQueue(_Value, frozen=True, array_like=True):
    """Find a queue by its name, or a client's own queue by the client. Answer: `QueueFound`."""

    name: Name | None = None
    client: Id | None = None

    def __post_init__(self) -> None:
        if (self.name is None) == (self.client is None):
            raise ValueError("name either the queue or the client")


class Send(_Value, frozen=True, array_like=True):
    """Store one message in each of the queues, or in none. Answer: `Sent`.

    With `receiver` only that client will see it; with a receiver and no queue it is stored in the receiver's own queue.
    `context` links a response to its request; `new_context` requests a new one, which the answer returns.
    """

    client: Id
    content: bytes
    queues: Annotated[tuple[Id, ...], Meta(max_length=MAX_QUEUES_PER_SEND)] = ()
    priority: Priority = 5
    receiver: Id | None = None
    context: Id | None = None
    new_context: bool = False
    once: Once | None = None
    delay_ms: Annotated[int, Meta(ge=0, le=MAX_DELAY_MS)] = 0  # not handed out before
    expiry_ms: ExpiryMs | None = None  # not handed out later; None: as long as its queue keeps messages

    def __post_init__(self) -> None:
        if not self.queues and self.receiver is None:
            raise ValueError("name a queue or a receiver")
        if len(set(self.queues)) != len(self.queues):
            raise ValueError("a queue is named twice")
        if self.new_context and self.context is not None:
            raise ValueError("give a context or request a new one")


class SendMany(_Value, frozen=True, array_like=True):
    """Store several messages in one queue, in this order: all of them or none. Answer: `Sent`."""

    client: Id
    queue: Id
    contents: Annotated[tuple[bytes, ...], Meta(min_length=1, max_length=MAX_MESSAGES_PER_ANSWER)]
    priority: Priority = 5
    once: Once | None = None
    delay_ms: Annotated[int, Meta(ge=0, le=MAX_DELAY_MS)] = 0
    expiry_ms: ExpiryMs | None = None


class ConfigureQueue(_Value, frozen=True, array_like=True):
    """Set the limits of a queue, by its owner, or by any client if it has none. Answer: `Done`.

    A message whose lease has ended `max_deliveries` times without an acknowledgement moves to the queue `dead_letters`.
    Messages that are older than `retention_ms` are deleted. None: no such limit.
    """

    client: Id
    queue: Id
    max_deliveries: Annotated[int, Meta(ge=1, le=MAX_DELIVERIES)] | None = None
    dead_letters: Id | None = None
    retention_ms: ExpiryMs | None = None

    def __post_init__(self) -> None:
        if (self.max_deliveries is None) != (self.dead_letters is None):
            raise ValueError("a limit of deliveries needs a queue for dead letters, and the other way round")
        if self.dead_letters == self.queue:
            raise ValueError("a queue cannot be the queue of its own dead letters")


class Peek(_Value, frozen=True, array_like=True):
    """Read the first messages without removing them. Answer: `Messages`, possibly empty."""

    client: Id
    query: Query
    count: Annotated[int, Meta(ge=1, le=MAX_MESSAGES_PER_ANSWER)] = 1


class Dequeue(_Value, frozen=True, array_like=True):
    """Take the first messages. Answer: `Messages`, possibly empty.

    With a lease they stay stored until acknowledged, and are redelivered when the lease expires. Without one they are
    removed when the answer is sent; with an `Once`, a lost answer can be requested again. `wait_ms` is how long the
    broker may wait for a first message; the storage never waits.
    """

    client: Id
    query: Query
    count: Annotated[int, Meta(ge=1, le=MAX_MESSAGES_PER_ANSWER)] = 1
    lease_ms: LeaseMs = 0
    wait_ms: Annotated[int, Meta(ge=0, le=MAX_WAIT_MS)] = 0
    once: Once | None = None


class Acknowledge(_Value, frozen=True, array_like=True):
    """Remove leased messages permanently. Answer: `Settled`."""

    client: Id
    deliveries: Annotated[tuple[Delivery, ...], Meta(min_length=1, max_length=MAX_MESSAGES_PER_ANSWER)]


class Extend(_Value, frozen=True, array_like=True):
    """Set leases to expire this long from now. 0 releases the messages at once. Answer: `Settled`."""

    client: Id
    deliveries: Annotated[tuple[Delivery, ...], Meta(min_length=1, max_length=MAX_MESSAGES_PER_ANSWER)]
    lease_ms: LeaseMs


class Abandon(_Value, frozen=True, array_like=True):
    """Give up dequeues whose answers never arrived. Answer: `Done`.

    Each `Once` has the number after the dequeue's. Messages that were taken for it return to their queues, marked as
    delivered before, and copies of it that are still on their way become stale.
    """

    client: Id
    onces: Annotated[tuple[Once, ...], Meta(min_length=1, max_length=MAX_SLOTS)]


class Pending(_Value, frozen=True, array_like=True):
    """How many messages are in my own queue, and which public queues hold some for me? Answer: `PendingFound`."""

    client: Id
    max_queues: Annotated[int, Meta(ge=0, le=MAX_QUEUES_PER_ANSWER)] = 100


class Message(_Value, frozen=True, array_like=True):
    """A message as a client sees it. `delivery` counts its deliveries; 0 if it was only peeked at."""

    id: int
    queue: int
    sender: int
    receiver: int | None
    priority: int
    context: int | None
    sent_us: int  # the database's clock, since 1970
    delivery: int
    content: bytes

    @property
    def redelivered(self) -> bool:
        """Whether a client may have received it before."""
        return self.delivery > 1


class Registered(_Value, frozen=True, array_like=True):
    client: int
    queue: int  # the client's own
    session: int  # never reused; see `Once`


class ClientFound(_Value, frozen=True, array_like=True):
    client: int
    name: str


class QueueFound(_Value, frozen=True, array_like=True):
    queue: int
    name: str
    client: int | None  # the client whose own queue it is; None: a public queue
    owner: int | None  # the client that created a public queue; None: that client is deregistered


class Done(_Value, frozen=True, array_like=True):
    """The request took effect."""


class Sent(_Value, frozen=True, array_like=True):
    messages: tuple[int, ...]  # one per queue, in the order of the request
    context: int | None


class Messages(_Value, frozen=True, array_like=True):
    messages: tuple[Message, ...] = ()


class Settled(_Value, frozen=True, array_like=True):
    """`gone` lists deliveries that the client no longer held: already acknowledged, or delivered to another client."""

    gone: tuple[Delivery, ...] = ()


class PendingFound(_Value, frozen=True, array_like=True):
    own: int
    queues: tuple[QueueFound, ...]


class Refused(_Value, frozen=True, array_like=True):
    reason: Refusal
    text: str


Request = (
    Register | Deregister | CreateQueue | DeleteQueue | LookupClient | LookupQueue
    | Send | Peek | Dequeue | Acknowledge | Extend | Pending | Abandon | SendMany | ConfigureQueue
)  # fmt: skip
Answer = Registered | ClientFound | QueueFound | Done | Sent | Messages | Settled | PendingFound | Refused

# Type numbers on the wire: requests from 1, answers from 64. A number is never reused for another type.
REQUESTS: Final[dict[int, type[Request]]] = {
    1: Register,
    2: Deregister,
    3: CreateQueue,
    4: DeleteQueue,
    5: LookupClient,
    6: LookupQueue,
    7: Send,
    8: Peek,
    9: Dequeue,
    10: Acknowledge,
    11: Extend,
    12: Pending,
    13: Abandon,
    14: SendMany,
    15: ConfigureQueue,
}
ANSWERS: Final[dict[int, type[Answer]]] = {
    64: Registered,
    65: ClientFound,
    66: QueueFound,
    67: Done,
    68: Sent,
    69: Messages,
    70: Settled,
    71: PendingFound,
    72: Refused,
}
TYPES: Final[dict[int, type[Request] | type[Answer]]] = {**REQUESTS, **ANSWERS}


def refusal_of(request: Request) -> Refused | None:
    """Why a well-formed request is refused, or None. Content size has its own reason, so the type does not limit it."""
    if isinstance(request, Send):
        size = len(request.content)
    elif isinstance(request, SendMany):
        size = max(map(len, request.contents))
    else:
        return None
    if size > MAX_CONTENT_BYTES:
        return Refused(Refusal.TOO_LARGE, f"the content has {size} bytes; at most {MAX_CONTENT_BYTES} are stored")
    return None
