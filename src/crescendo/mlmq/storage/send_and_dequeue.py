"""How do sends and dequeues share one statement and one commit?

Sends come first, so the dequeues see the sent messages. A dequeue that matches a sent message is handed it in the
statement that stores it, if its queue holds nothing else. Nearly all batches are plain: one procedure of two queries
serves them. It serves all of a batch or nothing, so any other batch goes to the general procedure, which can do
everything and costs three times as much.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from crescendo.mlmq.storage import message_batches, message_statements
from crescendo.mlmq.storage.message_batches import NOT_PLAIN, key_of
from crescendo.wire.mlmq.operations import Answer, Dequeue, Message, Messages, Order, Send, Sent

_PLAIN: Final = """SELECT * FROM mlmq.exchange_plain(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)"""
_GENERAL: Final = """SELECT * FROM mlmq.exchange_many(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23)"""
_CONTEXT = 5  # its column in the rows of the general procedure, after the common ones
_NO_MESSAGES = Messages()
_NO_SENDS: Final = ((),) * 11
_NO_DEQUEUES: Final = ((),) * 7


async def exchange(connection: Any, requests: Sequence[Send | Dequeue]) -> list[Answer]:
    """Answer sends and then dequeues, in order."""
    sends = [request for request in requests if isinstance(request, Send)]
    dequeues = [request for request in requests if isinstance(request, Dequeue)]
    if all(map(_is_plain_send, sends)) and all(map(_is_plain_dequeue, dequeues)):
        try:
            return await _plain(connection, sends, dequeues)
        except Exception as err:
            if getattr(err, "sqlstate", None) != NOT_PLAIN:
                raise
    return await _general(connection, sends, dequeues)


def match_dequeues(sends: Sequence[Send], dequeues: Sequence[Dequeue]) -> list[int | None]:
    """For each send, the position of the dequeue that is handed it; each dequeue gets the message it would choose."""
    queue_of: dict[int, int | None] = {}  # of a client; None: of several queues, and which is its own is not known here
    for request in dequeues:
        queue = request.query.queue
        queue_of[request.client] = queue if queue_of.setdefault(request.client, queue) == queue else None
    waiting: dict[int, list[int]] = defaultdict(list)  # queue, or minus the client for its own queue
    for at, request in enumerate(dequeues):
        waiting[request.query.queue or 0].append(at)
        if queue_of[request.client] is not None:
            waiting[-request.client].append(at)
    takers: list[int | None] = [None] * len(sends)
    # A message for a client of several queues may come first in any of them: its dequeues look in the table instead.
    of_several = {client for client, queue in queue_of.items() if queue is None}
    unclear = of_several.intersection(send.receiver for send in sends)
    served = {at for at, request in enumerate(dequeues) if request.client in unclear} if unclear else set()
    # Highest priority first; within one priority, in order of arrival.
    for at in sorted(range(len(sends)), key=lambda at: -sends[at].priority):
        send = sends[at]
        for position in waiting.get(send.queues[0] if send.queues else -(send.receiver or 0), ()):
            context = dequeues[position].query.context
            if position not in served and (context is None or context == send.context):
                takers[at] = position
                served.add(position)
                break
    return takers


def _is_plain_send(request: Send) -> bool:
    """To one queue or to one client, neither delayed nor expiring by itself."""
    return (
        request.once is not None
        and len(request.queues) + (request.receiver is not None) == 1
        and not request.delay_ms
        and request.expiry_ms is None
    )


def _is_plain_dequeue(request: Dequeue) -> bool:
    """The first message of one queue, without a lease."""
    query = request.query
    return (
        request.once is not None
        and request.count == 1
        and request.lease_ms == 0
        and query.queue is not None
        and query.sender is None
        and query.order is Order.PRIORITY
    )


async def _plain(connection: Any, sends: Sequence[Send], dequeues: Sequence[Dequeue]) -> list[Answer]:
    takers = match_dequeues(sends, dequeues)
    onces = [one.once for one in sends] + [one.once for one in dequeues]
    keys = sorted(key_of(once) for once in onces if once is not None)
    moment, send_positions, sent, contexts, handed_over, found_positions, found = await connection.fetchrow(
        _PLAIN, keys, *_send_columns(sends, takers, dequeues), *_dequeue_columns(dequeues)
    )
    answers: list[Any] = [_NO_MESSAGES] * (len(sends) + len(dequeues))
    for position, id_, context in zip(send_positions or (), sent or (), contexts or (), strict=True):
        answers[position - 1] = Sent((id_,), context)
    if handed_over:
        handed_positions, sent_us = set(handed_over), message_statements.microseconds(moment)
        for at, (send, taker) in enumerate(zip(sends, takers, strict=True)):
            if taker is not None and taker + 1 in handed_positions:
                (id_,), context = answers[at].messages, answers[at].context
                queue = dequeues[taker].query.queue
                message = Message(
                    id_, queue or 0, send.client, send.receiver, send.priority, context, sent_us, 1, send.content
                )
                answers[len(sends) + taker] = Messages((message,))
    for position, message in zip(found_positions or (), found or (), strict=True):
        if message is not None:
            answers[len(sends) + position - 1] = Messages((message_statements.message_of(*message),))
    return answers


def _send_columns(sends: Sequence[Send], takers: Sequence[int | None], dequeues: Sequence[Dequeue]) -> Any:
    if not sends:
        return _NO_SENDS
    without_context = {request.query.queue for request in dequeues if request.query.context is None}
    return zip(
        *(
            (
                send.client, key_of(send.once), send.once.number, send.queues[0] if send.queues else None,
                send.receiver, send.context, send.new_context, send.priority, send.content,
                None if taker is None else taker + 1,
                taker is not None and dequeues[taker].query.queue not in without_context,
            )
            for send, taker in zip(sends, takers, strict=True)
            if send.once is not None
        ),
        strict=True,
    )  # fmt: skip


def _dequeue_columns(dequeues: Sequence[Dequeue]) -> Any:
    if not dequeues:
        return _NO_DEQUEUES
    asked: dict[int | None, int] = defaultdict(int)  # how many dequeues want the first message of a queue
    rows = []
    for request in dequeues:
        query, once = request.query, request.once
        if once is None:
            continue
        rows.append((request.client, key_of(once), once.number, query.queue, query.context, asked[query.queue]))
        asked[query.queue] += query.context is None
    return zip(*((*row, asked[row[3]] > 1) for row in rows), strict=True)


async def _general(connection: Any, sends: Sequence[Send], dequeues: Sequence[Dequeue]) -> list[Answer]:
    if not dequeues:
        return await message_statements.send(connection, sends)
    if not sends:
        return await message_batches.take(connection, dequeues)
    stored: list[Any] = []
    given: list[Any] = []
    columns = (*message_statements.send_columns(sends), *message_statements.dequeue_columns(dequeues))
    for of_send, ord_, status, ids, *message in await connection.fetch(_GENERAL, *columns):
        if of_send:
            stored.append((ord_, status, ids, message[_CONTEXT]))
        else:
            given.append((ord_, status, *message))
    return message_statements.sent(sends, stored) + message_statements.answers(dequeues, given)
