"""Is any message lost or duplicated when PostgreSQL is killed under load?

Senders and takers repeat each request, with the same `Once`, until it is answered. Their answers are the evidence: at
the end every message sent has been received exactly once, whatever happened in between.
"""

import asyncio
import os
import random
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from crescendo.mlmq import postgres as embedded
from crescendo.mlmq.storage import StorageUnavailable, initialise
from crescendo.mlmq.storage.database import answer
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.wire.mlmq.operations import (
    Answer,
    CreateQueue,
    Dequeue,
    Messages,
    Once,
    Query,
    QueueFound,
    Register,
    Registered,
    Request,
    Send,
    Sent,
)

SENDERS = TAKERS = 4


@pytest.fixture
def directory() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="crescendo-test-"))
    made.chmod(0o755)
    yield made / "database"
    shutil.rmtree(made, ignore_errors=True)


class KillableServer:
    """A server that is killed and restarted, and requests that are retried on it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._server = embedded.start(directory, on_fork=die_with_parent())
        self.failures = 0

    @property
    def url(self) -> str:
        return self._server.url()

    def kill_and_restart(self) -> None:
        assert self._server.pid is not None
        os.kill(self._server.pid, signal.SIGKILL)
        self._server.stop()
        self._server = embedded.start(self._directory, on_fork=die_with_parent())

    def stop(self) -> None:
        self._server.stop()

    async def retry(self, connections: list[Any], at: int, request: Request) -> Answer:
        """Repeat a request until it is answered, on a new connection where the old one is lost."""
        while True:
            try:
                if connections[at] is None or connections[at].is_closed():
                    connections[at] = await asyncpg.connect(self.url, timeout=5)
                return (await answer(connections[at], [request]))[0]
            except (StorageUnavailable, OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InternalClientError):
                self.failures += 1
                if connections[at] is not None:
                    connections[at].terminate()
                connections[at] = None
                await asyncio.sleep(0.02)


async def kill_under_load(server: KillableServer, kills: int, per_kill: int) -> None:
    connection = await asyncpg.connect(server.url)
    await initialise(connection)
    (client,) = await answer(connection, [Register("all")])
    assert isinstance(client, Registered)
    (queue,) = await answer(connection, [CreateQueue(client.client, "q")])
    assert isinstance(queue, QueueFound)
    await connection.close()
    connections: list[Any] = [None] * (SENDERS + TAKERS)
    sent: Counter[bytes] = Counter()
    received: Counter[bytes] = Counter()
    stop = asyncio.Event()

    async def send(at: int) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            content = b"%d/%d" % (at, number)
            request = Send(client.client, content, (queue.queue,), once=Once(client.session, at, number))
            found = await server.retry(connections, at, request)
            assert isinstance(found, Sent)
            sent[content] += 1

    async def take(at: int) -> None:
        number = 0
        while True:
            number += 1
            request = Dequeue(client.client, Query(queue.queue), 3, once=Once(client.session, at, number))
            found = await server.retry(connections, at, request)
            assert isinstance(found, Messages)
            assert not any(message.redelivered for message in found.messages)
            received.update(message.content for message in found.messages)
            if not found.messages and stop.is_set():
                return

    async def kill() -> None:
        rng = random.Random(kills)
        for round_ in range(1, kills + 1):
            while sent.total() < per_kill * round_:
                await asyncio.sleep(0.005)
            await asyncio.sleep(rng.random() / 50)
            failed = server.failures
            server.kill_and_restart()  # blocks the event loop: requests in flight are cut off
            while server.failures == failed:
                await asyncio.sleep(0.005)
        while sent.total() < per_kill * (kills + 1):
            await asyncio.sleep(0.005)
        stop.set()

    senders = [asyncio.create_task(send(at)) for at in range(SENDERS)]
    takers = [asyncio.create_task(take(SENDERS + at)) for at in range(TAKERS)]
    await kill()
    await asyncio.gather(*senders)
    await asyncio.gather(*takers)
    # A taker may have seen the queue empty just before the last sender was answered.
    while isinstance(
        found := await server.retry(connections, 0, Dequeue(client.client, Query(queue.queue), 100)), Messages
    ):
        received.update(message.content for message in found.messages)
        if not found.messages:
            break
    assert received == sent
    assert set(sent.values()) == {1}
    for connection in connections:
        if connection is not None:
            await connection.close()


@pytest.mark.parametrize("kills", [2, pytest.param(10, marks=[pytest.mark.soak, pytest.mark.timeout(1200)])])
def test_killing_postgresql_loses_and_duplicates_nothing(directory: Path, kills: int) -> None:
    server = KillableServer(directory)
    try:
        asyncio.run(kill_under_load(server, kills, 60))
    finally:
        server.stop()
