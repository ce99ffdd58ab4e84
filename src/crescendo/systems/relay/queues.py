"""Which clients send to the relay, which receive from it, and which messages are queued in between?

The state of the relay: connections with their links, and queues of messages. Makes no decisions.
"""

from collections import deque
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from crescendo.net.transport import Transport
from crescendo.wire.amqp10.batch import TransferBatch
from crescendo.wire.amqp10.connection import Connection

Octets = npt.NDArray[np.uint8]


@dataclass(eq=False)
class RelayClient:
    """One connection to the relay."""

    transport: Transport
    connection: Connection
    producers: dict[int, "Producer"] = field(default_factory=dict)
    consumers: dict[int, "Consumer"] = field(default_factory=dict)
    writable_watched: bool = False
    written_s: float = 0.0


@dataclass(eq=False)
class Producer:
    """A link on which a client sends to the relay."""

    client: RelayClient
    handle: int
    queues: "list[Queue]"
    credit: int = 0


@dataclass(eq=False)
class Consumer:
    """A link on which the relay sends to a client."""

    client: RelayClient
    handle: int
    queue: "Queue"
    settled: bool
    batch: TransferBatch | None = None
    unsettled: deque[tuple[int, Octets]] = field(default_factory=deque)


@dataclass(eq=False)
class Queue:
    """Queued messages, in batches whose messages have equal size."""

    waiting: deque[Octets] = field(default_factory=deque)
    depth: int = 0
    consumers: deque[Consumer] = field(default_factory=deque)

    def put(self, bodies: Octets) -> None:
        self.waiting.append(bodies)
        self.depth += len(bodies)

    def put_back(self, bodies: Octets) -> None:
        self.waiting.appendleft(bodies)
        self.depth += len(bodies)

    def take(self, count: int) -> Octets:
        """Up to `count` messages from the front, all of one size."""
        head = self.waiting.popleft()
        if len(head) > count:
            self.waiting.appendleft(head[count:])
            head = head[:count]
        self.depth -= len(head)
        return head
