"""How do requests about messages become statements, and rows become answers?

One statement per batch; answers in the order of the requests. Within one batch no slot may appear twice and the number
of rows is limited: the caller ensures both. Decides nothing: the procedures do.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from crescendo.mlmq.storage.registrations import no_such_client, refused_reader
from crescendo.wire.mlmq.operations import (
    Abandon,
    Acknowledge,
    Answer,
    Delivery,
    Dequeue,
    Done,
    Extend,
    Message,
    Messages,
    Order,
    Peek,
    Pending,
    PendingFound,
    QueueFound,
    Refusal,
    Refused,
    Send,
    SendMany,
    Sent,
    Settled,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NO_MESSAGES = Messages()
_ALL_HELD = Settled()
_DONE = Done()
_STALE = Refused(Refusal.STALE, "a later request has used this slot")


async def send(connection: Any, requests: Sequence[Send | SendMany]) -> list[Answer]:
    rows = await connection.fetch(
        "SELECT * FROM mlmq.send_many($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)", *send_columns(requests)
    )
    return sent(requests, rows)


async def dequeue(connection: Any, requests: Sequence[Dequeue]) -> list[Answer]:
    rows = await connection.fetch(
        "SELECT * FROM mlmq.dequeue_many($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)", *dequeue_columns(requests)
    )
    return answers(requests, rows)


def send_columns(requests: Sequence[Send | SendMany]) -> Iterator[tuple[Any, ...]]:
    """The arguments of `send_many`: one row per message."""
    rows: list[tuple[Any, ...]] = []
    for ord_, request in enumerate(requests):
        once = request.once
        slot = (once.session, once.slot, once.number) if once else (None, None, None)
        # fmt: off
        last = (*slot, request.delay_ms, request.expiry_ms)
        if isinstance(request, SendMany):
            rows += [
                (ord_, request.queue, request.client, content, request.priority, None, None, False, *last)
                for content in request.contents
            ]
        else:
            rows += [
                (
                    ord_, queue, request.client, request.content, request.priority, request.receiver, request.context,
                    request.new_context, *last,
                )
                for queue in request.queues or (None,)
            ]
        # fmt: on
    return zip(*rows, strict=True)


def dequeue_columns(requests: Sequence[Dequeue]) -> Iterator[tuple[Any, ...]]:
    """The arguments of `dequeue_many`."""
    asked = []
    for request in requests:
        once = request.once
        slot = (once.session, once.slot, once.number) if once else (None, None, None)
        asked.append((*_query_of(request), request.count, request.lease_ms, *slot))
    return zip(*asked, strict=True)


async def peek(connection: Any, requests: Sequence[Peek]) -> list[Answer]:
    columns = zip(*((*_query_of(request), request.count) for request in requests), strict=True)
    rows = await connection.fetch("SELECT * FROM mlmq.peek_many($1, $2, $3, $4, $5, $6)", *columns)
    return answers(requests, rows)


async def acknowledge(connection: Any, requests: Sequence[Acknowledge]) -> list[Answer]:
    asked = [(request.client, one.message, one.delivery) for request in requests for one in request.deliveries]
    rows = await connection.fetch("SELECT * FROM mlmq.acknowledge_many($1, $2, $3)", *zip(*asked, strict=True))
    return _settled(requests, rows)


async def extend(connection: Any, requests: Sequence[Extend]) -> list[Answer]:
    asked = [
        (request.client, one.message, one.delivery, request.lease_ms)
        for request in requests
        for one in request.deliveries
    ]
    rows = await connection.fetch("SELECT * FROM mlmq.extend_many($1, $2, $3, $4)", *zip(*asked, strict=True))
    return _settled(requests, rows)


async def abandon(connection: Any, requests: Sequence[Abandon]) -> list[Answer]:
    asked = [(request.client, once.session, once.slot, once.number) for request in requests for once in request.onces]
    rows = await connection.fetch("SELECT * FROM mlmq.abandon_many($1, $2, $3, $4)", *zip(*asked, strict=True))
    unknown = {asked[ord_ - 1][0] for ord_, status in rows if status}
    return [no_such_client(request.client) if request.client in unknown else _DONE for request in requests]


async def pending(connection: Any, requests: Sequence[Pending]) -> list[Answer]:
    rows = await connection.fetch(
        "SELECT * FROM mlmq.pending_many($1, $2)",
        [request.client for request in requests],
        [request.max_queues for request in requests],
    )
    own = [0] * len(requests)
    queues: list[list[QueueFound]] = [[] for _ in requests]
    refused: dict[int, Answer] = {}
    for ord_, status, waiting, queue, name, owner in rows:
        if status:
            refused[ord_ - 1] = no_such_client(requests[ord_ - 1].client)
        elif queue is None:
            own[ord_ - 1] = waiting
        else:
            queues[ord_ - 1].append(QueueFound(queue, name, None, owner))
    return [refused.get(at) or PendingFound(own[at], tuple(queues[at])) for at in range(len(requests))]


def _query_of(request: Peek | Dequeue) -> tuple[Any, ...]:
    query = request.query
    return request.client, query.queue, query.sender, query.context, query.order is Order.AGE


def sent(requests: Sequence[Send | SendMany], rows: Sequence[Any]) -> list[Answer]:
    """Answers from the rows of `send_many`."""
    found: list[Answer | None] = [None] * len(requests)
    for ord_, status, ids, context in rows:
        found[ord_] = _refused_send(status, requests[ord_]) if status else Sent(tuple(ids), context)
    return _complete(found)


def answers(requests: Sequence[Peek | Dequeue], rows: Sequence[Any]) -> list[Answer]:
    """Answers from the rows of peeks and dequeues. The rows of one request are in its order."""
    found: list[list[Message]] = [[] for _ in requests]
    refused: dict[int, Answer] = {}
    for ord_, status, id_, queue, sender, receiver, priority, context, sent_at, delivery, content in rows:
        at = ord_ - 1
        if status:
            request = requests[at]
            stale = status == Refusal.STALE
            refused[at] = _STALE if stale else refused_reader(status, request.client, request.query.queue)
            continue
        found[at].append(message_of(id_, queue, sender, receiver, priority, context, sent_at, delivery, content))
    return [
        refused[at] if at in refused else Messages(tuple(messages)) if messages else _NO_MESSAGES
        for at, messages in enumerate(found)
    ]


def message_of(
    id_: int, queue: int, sender: int, receiver: int | None, priority: int, context: int | None, sent_at: datetime,
    delivery: int, content: bytes,
) -> Message:  # fmt: skip
    return Message(id_, queue, sender, receiver, priority, context, microseconds(sent_at), delivery, content)


def microseconds(moment: datetime) -> int:
    """Since 1970, exactly: a float would lose the last digit."""
    elapsed = moment - _EPOCH
    return (elapsed.days * 86_400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds


def _settled(requests: Sequence[Acknowledge | Extend], rows: Sequence[Any]) -> list[Answer]:
    held = {tuple(row) for row in rows}
    answers: list[Answer] = []
    for request in requests:
        gone: list[Delivery] = []
        for one in request.deliveries:
            key = (request.client, one.message, one.delivery)
            if key in held:
                held.discard(key)  # named twice: the first one settles it
            else:
                gone.append(one)
        answers.append(Settled(tuple(gone)) if gone else _ALL_HELD)
    return answers


def _refused_send(status: int, request: Send | SendMany) -> Refused:
    if status == Refusal.STALE:
        return _STALE
    if isinstance(request, SendMany):
        return refused_reader(status, request.client, request.queue)
    if status == Refusal.NO_SUCH_CLIENT:
        clients = f"{request.client} or its receiver {request.receiver}" if request.receiver else f"{request.client}"
        return Refused(Refusal.NO_SUCH_CLIENT, f"there is no client {clients}; nothing was sent")
    named = ", ".join(map(str, request.queues[:5]))
    return Refused(Refusal.NO_SUCH_QUEUE, f"not all of the queues exist ({named}); nothing was sent to any of them")


def _complete(answers: list[Answer | None]) -> list[Answer]:
    if None in answers:
        raise AssertionError("a procedure left a request unanswered")
    return [answer for answer in answers if answer is not None]
