"""Which MLMQ clients take part in a run, and what does each of them do?

A group of clients relays tokens, exchanges requests and replies, fills or empties a public queue, or sends a number of
messages to itself, like the workloads of the original MLMQ. Unlike senders and receivers, clients are closed loops: the
next action follows the last, after a pause. Values only; every mistake in them is rejected here. Connects to nothing.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from crescendo.model.payload import STAMP_BYTES
from crescendo.model.protocols import MLMQ_CONTENT_BYTES
from crescendo.model.suggestions import listing
from crescendo.model.units import Duration, Size

CLIENT = "client"
"""The role of the processes that run clients."""

COUNTER_BYTES = 16
MIN_CONTENT_BYTES = STAMP_BYTES + COUNTER_BYTES
"""A content begins with a stamp, which identifies it in the ledger, and the two counters of the workload."""

MAX_PER_CONNECTION = 32
"""A broker stops reading from a connection with 64 unanswered requests."""

MIN_DRAIN = Duration(2 * 10**9)
MAX_POLL = Duration(60 * 10**9)
_NAME = r"^[A-Za-z][A-Za-z0-9_-]{0,29}$"


class ClientKind(StrEnum):
    ONE_WAY = (
        "one-way"  # one token per client, relayed to a random client of the group; each hop increments its counter
    )
    PAIRED = "paired"  # the first of two sends requests, the second replies
    PRODUCER = "producer"  # fills a public queue
    CONSUMER = "consumer"  # empties it
    SIMPLE_SEND = "simple-send"  # sends a number of messages to itself and receives them


QUEUE_KINDS = {ClientKind.PRODUCER, ClientKind.CONSUMER}


class Clients(Struct, frozen=True, forbid_unknown_fields=True):
    """A group of clients of one kind."""

    name: Annotated[str, Meta(pattern=_NAME)]
    kind: str
    count: Annotated[int, Meta(ge=1, le=10_000)] = 1
    wait: Duration = Duration(0)  # the pause after each action
    timeout: Duration = Duration(10**9)  # a request answered later than this counts as not served
    poll: Duration = Duration(10**9)  # how long a broker may wait for a message; 0: it answers "empty" at once
    size: Size = Size(200)
    priority: Annotated[int, Meta(ge=1, le=10)] = 5
    queue: Annotated[str, Meta(pattern=_NAME)] = "public"
    messages: Annotated[int, Meta(ge=1, le=100_000_000)] | None = None  # of each simple-send client
    group_size: Annotated[int, Meta(ge=1, le=10_000)] | None = (
        None  # how many start together; the next ones start later
    )
    group_delay: Duration = Duration(0)
    breakup: bool = True  # whether the time of each request is recorded by tier
    per_connection: Annotated[int, Meta(ge=1, le=MAX_PER_CONNECTION)] = 1  # clients that share a connection

    def __post_init__(self) -> None:
        if self.kind not in list(ClientKind):
            raise ValueError(f"kind {self.kind!r} is not a workload of MLMQ; {listing(self.kind, ClientKind)}")
        if not MIN_CONTENT_BYTES <= self.size <= MLMQ_CONTENT_BYTES:
            raise ValueError(f"size {self.size}: a message has {MIN_CONTENT_BYTES} to {MLMQ_CONTENT_BYTES} bytes")
        if self.timeout < 1_000_000:
            raise ValueError("timeout must be at least 1ms")
        if self.poll > MAX_POLL:
            raise ValueError(f"poll: a broker waits at most {MAX_POLL}")
        if (self.group_size is None) != (self.group_delay == 0):
            raise ValueError("group_size and group_delay go together: a batch of clients, then a pause before the next")
        if (self.kind == ClientKind.SIMPLE_SEND) == (self.messages is None):
            raise ValueError("messages is how many each simple-send client sends; that kind needs it, no other has it")
        if self.kind == ClientKind.PAIRED and (self.count % 2 or (self.group_size or 0) % 2):
            raise ValueError("paired clients come in twos; make count even, and group_size if given")
        if self.kind == ClientKind.ONE_WAY and self.count < 2:
            raise ValueError("one-way clients relay to one another; make count at least 2")

    def begins_ns(self, index: int) -> int:
        """How long after the start of the run the index-th client of the group begins."""
        return 0 if self.group_size is None else index // self.group_size * int(self.group_delay)

    def share(self, process: int, processes: int) -> range:
        """The clients that one of the processes runs: consecutive ones, so that pairs stay together."""
        unit = 2 if self.kind == ClientKind.PAIRED else 1
        units = self.count // unit
        return range(process * units // processes * unit, (process + 1) * units // processes * unit)

    def shared_address(self, index: int, processes: int) -> str:
        """The address its messages share with their receivers in the ledger: any receiver there may get each one."""
        if self.kind in QUEUE_KINDS:
            return f"queue://{self.queue}"
        if self.kind == ClientKind.PAIRED:
            return f"clients://{self.name}/{index // 2}"
        if self.kind == ClientKind.SIMPLE_SEND:
            return f"clients://{self.name}/{index}"
        process = next(number for number in range(processes) if index in self.share(number, processes))
        return f"clients://{self.name}/{process}"


def check_clients(groups: Sequence[Clients], processes: int) -> None:
    """Reject groups that cannot run, or whose messages could not be checked."""
    produced = {group.queue for group in groups if group.kind == ClientKind.PRODUCER}
    consumed = {group.queue for group in groups if group.kind == ClientKind.CONSUMER}
    if no_consumer := sorted(produced - consumed):
        raise ValueError(f"clients: no consumer on {no_consumer[0]}; add a group of kind consumer with that queue")
    if no_producer := sorted(consumed - produced):
        raise ValueError(f"clients: no producer on {no_producer[0]}; add a group of kind producer with that queue")
    for group in groups:
        if group.kind == ClientKind.ONE_WAY and group.count < 2 * processes:
            raise ValueError(
                f"clients.{group.name}: each of {processes} processes relays among its own clients and needs at "
                f"least two; make count at least {2 * processes}, or peers.clients smaller"
            )
