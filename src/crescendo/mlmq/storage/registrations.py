"""How do requests about clients and queues become statements, and rows become answers?

One statement per batch; answers in the order of the requests. Decides nothing: the procedures do.
"""

from collections.abc import Sequence
from typing import Any

from crescendo.wire.mlmq.operations import (
    Answer,
    ClientFound,
    ConfigureQueue,
    CreateQueue,
    DeleteQueue,
    Deregister,
    Done,
    LookupClient,
    LookupQueue,
    QueueFound,
    Refusal,
    Refused,
    Register,
    Registered,
)

_DONE = Done()


async def register(connection: Any, requests: Sequence[Register]) -> list[Answer]:
    rows = await connection.fetch("SELECT * FROM mlmq.register_many($1)", [request.name for request in requests])
    answers: dict[int, Answer] = {}
    for ord_, status, client, queue, session in rows:
        answers[ord_] = _name_taken(requests[ord_ - 1].name) if status else Registered(client, queue, session)
    return _in_order(answers, len(requests))


async def deregister(connection: Any, requests: Sequence[Deregister]) -> list[Answer]:
    rows = await connection.fetch("SELECT * FROM mlmq.deregister_many($1)", [request.client for request in requests])
    return _in_order(
        {ord_: no_such_client(requests[ord_ - 1].client) if status else _DONE for ord_, status in rows}, len(requests)
    )


async def create_queue(connection: Any, requests: Sequence[CreateQueue]) -> list[Answer]:
    rows = await connection.fetch(
        "SELECT * FROM mlmq.create_queues($1, $2)",
        [request.client for request in requests],
        [request.name for request in requests],
    )
    answers: dict[int, Answer] = {}
    for ord_, status, queue, name, client, owner in rows:
        if status == Refusal.NO_SUCH_CLIENT:
            answers[ord_] = no_such_client(requests[ord_ - 1].client)
        else:
            answers[ord_] = _name_taken(name) if status else QueueFound(queue, name, client, owner)
    return _in_order(answers, len(requests))


async def configure_queue(connection: Any, requests: Sequence[ConfigureQueue]) -> list[Answer]:
    asked = [(one.client, one.queue, one.max_deliveries, one.dead_letters, one.retention_ms) for one in requests]
    rows = await connection.fetch("SELECT * FROM mlmq.configure_queues($1, $2, $3, $4, $5)", *zip(*asked, strict=True))
    answers: dict[int, Answer] = {}
    for ord_, status in rows:
        request = requests[ord_ - 1]
        answers[ord_] = refused_reader(status, request.client, request.queue) if status else _DONE
    return _in_order(answers, len(requests))


async def delete_queue(connection: Any, requests: Sequence[DeleteQueue]) -> list[Answer]:
    rows = await connection.fetch(
        "SELECT * FROM mlmq.delete_queues($1, $2)",
        [request.client for request in requests],
        [request.queue for request in requests],
    )
    answers: dict[int, Answer] = {}
    for ord_, status in rows:
        request = requests[ord_ - 1]
        answers[ord_] = refused_reader(status, request.client, request.queue) if status else _DONE
    return _in_order(answers, len(requests))


async def lookup_client(connection: Any, requests: Sequence[LookupClient]) -> list[Answer]:
    rows = await connection.fetch("SELECT * FROM mlmq.find_clients($1)", [request.name for request in requests])
    found: dict[int, Answer] = {ord_: ClientFound(client, requests[ord_ - 1].name) for ord_, client in rows}
    for at, request in enumerate(requests, 1):
        found.setdefault(at, Refused(Refusal.NO_SUCH_CLIENT, f"there is no client {request.name!r}"))
    return _in_order(found, len(requests))


async def lookup_queue(connection: Any, requests: Sequence[LookupQueue]) -> list[Answer]:
    rows = await connection.fetch(
        "SELECT * FROM mlmq.find_queues($1, $2)",
        [request.name for request in requests],
        [request.client for request in requests],
    )
    found: dict[int, Answer] = {ord_: QueueFound(*rest) for ord_, *rest in rows}
    for at, request in enumerate(requests, 1):
        text = f"{request.name!r}" if request.client is None else f"of client {request.client}"
        found.setdefault(at, Refused(Refusal.NO_SUCH_QUEUE, f"there is no queue {text}"))
    return _in_order(found, len(requests))


def no_such_client(client: int) -> Refused:
    return Refused(Refusal.NO_SUCH_CLIENT, f"there is no client {client}; register first")


def refused_reader(status: int, client: int, queue: int | None) -> Refused:
    """Why a client may not use a queue in this way."""
    if status == Refusal.NO_SUCH_CLIENT:
        return no_such_client(client)
    if status == Refusal.NO_SUCH_QUEUE:
        return Refused(Refusal.NO_SUCH_QUEUE, f"there is no queue {queue}")
    return Refused(Refusal(status), f"queue {queue} belongs to another client")


def _name_taken(name: str) -> Refused:
    return Refused(Refusal.NAME_TAKEN, f"{name!r} is already taken; clients and queues share one namespace")


def _in_order(answers: dict[int, Answer], count: int) -> list[Answer]:
    return [answers[at] for at in range(1, count + 1)]
