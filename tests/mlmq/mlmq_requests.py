"""Requests to the storage of MLMQ, shared by several tests."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

from crescendo.mlmq.storage import Database
from crescendo.wire.mlmq.operations import (
    Answer,
    CreateQueue,
    Messages,
    QueueFound,
    Register,
    Registered,
    Request,
)

BLOCKED_S = 0.3  # how long a request must stay unanswered; a busy machine can only lengthen it


def with_pool(url: str, work: Callable[[Any, Database], Awaitable[None]], connections: int = 8) -> None:
    async def run() -> None:
        async with asyncpg.create_pool(url, min_size=1, max_size=connections) as pool:
            await work(pool, Database(pool))

    asyncio.run(run())


async def one(database: Database, request: Request) -> Answer:
    return (await database.serve([request])).answers[0]


async def registered(database: Database, *names: str) -> list[Registered]:
    found = (await database.register([Register(name) for name in names])).answers
    assert all(isinstance(answer, Registered) for answer in found)
    return found  # type: ignore[return-value]


async def public(database: Database, client: int, name: str) -> int:
    found = await one(database, CreateQueue(client, name))
    assert isinstance(found, QueueFound)
    return found.queue


def contents(found: Answer) -> list[bytes]:
    assert isinstance(found, Messages)
    return [message.content for message in found.messages]
