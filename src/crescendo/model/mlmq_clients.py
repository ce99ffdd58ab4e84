"""Which of MLMQ's own clients take part, and what does each of them do?

A group of clients relays tokens, asks and answers, fills or empties a public queue, or sends so many messages to
itself, as in the seed. Unlike senders and receivers they are closed loops: the next action follows the last, after a
pause. Values only; everything a person can get wrong about them is refused here. Connects to nothing.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from crescendo.model.address import MLMQ_CONTENT_BYTES
from crescendo.model.payload import STAMP_BYTES
from crescendo.model.units import Duration, Size

SCHEME = "mlmq"
URL_OPTIONS = {SCHEME: ("brokers",)}
"""What a URL may say behind its question mark, where that is not about TLS."""

CLIENT = "client"
"""The role of the processes that clients live in."""

COUNTER_BYTES = 16
LEAST_BYTES = STAMP_BYTES + COUNTER_BYTES
"""A content begins with a stamp, so that the ledger knows it, and with the workload's own two counters."""

LEAST_DRAIN = Duration(2 * 10**9)
LONGEST_POLL = Duration(60 * 10**9)
_NAME = r"^[A-Za-z][A-Za-z0-9_-]{0,29}$"


class ClientKind(StrEnum):
    ONE_WAY = "one-way"  # a token each, relayed to a random client of the group; its counter rises by one a hop
    PAIRED = "paired"  # the first of two asks, the second answers
    PRODUCER = "producer"  # fills a public queue
    CONSUMER = "consumer"  # empties it
    SIMPLE_SEND = "simple-send"  # sends so many messages to itself, and takes them back


QUEUEING = {ClientKind.PRODUCER, ClientKind.CONSUMER}


class Clients(Struct, frozen=True, forbid_unknown_fields=True):
    """A group of clients of one kind."""

    name: Annotated[str, Meta(pattern=_NAME)]
    kind: str
    count: Annotated[int, Meta(ge=1, le=10_000)] = 1
    wait: Duration = Duration(0)  # the pause after each action
    timeout: Duration = Duration(10**9)  # who is answered later than this has not been served
    poll: Duration = Duration(10**9)  # how long a broker may wait for a message; 0: it says empty at once
    size: Size = Size(200)
    priority: Annotated[int, Meta(ge=1, le=10)] = 5
    queue: Annotated[str, Meta(pattern=_NAME)] = "public"
    messages: Annotated[int, Meta(ge=1, le=100_000_000)] | None = None  # of each simple-send client
    group_size: Annotated[int, Meta(ge=1, le=10_000)] | None = None  # so many begin together, the next ones later
    group_delay: Duration = Duration(0)
    breakup: bool = True  # whether the tiers of each request are recorded

    def __post_init__(self) -> None:
        if self.kind not in list(ClientKind):
            raise ValueError(f"kind {self.kind!r} is no workload of MLMQ; choose from {', '.join(ClientKind)}")
        if not LEAST_BYTES <= self.size <= MLMQ_CONTENT_BYTES:
            raise ValueError(f"size {self.size}: a content has {LEAST_BYTES} to {MLMQ_CONTENT_BYTES} bytes")
        if self.timeout < 1_000_000:
            raise ValueError("timeout must be at least 1ms")
        if self.poll > LONGEST_POLL:
            raise ValueError(f"poll: a broker waits at most {LONGEST_POLL}")
        if (self.group_size is None) != (self.group_delay == 0):
            raise ValueError("group_size and group_delay go together: so many clients, then a pause before the next")
        if (self.kind == ClientKind.SIMPLE_SEND) == (self.messages is None):
            raise ValueError("messages says how many each simple-send client sends; it goes with that kind alone")
        if self.kind == ClientKind.PAIRED and (self.count % 2 or (self.group_size or 0) % 2):
            raise ValueError("paired clients come in twos; make count, and group_size where it is given, even")
        if self.kind == ClientKind.ONE_WAY and self.count < 2:
            raise ValueError("one-way clients relay to one another; there must be two or more")

    def begins_ns(self, index: int) -> int:
        """How long after the start the index-th client of the group begins."""
        return 0 if self.group_size is None else index // self.group_size * int(self.group_delay)

    def share(self, process: int, processes: int) -> range:
        """Which of its clients one of the processes has: neighbours, so that pairs stay together."""
        unit = 2 if self.kind == ClientKind.PAIRED else 1
        units = self.count // unit
        return range(process * units // processes * unit, (process + 1) * units // processes * unit)

    def meeting(self, index: int, processes: int) -> str:
        """Where its messages meet those who are owed them, as the ledger sees it: anybody there may get each one."""
        if self.kind in QUEUEING:
            return f"queue://{self.queue}"
        if self.kind == ClientKind.PAIRED:
            return f"clients://{self.name}/{index // 2}"
        if self.kind == ClientKind.SIMPLE_SEND:
            return f"clients://{self.name}/{index}"
        process = next(number for number in range(processes) if index in self.share(number, processes))
        return f"clients://{self.name}/{process}"


def check_clients(groups: Sequence[Clients], processes: int) -> None:
    """Refuse what no run could carry out, or nobody could check."""
    produced = {group.queue for group in groups if group.kind == ClientKind.PRODUCER}
    consumed = {group.queue for group in groups if group.kind == ClientKind.CONSUMER}
    if unheard := sorted(produced - consumed):
        raise ValueError(f"clients: nobody consumes from {unheard[0]}; add a group of kind consumer with that queue")
    if unfed := sorted(consumed - produced):
        raise ValueError(f"clients: nobody produces for {unfed[0]}; add a group of kind producer with that queue")
    for group in groups:
        if group.kind == ClientKind.ONE_WAY and group.count < 2 * processes:
            raise ValueError(
                f"clients.{group.name}: each of {processes} processes relays among its own clients and needs two or "
                f"more; make count at least {2 * processes}, or peers.clients smaller"
            )
