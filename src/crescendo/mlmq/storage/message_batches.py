"""How are many messages of one request stored, or taken, at a low cost per message?

Nearly all batches are plain: many messages into one queue, at once and as long as the queue keeps them, or the first
ones out of one queue. Two procedures serve such requests, all of a statement or nothing; any other statement goes to
the general procedures, which took nearly twice as long per message (docs/mlmq-storage.md).
"""

from collections.abc import Sequence
from typing import Any, Final

from crescendo.mlmq.storage import message_statements
from crescendo.wire.mlmq.operations import MAX_SLOTS, Answer, Dequeue, Once, Order, SendMany, Sent

NOT_PLAIN: Final = "MQ001"
"""The error of a procedure that serves plain requests only."""

_STORE: Final = "SELECT mlmq.store_batches($1, $2, $3, $4, $5, $6, $7, $8)"
_TAKE: Final = "SELECT * FROM mlmq.take_batches($1, $2, $3, $4, $5, $6, $7)"
LEAST_MESSAGES = 10
"""Per request that takes messages: smaller requests share the queries of the general procedure."""


async def store(connection: Any, requests: Sequence[SendMany]) -> list[Answer]:
    """Answer requests that store many messages."""
    if all(request.once is not None and not request.delay_ms and request.expiry_ms is None for request in requests):
        try:
            return await _store(connection, requests)
        except Exception as err:
            if getattr(err, "sqlstate", None) != NOT_PLAIN:
                raise
    return await message_statements.send(connection, requests)


async def take(connection: Any, requests: Sequence[Dequeue]) -> list[Answer]:
    """Answer dequeues of any kind; those that may take many messages at a lower cost."""
    wanted = sum(request.count for request in requests)
    if wanted >= LEAST_MESSAGES * len(requests) and all(map(_is_plain, requests)):
        try:
            rows = await connection.fetch(_TAKE, *_take_columns(requests))
            return message_statements.answers(requests, rows)
        except Exception as err:
            if getattr(err, "sqlstate", None) != NOT_PLAIN:
                raise
    return await message_statements.dequeue(connection, requests)


def key_of(once: Once) -> int:
    """The number of a slot among all slots of all sessions."""
    return once.session * MAX_SLOTS + once.slot


def _is_plain(request: Dequeue) -> bool:
    query = request.query
    return (
        request.once is not None
        and query.queue is not None
        and query.sender is None
        and query.context is None
        and query.order is Order.PRIORITY
    )


async def _store(connection: Any, requests: Sequence[SendMany]) -> list[Answer]:
    rows = [
        (
            request.client,
            key_of(request.once),
            request.once.number,
            request.queue,
            request.priority,
            len(request.contents),
        )
        for request in requests
        if request.once is not None
    ]
    contents = [content for request in requests for content in request.contents]
    keys = sorted(row[1] for row in rows)
    ids = await connection.fetchval(_STORE, keys, *zip(*rows, strict=True), contents)
    answers: list[Answer] = []
    first = 0
    for request in requests:
        end = first + len(request.contents)
        answers.append(Sent(tuple(ids[first:end]), None))
        first = end
    return answers


def _take_columns(requests: Sequence[Dequeue]) -> Any:
    rows = [
        (one.client, key_of(one.once), one.once.number, one.query.queue, one.count, one.lease_ms)
        for one in requests
        if one.once is not None
    ]
    return sorted(row[1] for row in rows), *zip(*rows, strict=True)
