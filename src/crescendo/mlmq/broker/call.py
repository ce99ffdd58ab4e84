"""Where has one request spent its time?

A call is one request on its way through the broker. Every tier ends where the next one begins, so the tiers always add
up to the whole: receive (first byte to last), queue (until a worker asks for a connection), pool (until it has one),
database, send (until its socket takes the answer), and wait: what a dequeue spent waiting for a message because it was
asked to. Reads no clock itself.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from crescendo.wire.mlmq.codec import Times
from crescendo.wire.mlmq.operations import Answer, Dequeue, Request

if TYPE_CHECKING:
    from crescendo.mlmq.broker.network import ClientConnection

ANY_QUEUE = 0


class Call:
    """One request, its connection, and its tiers so far."""

    __slots__ = (
        "answer", "before", "connection", "database_ns", "deadline_ns", "keys", "mark_ns", "number",
        "pool_ns", "queue_ns", "receive_ns", "request", "send_ns", "wait_ns", "wants_times",
    )  # fmt: skip

    def __init__(
        self,
        connection: "ClientConnection",
        number: int,
        request: Request | None,  # None: a frame that could not be read
        first_byte_ns: int,
        received_ns: int,
        wants_times: bool = False,
    ) -> None:
        self.connection = connection
        self.number = number
        self.request = request
        self.wants_times = wants_times
        self.receive_ns = received_ns - first_byte_ns
        self.queue_ns = self.pool_ns = self.database_ns = self.send_ns = self.wait_ns = 0
        self.mark_ns = received_ns
        self.answer: Answer | None = None
        self.keys: Mapping[int, bool] = {}
        self.before: tuple[int, int] | None = None  # what had come when the database was asked; None: it never was
        self.deadline_ns = 0
        if isinstance(request, Dequeue) and request.wait_ms:
            self.keys = waiting_keys(request)
            self.deadline_ns = received_ns + request.wait_ms * 1_000_000

    def queued(self, now_ns: int) -> None:
        self.queue_ns += now_ns - self.mark_ns
        self.mark_ns = now_ns

    def pooled(self, now_ns: int) -> None:
        self.pool_ns += now_ns - self.mark_ns
        self.mark_ns = now_ns

    def stored(self, now_ns: int) -> None:
        self.database_ns += now_ns - self.mark_ns
        self.mark_ns = now_ns

    def waited(self, now_ns: int) -> None:
        self.wait_ns += now_ns - self.mark_ns
        self.mark_ns = now_ns

    def sent(self, now_ns: int) -> None:
        self.send_ns += now_ns - self.mark_ns
        self.mark_ns = now_ns

    def times(self) -> Times:
        """As they travel with the answer."""
        return Times(self.receive_ns, self.queue_ns, self.pool_ns, self.database_ns, self.send_ns, self.wait_ns)

    @property
    def total_ns(self) -> int:
        return self.receive_ns + self.queue_ns + self.pool_ns + self.database_ns + self.wait_ns + self.send_ns


def client_key(client: int) -> int:
    """Under this key wait the dequeues of one client: only they can see what is meant for it alone."""
    return -client


def waiting_keys(request: Dequeue) -> dict[int, bool]:
    """Under which keys a dequeue waits, and whether it is choosy there: any message may not suit it."""
    query = request.query
    choosy = query.queue is None or query.sender is not None or query.context is not None
    return {query.queue or ANY_QUEUE: choosy, client_key(request.client): True}
