"""Where has one request spent its time?

A call is one request in flight through the broker. Every tier ends where the next one begins, so the tiers always add
up to the total: receive (first byte to last), queue (until a worker asks for a connection), pool (until it has one),
database, send (until its socket takes the answer), and wait: the time a dequeue waited for a message at its client's
request. Reads no clock itself.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from crescendo.wire.mlmq.codec import Times
from crescendo.wire.mlmq.operations import Answer, Dequeue, Query, Request

if TYPE_CHECKING:
    from crescendo.mlmq.broker.network import ClientConnection

ANY_QUEUE = 0


class Call:
    """One request, its connection, and its tiers so far."""

    __slots__ = (
        "answer", "arrivals_before", "connection", "database_ns", "deadline_ns", "keys", "mark_ns", "number",
        "pool_ns", "queue_ns", "receive_ns", "request", "selection", "send_ns", "wait_ns", "wants_times",
    )  # fmt: skip

    def __init__(
        self,
        connection: "ClientConnection",
        number: int,
        request: Request | None,  # None: an unreadable frame
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
        self.selection: Query | None = None  # of messages; equal for dequeues that one query can serve
        self.arrivals_before: tuple[int, int] | None = (
            None  # arrival counts before the database query; None: never queried
        )
        self.deadline_ns = 0
        if isinstance(request, Dequeue) and request.wait_ms:
            self.keys = waiting_keys(request)
            query = request.query
            self.selection = Query(query.queue, query.sender, query.context) if query.order else query
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
        """The tiers as they are sent with the answer."""
        return Times(self.receive_ns, self.queue_ns, self.pool_ns, self.database_ns, self.send_ns, self.wait_ns)

    @property
    def total_ns(self) -> int:
        return self.receive_ns + self.queue_ns + self.pool_ns + self.database_ns + self.wait_ns + self.send_ns


def client_key(client: int) -> int:
    """The key under which dequeues of one client wait: only they can see messages addressed to it."""
    return -client


def waiting_keys(request: Dequeue) -> dict[int, bool]:
    """The keys under which a dequeue waits, each with whether it is selective: not every message matches it."""
    query = request.query
    selective = query.queue is None or query.sender is not None or query.context is not None
    return {query.queue or ANY_QUEUE: selective, client_key(request.client): True}
