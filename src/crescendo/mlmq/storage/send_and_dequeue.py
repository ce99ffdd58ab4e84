"""How do sends and dequeues share one statement and one commit?

Sends come first, so the dequeues see what was sent; and a dequeue that wants what is sent is handed it in the statement
that stores it, if nothing else lies there. Nearly all batches are plain: one procedure of two queries serves them. It
serves all of a batch or nothing, so whatever is out of the ordinary is for the general procedure, which can do
everything and costs three times as much.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from crescendo.mlmq.storage import messages
from crescendo.wire.mlmq.operations import MAX_SLOTS, Answer, Dequeue, Message, Messages, Order, Send, Sent

_NOT_PLAIN: Final = "MQ001"
_PLAIN: Final = """SELECT * FROM mlmq.exchange_plain(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)"""
_GENERAL: Final = """SELECT * FROM mlmq.exchange_many(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)"""
_CONTEXT = 5  # where the general procedure tells it, after what it says of every request
_NOTHING = Messages()
_NO_SENDS: Final = ((),) * 11
_NO_DEQUEUES: Final = ((),) * 8


async def exchange(connection: Any, requests: Sequence[Send | Dequeue]) -> list[Answer]:
    """Answers to sends and then dequeues, in their order."""
    sends = [request for request in requests if isinstance(request, Send)]
    dequeues = [request for request in requests if isinstance(request, Dequeue)]
    if all(map(_is_plain_send, sends)) and all(map(_is_plain_dequeue, dequeues)):
        try:
            return await _plain(connection, sends, dequeues)
        except Exception as err:
            if getattr(err, "sqlstate", None) != _NOT_PLAIN:
                raise
    return await _general(connection, sends, dequeues)


def takers_of(sends: Sequence[Send], dequeues: Sequence[Dequeue]) -> list[int | None]:
    """For each send the dequeue that is to be handed it, by its place; each gets what it would choose among them."""
    waiting: dict[int, list[int]] = defaultdict(list)  # queue, or minus the client whose own queue it may be
    for at, request in enumerate(dequeues):
        waiting[request.query.queue or 0].append(at)
        waiting[-request.client].append(at)
    takers: list[int | None] = [None] * len(sends)
    served: set[int] = set()
    # The highest priority first, and of the same priority what came first.
    for at in sorted(range(len(sends)), key=lambda at: -sends[at].priority):
        send = sends[at]
        for place in waiting.get(send.queues[0] if send.queues else -(send.receiver or 0), ()):
            context = dequeues[place].query.context
            if place not in served and (context is None or context == send.context):
                takers[at] = place
                served.add(place)
                break
    return takers


def _is_plain_send(request: Send) -> bool:
    """To one queue or to one client."""
    return request.once is not None and len(request.queues) + (request.receiver is not None) == 1


def _is_plain_dequeue(request: Dequeue) -> bool:
    """The first message of one queue, for good."""
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
    takers = takers_of(sends, dequeues)
    onces = [one.once for one in sends] + [one.once for one in dequeues]
    keys = sorted(once.session * MAX_SLOTS + once.slot for once in onces if once is not None)
    moment, places, sent, contexts, handed_over, found_places, found = await connection.fetchrow(
        _PLAIN, keys, *_send_columns(sends, takers), *_dequeue_columns(dequeues)
    )
    answers: list[Any] = [_NOTHING] * (len(sends) + len(dequeues))
    for place, id_, context in zip(places or (), sent or (), contexts or (), strict=True):
        answers[place - 1] = Sent((id_,), context)
    if handed_over:
        handed, sent_us = set(handed_over), messages.microseconds(moment)
        for at, (send, taker) in enumerate(zip(sends, takers, strict=True)):
            if taker is not None and taker + 1 in handed:
                (id_,), context = answers[at].messages, answers[at].context
                queue = dequeues[taker].query.queue
                message = Message(
                    id_, queue or 0, send.client, send.receiver, send.priority, context, sent_us, 1, send.content
                )
                answers[len(sends) + taker] = Messages((message,))
    for place, message in zip(found_places or (), found or (), strict=True):
        if message is not None:
            answers[len(sends) + place - 1] = Messages((messages.message_of(*message),))
    return answers


def _send_columns(sends: Sequence[Send], takers: Sequence[int | None]) -> Any:
    if not sends:
        return _NO_SENDS
    return zip(
        *(
            (
                send.client, send.once.session, send.once.slot, send.once.number,
                send.queues[0] if send.queues else None, send.receiver, send.context, send.new_context, send.priority,
                send.content, None if taker is None else taker + 1,
            )
            for send, taker in zip(sends, takers, strict=True)
            if send.once is not None
        ),
        strict=True,
    )  # fmt: skip


def _dequeue_columns(dequeues: Sequence[Dequeue]) -> Any:
    if not dequeues:
        return _NO_DEQUEUES
    asked: dict[int | None, int] = defaultdict(int)  # how many ask for the first message of a queue
    rows = []
    for request in dequeues:
        query, once = request.query, request.once
        if once is None:
            continue
        rows.append(
            (request.client, once.session, once.slot, once.number, query.queue, query.context, asked[query.queue])
        )
        asked[query.queue] += query.context is None
    return zip(*((*row, asked[row[4]] > 1) for row in rows), strict=True)


async def _general(connection: Any, sends: Sequence[Send], dequeues: Sequence[Dequeue]) -> list[Answer]:
    if not dequeues:
        return await messages.send(connection, sends)
    if not sends:
        return await messages.dequeue(connection, dequeues)
    stored: list[Any] = []
    given: list[Any] = []
    columns = (*messages.send_columns(sends), *messages.dequeue_columns(dequeues))
    for of_send, ord_, status, ids, *message in await connection.fetch(_GENERAL, *columns):
        if of_send:
            stored.append((ord_, status, ids, message[_CONTEXT]))
        else:
            given.append((ord_, status, *message))
    return messages.sent(sends, stored) + messages.answers(dequeues, given)
