"""Which queues are known to be empty, so that a dequeue need not query the database?

Every stored message triggers a query: by a dequeue that waits for it here, or else by the other brokers, which are
notified. So after a query that found nothing, a queue holds at most what has arrived since, less what was taken. A
dequeue that would wait anyway can then wait at once: more than half of all queries were such. Messages that become
available without a notice (a lease ends, a notice is lost) are found by the poll, as before. Messages addressed to one
client are counted separately, because other clients do not see them. Never queries the database.
"""

from collections.abc import Callable

from crescendo.wire.mlmq.operations import Dequeue, Messages

_MAX_REMEMBERED = 10_000


class EmptyQueues:
    """What one broker knows. `arrivals` returns how many messages have arrived for a queue, or for one client."""

    def __init__(self, arrivals: Callable[[int], int], key_of_client: Callable[[int], int]) -> None:
        self._arrivals = arrivals
        self._key_of = key_of_client
        self._empty_at: dict[int, int] = {}  # queue -> it holds no public message at this arrival count
        self._client_empty_at: dict[tuple[int, int], int] = {}  # queue, client -> the same, to that client

    def arrival_counts(self, request: Dequeue) -> tuple[int, int]:
        """How many messages have arrived so far: read it before the query."""
        return self._arrivals(request.query.queue or 0), self._arrivals(self._key_of(request.client))

    def is_known_empty(self, request: Dequeue) -> bool:
        """Whether this request would certainly find nothing."""
        queue, client = request.query.queue, request.client
        if queue is None or queue not in self._empty_at:
            return False
        public_count, client_count = self.arrival_counts(request)
        return public_count <= self._empty_at[queue] and client_count <= self._client_empty_at.get((queue, client), -1)

    def record_result(self, request: Dequeue, answer: object, arrival_counts: tuple[int, int]) -> None:
        """Record what a query found; `arrival_counts` were read before it."""
        if not isinstance(answer, Messages):
            return
        query, client = request.query, request.client
        if answer.messages:
            self._record_taken(answer, client)
        elif query.queue is not None and query.sender is None and query.context is None:
            if len(self._client_empty_at) >= _MAX_REMEMBERED:
                self.forget()
            self._empty_at[query.queue], self._client_empty_at[query.queue, client] = arrival_counts

    def forget(self) -> None:
        """Discard all knowledge."""
        self._client_empty_at.clear()
        self._empty_at.clear()

    def _record_taken(self, answer: Messages, client: int) -> None:
        for message in answer.messages:
            if message.delivery > 1:
                continue  # a redelivery: it became available without a notice
            # Never above the arrivals: the notice of a message from another broker may still be in flight.
            if message.receiver is None and message.queue in self._empty_at:
                arrived = self._arrivals(message.queue)
                self._empty_at[message.queue] = min(self._empty_at[message.queue] + 1, arrived)
            elif (known := self._client_empty_at.get((message.queue, client))) is not None:
                self._client_empty_at[message.queue, client] = min(known + 1, self._arrivals(self._key_of(client)))
