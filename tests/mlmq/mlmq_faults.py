"""What tests of a failing database share: traffic that counts every message, and a network that fails."""

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import Awaitable, Callable

from crescendo.mlmq.broker.server import Broker
from crescendo.mlmq.client import AsyncClient, Backoff, Query
from crescendo.model.units import Duration
from mlmq_brokers import client

LEASE_S = 1.0
TIMEOUT = Duration(10**9)
FAST = Backoff(first_s=0.02, most_s=0.2)


class Traffic:
    """One client sends numbers to another, which takes them on a lease and acknowledges them."""

    def __init__(self) -> None:
        self.stored: set[int] = set()
        self.received: Counter[int] = Counter()
        self.unmarked: Counter[int] = Counter()
        self.stop = False

    async def run(self, broker: Broker, meanwhile: Callable[[], Awaitable[None]]) -> None:
        options = {"timeout_s": 60.0, "attempt_timeout_s": 2.0, "backoff": FAST}
        async with client("sender", broker.address, **options) as sender, client("c", broker.address, **options) as one:
            tasks = [asyncio.create_task(self._send(sender, one.id)), asyncio.create_task(self._receive(one))]
            await asyncio.sleep(0.5)
            await meanwhile()
            at_least = len(self.received) + 20
            async with asyncio.timeout(60):
                while len(self.received) < at_least:  # the clients come back
                    await asyncio.sleep(0.05)
            self.stop = True
            await asyncio.gather(*tasks)

    async def _send(self, sender: AsyncClient, to: int) -> None:
        number = 0
        while not self.stop:
            number += 1
            await sender.send_message_to_client(to, b"%d" % number)
            self.stored.add(number)

    async def _receive(self, one: AsyncClient) -> None:
        while not (self.stop and self.stored <= set(self.received)):
            for message in await one.dequeue_messages(Query(one.own_queue), 5, wait_s=0.5, lease_s=LEASE_S):
                self.received[int(message.content)] += 1
                self.unmarked[int(message.content)] += not message.redelivered
                await one.acknowledge(message)

    def check(self) -> None:
        assert self.stored
        assert self.stored <= set(self.received)
        assert max(self.unmarked.values()) == 1  # twice only with the mark


async def unhealthy(broker: Broker) -> None:
    async with asyncio.timeout(30):
        while broker.store.failure is None:
            await asyncio.sleep(0.05)


async def healthy(broker: Broker) -> None:
    async with asyncio.timeout(60):
        while broker.store.failure is not None:
            await asyncio.sleep(0.05)


class Network:
    """Forwards connections to the database. Those that were frozen stay open and transport nothing any more."""

    def __init__(self, port: int) -> None:
        self.port = port  # of the database; another one is for the next connections
        self._frozen: list[asyncio.Event] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def freeze(self) -> None:
        for frozen in self._frozen:
            frozen.set()

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self.port)
        frozen = asyncio.Event()
        self._frozen.append(frozen)
        pumps = [asyncio.create_task(pump) for pump in (_pump(reader, back, frozen), _pump(there, writer, frozen))]
        self._tasks.update(pumps)
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        back.close()
        writer.close()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, frozen: asyncio.Event) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await source.read(65536):
            if frozen.is_set():
                await asyncio.Event().wait()
            sink.write(data)
    if frozen.is_set():
        await asyncio.Event().wait()  # not even its end is noticed


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
