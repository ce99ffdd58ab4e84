"""Does time planted in one tier show there, and nowhere else?

Medians of a plain run and of a run with a delay in one place, in one test, so that a slow machine slows both. The delay
is large against what a request takes anyway, and what others may grow by is half of it.
"""

import asyncio
import contextlib
import csv
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any

import asyncpg
import msgspec
import pytest
from mlmq_brokers import client, play, serving

from crescendo.mlmq.broker.call import Call
from crescendo.mlmq.broker.server import Broker
from crescendo.mlmq.client import AsyncClient, Exchange, Query

PLANTED_S = 0.08  # not 5 ms: on a busy machine medians of plain requests move by more than that
SAMPLES = 11
TIERS = ("network", "receive", "queue", "pool", "database", "send", "wait")
Act = Callable[[], Awaitable[Any]]


def medians(seen: list[Exchange]) -> dict[str, float]:
    """Seconds, by tier."""
    rows = [(exchange.network_ns, *exchange.times) for exchange in seen if exchange.times is not None]
    assert len(rows) == SAMPLES
    return {name: median(column) / 1e9 for name, column in zip(TIERS, zip(*rows, strict=True), strict=True)}


async def sample(seen: list[Exchange], act: Act) -> dict[str, float]:
    seen.clear()
    for _ in range(SAMPLES):
        await act()
    return medians(seen)


def assert_only(tier: str, before: dict[str, float], after: dict[str, float], least: float = 0.8) -> None:
    grown = {name: after[name] - before[name] for name in TIERS}
    assert grown[tier] > least * PLANTED_S, grown
    assert all(growth < 0.5 * PLANTED_S for name, growth in grown.items() if name != tier), grown


@contextlib.asynccontextmanager
async def busy_worker(broker: Broker) -> AsyncIterator[None]:
    """Between taking a request and asking for a connection."""
    take = broker.queue.take

    async def slowly(most: int) -> list[Call]:
        calls = await take(most)
        await asyncio.sleep(PLANTED_S)
        return calls

    broker.queue.take = slowly  # type: ignore[method-assign]
    try:
        yield
    finally:
        broker.queue.take = take  # type: ignore[method-assign]


@contextlib.asynccontextmanager
async def exhausted_pool(broker: Broker) -> AsyncIterator[None]:
    """All connections are lent for a while whenever a worker is about to ask for one."""
    serve = broker.store.serve

    async def hold() -> None:
        async with broker.store.pool.acquire():
            await asyncio.sleep(PLANTED_S)

    async def behind(requests: Any) -> Any:
        holders = [asyncio.create_task(hold()) for _ in range(broker.settings.connections)]
        while broker.store.in_use < broker.settings.connections:
            await asyncio.sleep(0)
        served = await serve(requests)
        await asyncio.gather(*holders)
        return served

    broker.store.serve = behind  # type: ignore[method-assign]
    try:
        yield
    finally:
        broker.store.serve = serve  # type: ignore[method-assign]


@contextlib.asynccontextmanager
async def slow_database(url: str) -> AsyncIterator[None]:
    connection = await asyncpg.connect(url)
    await connection.execute(
        f"""CREATE FUNCTION doze() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN PERFORM pg_sleep({PLANTED_S}); RETURN NULL; END $$;
            CREATE TRIGGER doze AFTER INSERT ON mlmq.message FOR EACH STATEMENT EXECUTE FUNCTION doze()"""
    )
    try:
        yield
    finally:
        await connection.execute("DROP FUNCTION doze CASCADE")
        await connection.close()


@pytest.mark.parametrize("tier", ["queue", "pool", "database"])
def test_time_planted_inside_shows_in_its_tier_alone(database_url: str, tier: str) -> None:
    async def scenario() -> None:
        seen: list[Exchange] = []
        async with (
            serving(database_url, workers=1, connections=2) as broker,
            client("c", broker.address, observer=seen.append) as one,
        ):
            queue = (await one.create_queue("q")).queue

            async def send() -> None:
                await one.send_message(queue, b"content")

            await send()  # prepares the statement
            before = await sample(seen, send)
            planted = {
                "queue": lambda: busy_worker(broker),
                "pool": lambda: exhausted_pool(broker),
                "database": lambda: slow_database(database_url),
            }[tier]
            async with planted():
                await send()  # a worker that was asleep when the delay was planted wakes without it
                assert_only(tier, before, await sample(seen, send))

    play(scenario())


def test_a_wait_that_was_asked_for_is_told_apart(database_url: str) -> None:
    async def scenario() -> None:
        seen: list[Exchange] = []
        async with serving(database_url) as broker, client("c", broker.address, observer=seen.append) as one:

            async def look(wait_s: float) -> None:
                assert await one.dequeue_message(Query(queue=one.own_queue), wait_s=wait_s) is None

            await look(0)
            before = await sample(seen, lambda: look(0))
            # What the first look costs is part of the time that was asked for, so not all of it is waited.
            assert_only("wait", before, await sample(seen, lambda: look(PLANTED_S)), least=0.3)

    play(scenario())


class SlowWire:
    """A relay between a client and a broker that pauses in the middle of frames, or before it reads answers."""

    def __init__(self, target: str, within_requests: bool) -> None:
        self._host, _, self._port = target.partition(":")
        self._within_requests = within_requests
        self.planting = False

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        try:
            yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(self._host, int(self._port))
        one = asyncio.create_task(self._pump(reader, back, self._within_requests))
        other = asyncio.create_task(self._pump(there, writer, not self._within_requests))
        await asyncio.wait([one, other], return_when=asyncio.FIRST_COMPLETED)
        for task in (one, other):
            task.cancel()
        await asyncio.gather(one, other, return_exceptions=True)
        for end in (writer, back):
            end.close()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, slow: bool) -> None:
        while data := await source.read(65536):
            if self.planting and slow:
                sink.write(data[:1])
                await asyncio.sleep(PLANTED_S)
                data = data[1:]
            sink.write(data)


@pytest.mark.parametrize("tier", ["receive", "network"])
def test_a_slow_socket_shows_in_receive_on_the_way_there_and_in_network_on_the_way_back(
    database_url: str, tier: str
) -> None:
    async def scenario() -> None:
        seen: list[Exchange] = []
        async with serving(database_url) as broker:
            wire = SlowWire(broker.address, within_requests=tier == "receive")
            async with wire.running() as address, client("c", address, observer=seen.append) as one:
                queue = (await one.create_queue("q")).queue

                async def send() -> None:
                    await one.send_message(queue, b"content")

                await send()
                before = await sample(seen, send)
                wire.planting = True
                assert_only(tier, before, await sample(seen, send))

    play(scenario())


def test_answers_that_a_socket_does_not_take_show_in_send(database_url: str) -> None:
    """Without our client: it always reads. Frames are made here; their times are read here."""
    header, times = struct.Struct("!iBBHQ"), struct.Struct("!6Q")

    async def scenario() -> None:
        async with serving(database_url, pipeline=200, write_buffer=1024) as broker:
            async with client("filler", broker.address) as filler:
                for _ in range(20):
                    await filler.send_message_to_client(filler.id, b"x" * 2000)
                body = msgspec.msgpack.encode([filler.id, [filler.own_queue], 20])
            host, _, port = broker.address.partition(":")
            reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
            for number in range(200):  # 8 MB of answers: more than all buffers in between hold
                writer.write(header.pack(12 + len(body), 1, 1, 8, number) + body)
            while not broker.unsent:
                await asyncio.sleep(0.005)
            await asyncio.sleep(PLANTED_S)
            sent: list[int] = []
            for _ in range(200):
                length, _, flags, _, _ = header.unpack(await reader.readexactly(header.size))
                assert flags == 1
                payload = await reader.readexactly(length - 12)
                sent.append(times.unpack(payload[: times.size])[4])
            writer.close()
            assert max(sent) > PLANTED_S * 1e9  # one that had to wait for us
            assert min(sent) < PLANTED_S * 1e9 / 2  # one that the kernel took at once

    play(scenario())


def test_tiers_add_up_to_the_clients_time(database_url: str) -> None:
    async def scenario() -> None:
        seen: list[Exchange] = []
        async with serving(database_url) as broker, client("c", broker.address, observer=seen.append) as one:
            for _ in range(20):
                await one.send_message_to_client(one.id, b"content")
        for exchange in seen:
            assert exchange.times is not None
            assert exchange.network_ns is not None
            # The network is what is left: it can be small, but never less than nothing.
            assert exchange.network_ns >= 0
            assert exchange.network_ns + sum(exchange.times) == exchange.ended_ns - exchange.asked_ns
            assert exchange.times.database_ns > 0

    play(scenario())


def test_the_performance_log_has_the_seeds_actions_and_they_add_up(database_url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(database_url, workers=3, performance_log=str(tmp_path), performance_unit="us") as broker:
            async with client("c", broker.address) as one:
                await one.send_message_to_client(one.id, b"content")
                message = await one.dequeue_message(Query(queue=one.own_queue))
                assert message is not None
                impatient = AsyncClient("c", [broker.address])
                await impatient.lookup_client("nobody")
                await impatient.close()
            path = tmp_path / f"broker_{broker.port}.log"
        with path.open(newline="") as file:
            first, *rows = csv.reader(file, delimiter=";")
        assert first[0].startswith("BrokerConfiguration Scenario[")
        assert f"Port[{path.stem.partition('_')[2]}] WorkerThreadCount[3] DbConnectionPoolSize[2]" in first[0]
        actions = [row[2] for row in rows]
        for action in (
            "BDb#insertMessage#Ok#1",
            "BDb#dequeueMessage#Ok#1",
            "BProcReq#RegistrationRequest:RegistrationResponse",
            "BProcReq#SendMessageRequest:SendMessageResponse",
            "BProcReq#DequeueMessageRequest:MessageResponse",
            "BProcReq#LookupClientRequest:ExceptionResponse",
        ):
            assert actions.count(action) == 1, action
        assert {row[3] for row in rows} <= {"C[1]", "C[2]"}
        by_action = {
            name: sum(int(row[0]) for row in rows if row[2].partition("#")[0] == name)
            for name in ("BRcvReq", "BQueReq", "BProcReq", "BWaitMsg", "BSndResp", "BTotReqResp")
        }
        total = by_action.pop("BTotReqResp")
        # Each of 4 requests lost less than a microsecond in each of 6 lines.
        assert abs(total - sum(by_action.values())) <= 4 * 6

    play(scenario())
