"""How does a batch of requests get its answers from PostgreSQL, and how long does that take?

One statement on one connection for a batch of one kind, or of sends and dequeues. A batch beyond the limits of a
statement becomes several, in order. The pool is the caller's. Starts no transaction, keeps no state, waits for no
message.
"""

import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from crescendo.mlmq.storage import message_batches, message_statements, registrations, send_and_dequeue
from crescendo.mlmq.storage.failures import translated_errors
from crescendo.wire.mlmq.operations import (
    MAX_BATCH,
    Abandon,
    Acknowledge,
    Answer,
    ConfigureQueue,
    CreateQueue,
    DeleteQueue,
    Dequeue,
    Deregister,
    Extend,
    LookupClient,
    LookupQueue,
    Peek,
    Pending,
    Query,
    Register,
    Request,
    Send,
    SendMany,
)

MAX_ROWS: Final = 1_024  # messages that one statement may store, hand out or settle
_Serve = Callable[[Any, Any], Awaitable[list[Answer]]]
_SERVE: dict[type, _Serve] = {
    Register: registrations.register,
    Deregister: registrations.deregister,
    CreateQueue: registrations.create_queue,
    DeleteQueue: registrations.delete_queue,
    LookupClient: registrations.lookup_client,
    LookupQueue: registrations.lookup_queue,
    Send: send_and_dequeue.exchange,
    Peek: message_statements.peek,
    Dequeue: send_and_dequeue.exchange,
    Acknowledge: message_statements.acknowledge,
    Extend: message_statements.extend,
    Pending: message_statements.pending,
    Abandon: message_statements.abandon,
    SendMany: message_batches.store,
    ConfigureQueue: registrations.configure_queue,
}


class Served(NamedTuple):
    """The answers to a batch and what they cost."""

    answers: list[Answer]
    pool_wait_ns: int
    database_ns: int


class QueueLength(NamedTuple):
    """How many messages one queue holds."""

    queue: int
    name: str
    waiting: int
    leased: int


class Database:
    """Everything a broker needs from the storage. Errors are those of `failures`."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    async def register(self, requests: Sequence[Register]) -> Served:
        return await self.serve(requests)

    async def deregister(self, requests: Sequence[Deregister]) -> Served:
        return await self.serve(requests)

    async def create_queue(self, requests: Sequence[CreateQueue]) -> Served:
        return await self.serve(requests)

    async def delete_queue(self, requests: Sequence[DeleteQueue]) -> Served:
        return await self.serve(requests)

    async def lookup_client(self, requests: Sequence[LookupClient]) -> Served:
        return await self.serve(requests)

    async def lookup_queue(self, requests: Sequence[LookupQueue]) -> Served:
        return await self.serve(requests)

    async def send(self, requests: Sequence[Send]) -> Served:
        return await self.serve(requests)

    async def peek(self, requests: Sequence[Peek]) -> Served:
        return await self.serve(requests)

    async def dequeue(self, requests: Sequence[Dequeue]) -> Served:
        return await self.serve(requests)

    async def acknowledge(self, requests: Sequence[Acknowledge]) -> Served:
        return await self.serve(requests)

    async def extend(self, requests: Sequence[Extend]) -> Served:
        return await self.serve(requests)

    async def pending(self, requests: Sequence[Pending]) -> Served:
        return await self.serve(requests)

    async def serve(self, requests: Sequence[Request]) -> Served:
        """Answer requests of one kind, or sends and then dequeues, in order."""
        asked_ns = time.monotonic_ns()
        with translated_errors():
            async with self._pool.acquire() as connection:
                got_ns = time.monotonic_ns()
                answers = await answer(connection, requests)
                served_ns = time.monotonic_ns()
        return Served(answers, got_ns - asked_ns, served_ns - got_ns)

    async def queue_lengths(self, max_queues: int = 100) -> list[QueueLength]:
        """The longest queues. Counts every message: for inspectors, not for clients."""
        with translated_errors():
            rows = await self._pool.fetch("SELECT * FROM mlmq.queue_lengths($1)", max_queues)
        return [QueueLength(*row) for row in rows]

    async def count_available(self, queries: Sequence[Query], most: int) -> list[int]:
        """How many messages match each query now, whichever receiver they are for, counted up to `most`. Takes none."""
        columns = zip(*((query.queue, query.sender, query.context) for query in queries), strict=True)
        with translated_errors():
            rows = await self._pool.fetch("SELECT * FROM mlmq.count_available($1, $2, $3, $4)", *columns, most)
        return [available for _, available in sorted(map(tuple, rows))]

    async def rotate_receipts(self, max_bytes: int, forget_s: float) -> str:
        """One step of the rotation of receipts, if one is due; see the procedure.

        Receipts older than `forget_s` are dropped: a repetition that arrives later is served as a new request.
        """
        with translated_errors():
            return str(await self._pool.fetchval("SELECT mlmq.rotate_receipts($1, $2)", max_bytes, forget_s))

    async def compact_messages(self, most_left: int, least_dead: int) -> str:
        """Remove rows that only an old snapshot keeps, if they are many and the others few; see the procedure."""
        with translated_errors():
            return str(await self._pool.fetchval("SELECT mlmq.compact_messages($1, $2)", most_left, least_dead))


async def answer(connection: Any, requests: Sequence[Request]) -> list[Answer]:
    """The same on a connection of the caller, which measures by itself. Raises the errors of `failures`."""
    answers: list[Answer] = []
    with translated_errors():
        for batch in statements_of(requests):
            answers += await _SERVE[type(batch[0])](connection, batch)
    return answers


def statements_of(requests: Sequence[Request]) -> Iterator[Sequence[Request]]:
    """Split where a statement would be too large, and before a slot that the statement already uses."""
    start = rows = 0
    used: set[tuple[int, int]] = set()
    for at, request in enumerate(requests):
        size, once = _rows_of(request), getattr(request, "once", None)
        slot = (once.session, once.slot) if once else None
        if at > start and (at - start >= MAX_BATCH or rows + size > MAX_ROWS or slot in used):
            yield requests[start:at]
            start, rows = at, 0
            used.clear()
        rows += size
        if slot:
            used.add(slot)
    if start < len(requests):
        yield requests[start:] if start else requests


def _rows_of(request: Request) -> int:
    match request:
        case Send():
            return max(1, len(request.queues))
        case SendMany():
            return len(request.contents)
        case Dequeue() | Peek():
            return request.count
        case Acknowledge() | Extend():
            return len(request.deliveries)
        case Abandon():
            return len(request.onces)
        case Pending():
            return max(1, request.max_queues)
        case _:
            return 1
