"""What may a client of MLMQ ask for, and what may it be told?

Every request and every answer is one frozen value, complete in itself: a request names its client, so any broker can
serve it and requests of many clients can share one statement. All limits are named here. Does no I/O and decides
nothing: the storage does.
"""

import enum
from typing import Annotated, Final

from msgspec import Meta, Struct

from crescendo.model.address import MLMQ_CONTENT_BYTES, MLMQ_NAME_CHARACTERS

MAX_CONTENT_BYTES: Final = MLMQ_CONTENT_BYTES
MAX_NAME_CHARACTERS: Final = MLMQ_NAME_CHARACTERS
MAX_QUEUES_PER_SEND: Final = 100
MAX_MESSAGES_PER_ANSWER: Final = 100
MAX_QUEUES_PER_ANSWER: Final = 1_000
MAX_WAIT_MS: Final = 60_000
MAX_LEASE_MS: Final = 3_600_000
MAX_SLOTS: Final = 64  # requests of one session that may be under way with an `Once`
MAX_BATCH: Final = 256  # requests that one statement may serve
LOWEST_PRIORITY: Final = 1
HIGHEST_PRIORITY: Final = 10

_LARGEST = 2**63 - 1
Id = Annotated[int, Meta(ge=1, le=_LARGEST)]
# PostgreSQL stores no NUL, and a name that moves the cursor would spoil every list it appears in.
Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_CHARACTERS, pattern=r"\A[^\x00-\x1f\x7f]+\Z")]
Priority = Annotated[int, Meta(ge=LOWEST_PRIORITY, le=HIGHEST_PRIORITY)]
LeaseMs = Annotated[int, Meta(ge=0, le=MAX_LEASE_MS)]


class Order(enum.IntEnum):
    """Which message is the first. Ties are broken by id, so there is always exactly one."""

    PRIORITY = 0  # the highest priority, then the oldest
    AGE = 1  # the oldest, whatever its priority


class Refusal(enum.IntEnum):
    """Why a request was not served. Nothing was stored and nothing was taken."""

    INVALID = 1  # the request makes no sense; the text says why
    UNKNOWN_KIND = 2  # a frame type that this broker does not know
    TOO_LARGE = 3
    NO_SUCH_CLIENT = 4
    NO_SUCH_QUEUE = 5
    NOT_YOURS = 6  # another client's own queue, or a queue that another client has created
    NAME_TAKEN = 7  # clients and public queues share one set of names
    STALE = 8  # a later request has used the slot: whoever sent this has had its answer, or has given up
    OVERLOADED = 9  # shed unserved; ask again later
    UNAVAILABLE = 10  # the database is away or refuses; the outcome is unknown, so repeat with the same `Once`
    CLOSING = 11  # this broker is shutting down; ask another one
    INTERNAL = 12  # a fault of the broker; the outcome is unknown


class _Value(Struct, frozen=True, array_like=True, gc=False):
    """Travels as an array: fields may be added at the end, never moved."""


class Once(_Value, frozen=True, array_like=True):
    """Makes a request safe to repeat when its answer was lost.

    A session has slots, and a slot remembers its last request. The same number again gets the same answer again; a
    higher one is new, and says that the answer before it has arrived; a lower one is stale. `session` comes with the
    registration. A slot is used by one request at a time.
    """

    session: Id
    slot: Annotated[int, Meta(ge=0, lt=MAX_SLOTS)]
    number: Id


class Query(_Value, frozen=True, array_like=True):
    """Which messages are meant: those that pass every filter given. At least one must be given.

    Without `queue`: the client's own queue and all public ones. Messages for another receiver are never seen.
    """

    queue: Id | None = None
    sender: Id | None = None
    context: Id | None = None
    order: Order = Order.PRIORITY

    def __post_init__(self) -> None:
        if self.queue is None and self.sender is None and self.context is None:
            raise ValueError("name a queue, a sender or a context")


class Delivery(_Value, frozen=True, array_like=True):
    """One handing out of one message. A message handed out again is another delivery, and the former one is void."""

    message: Id
    delivery: Id


class Register(_Value, frozen=True, array_like=True):
    """Become the client of that name, new or known. Answer: `Registered`."""

    name: Name


class Deregister(_Value, frozen=True, array_like=True):
    """Forget a client, its own queue and what is in it. Public queues that it created stay, owned by nobody."""

    client: Id


class CreateQueue(_Value, frozen=True, array_like=True):
    """Create a public queue, or find the one of that name. Answer: `QueueFound`."""

    client: Id
    name: Name


class DeleteQueue(_Value, frozen=True, array_like=True):
    """Delete a public queue and what is in it: by its owner, or by anybody when nobody owns it. Answer: `Done`."""

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

    With `receiver` only that client will see it; with a receiver and no queue it goes to the receiver's own queue.
    `context` ties a response to its request; `new_context` asks for a fresh one, which the answer names.
    """

    client: Id
    content: bytes
    queues: Annotated[tuple[Id, ...], Meta(max_length=MAX_QUEUES_PER_SEND)] = ()
    priority: Priority = 5
    receiver: Id | None = None
    context: Id | None = None
    new_context: bool = False
    once: Once | None = None

    def __post_init__(self) -> None:
        if not self.queues and self.receiver is None:
            raise ValueError("name a queue or a receiver")
        if len(set(self.queues)) != len(self.queues):
            raise ValueError("a queue is named twice")
        if self.new_context and self.context is not None:
            raise ValueError("give a context or ask for a new one")


class Peek(_Value, frozen=True, array_like=True):
    """Read the first messages and leave them. Answer: `Messages`, perhaps of none."""

    client: Id
    query: Query
    count: Annotated[int, Meta(ge=1, le=MAX_MESSAGES_PER_ANSWER)] = 1


class Dequeue(_Value, frozen=True, array_like=True):
    """Get the first messages. Answer: `Messages`, perhaps of none.

    With a lease they stay stored until acknowledged, and are given again when the lease is over. Without one they are
    gone when the answer leaves; give an `Once`, and a lost answer can be asked for again. `wait_ms` is how long the
    broker may wait for a first message; the storage never waits.
    """

    client: Id
    query: Query
    count: Annotated[int, Meta(ge=1, le=MAX_MESSAGES_PER_ANSWER)] = 1
    lease_ms: LeaseMs = 0
    wait_ms: Annotated[int, Meta(ge=0, le=MAX_WAIT_MS)] = 0
    once: Once | None = None


class Acknowledge(_Value, frozen=True, array_like=True):
    """Remove leased messages for good. Answer: `Settled`."""

    client: Id
    deliveries: Annotated[tuple[Delivery, ...], Meta(min_length=1, max_length=MAX_MESSAGES_PER_ANSWER)]


class Extend(_Value, frozen=True, array_like=True):
    """Let leases last that long from now. 0 gives the messages back at once. Answer: `Settled`."""

    client: Id
    deliveries: Annotated[tuple[Delivery, ...], Meta(min_length=1, max_length=MAX_MESSAGES_PER_ANSWER)]
    lease_ms: LeaseMs


class Pending(_Value, frozen=True, array_like=True):
    """How many messages wait in my own queue, and which public queues hold some for me? Answer: `PendingFound`."""

    client: Id
    max_queues: Annotated[int, Meta(ge=0, le=MAX_QUEUES_PER_ANSWER)] = 100


class Message(_Value, frozen=True, array_like=True):
    """A message as a client sees it. `delivery` counts how often it was handed out; 0 when it was only peeked at."""

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
        """Whether somebody may have had it before."""
        return self.delivery > 1


class Registered(_Value, frozen=True, array_like=True):
    client: int
    queue: int  # the client's own
    session: int  # never given before; see `Once`


class ClientFound(_Value, frozen=True, array_like=True):
    client: int
    name: str


class QueueFound(_Value, frozen=True, array_like=True):
    queue: int
    name: str
    client: int | None  # whose own queue it is; None: a public one
    owner: int | None  # who created a public one; None: that client is gone


class Done(_Value, frozen=True, array_like=True):
    """It is as you wanted."""


class Sent(_Value, frozen=True, array_like=True):
    messages: tuple[int, ...]  # one for each queue, in the order of the request
    context: int | None


class Messages(_Value, frozen=True, array_like=True):
    messages: tuple[Message, ...] = ()


class Settled(_Value, frozen=True, array_like=True):
    """`gone` lists what you no longer held: acknowledged before, or given to somebody else."""

    gone: tuple[Delivery, ...] = ()


class PendingFound(_Value, frozen=True, array_like=True):
    own: int
    queues: tuple[QueueFound, ...]


class Refused(_Value, frozen=True, array_like=True):
    reason: Refusal
    text: str


Request = (
    Register | Deregister | CreateQueue | DeleteQueue | LookupClient | LookupQueue
    | Send | Peek | Dequeue | Acknowledge | Extend | Pending
)  # fmt: skip
Answer = Registered | ClientFound | QueueFound | Done | Sent | Messages | Settled | PendingFound | Refused

# Numbers are the wire's: requests from 1, answers from 64. A number is never given to another kind.
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


def refusal_of(request: Request) -> Refused | None:
    """What is wrong with a request that decoded well. Content has its own reason, so the type does not limit it."""
    if isinstance(request, Send) and len(request.content) > MAX_CONTENT_BYTES:
        return Refused(
            Refusal.TOO_LARGE, f"the content has {len(request.content)} bytes; at most {MAX_CONTENT_BYTES} are stored"
        )
    return None
