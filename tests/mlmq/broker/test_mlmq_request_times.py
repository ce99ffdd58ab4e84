"""Does a delay injected into one tier show in that tier, and nowhere else?

Five milliseconds are less than the medians vary on a busy machine. So plain and delayed requests alternate, and what
slows one slows the other; medians are compared, and more requests are made while the result is unclear.
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

from crescendo.mlmq.broker.call import Call
from crescendo.mlmq.broker.server import Broker
from crescendo.mlmq.client import AsyncClient, Exchange, Query
from mlmq_brokers import client, run_scenario, serving

pytestmark = pytest.mark.quiet

DELAY_S = 0.005
LONG_S = 0.08
SAMPLES = 11
TURNS = 30
MAX_TURNS = 900
TIERS = ("network", "receive", "queue", "pool", "database", "send", "wait")
Act = Callable[[], Awaitable[Any]]


def medians(seen: list[Exchange]) -> dict[str, float]:
    """Seconds, by tier."""
    rows = [(exchange.network_ns, *exchange.times) for exchange in seen if exchange.times is not None]
    assert len(rows) == len(seen) > 0
    return {name: median(column) / 1e9 for name, column in zip(TIERS, zip(*rows, strict=True), strict=True)}


async def sample(seen: list[Exchange], act: Act) -> dict[str, float]:
    seen.clear()
    for _ in range(SAMPLES):
        await act()
    return medians(seen)


def only_this_tier_grew(tier: str, grown: dict[str, float], delay_s: float, least: float) -> bool:
    others = [growth for name, growth in grown.items() if name != tier]
    return grown[tier] > least * delay_s and all(growth < 0.5 * delay_s for growth in others)


async def assert_only(tier: str, seen: list[Exchange], plain: Act, delayed: Act) -> None:
    """Alternate until it is clear that this tier has grown by the injected delay and no other has."""
    before: list[Exchange] = []
    after: list[Exchange] = []
    grown: dict[str, float] = {}
    for turn in range(1, MAX_TURNS + 1):
        for act, kept in ((plain, before), (delayed, after)):
            seen.clear()
            await act()
            kept.extend(seen)
        if turn % TURNS == 0:
            was, now = medians(before), medians(after)
            grown = {name: now[name] - was[name] for name in TIERS}
            if only_this_tier_grew(tier, grown, DELAY_S, 0.8):
                return
    pytest.fail(f"{DELAY_S} s in {tier}, and after {MAX_TURNS} turns the tiers have grown by {grown}")


class BusyWorker:
    """Sleeps between taking a request and asking for a connection."""

    def __init__(self, broker: Broker, _url: str) -> None:
        self.delaying = False
        self._take = broker.queue.take
        broker.queue.take = self._slowly  # type: ignore[method-assign]

    async def _slowly(self) -> tuple[Any, list[Call]]:
        taken = await self._take()
        if self.delaying:
            await asyncio.sleep(DELAY_S)
        return taken


class ExhaustedPool:
    """Holds all connections for a while whenever a worker is about to ask for one."""

    def __init__(self, broker: Broker, _url: str) -> None:
        self.delaying = False
        self._broker = broker
        self._serve = broker.store.serve
        broker.store.serve = self._behind  # type: ignore[method-assign]

    async def _hold(self) -> None:
        async with self._broker.store.pool.acquire():
            await asyncio.sleep(DELAY_S)

    async def _behind(self, requests: Any) -> Any:
        if not self.delaying:
            return await self._serve(requests)
        holders = [asyncio.create_task(self._hold()) for _ in range(self._broker.settings.connections)]
        while self._broker.store.in_use < self._broker.settings.connections:
            await asyncio.sleep(0)
        served = await self._serve(requests)
        await asyncio.gather(*holders)
        return served


DELAYED = b"delayed"


async def make_database_slow(url: str) -> None:
    """Sleep on every insert of a message with a certain content."""
    connection = await asyncpg.connect(url)
    await connection.execute(
        f"""CREATE OR REPLACE FUNCTION mlmq.doze() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN PERFORM pg_sleep({DELAY_S}); RETURN NULL; END $$;
            CREATE TRIGGER doze AFTER INSERT ON mlmq.message FOR EACH ROW
            WHEN (NEW.content = '\\x{DELAYED.hex()}') EXECUTE FUNCTION mlmq.doze()"""
    )
    await connection.close()


@pytest.mark.parametrize(("tier", "injector_class"), [("queue", BusyWorker), ("pool", ExhaustedPool)])
def test_a_delay_inside_the_broker_shows_in_its_tier_alone(database_url: str, tier: str, injector_class: Any) -> None:
    async def scenario() -> None:
        seen: list[Exchange] = []
        # One worker: two would take requests from each other.
        async with (
            serving(database_url, workers=1, connections=2) as broker,
            client("c", broker.address, observer=seen.append) as one,
        ):
            queue = (await one.create_queue("q")).queue
            injector = injector_class(broker, database_url)

            async def send(delaying: bool) -> None:
                injector.delaying = delaying
                await one.send_message(queue, b"content")

            await send(False)  # prepares the statement, and wakes a sleeping worker without the delay
            await assert_only(tier, seen, lambda: send(False), lambda: send(True))

    run_scenario(scenario())


def test_a_delay_in_the_database_shows_there_alone(database_url: str) -> None:
    async def scenario() -> None:
        seen: list[Exchange] = []
        await make_database_slow(database_url)
        async with serving(database_url) as broker, client("c", broker.address, observer=seen.append) as one:
            queue = (await one.create_queue("q")).queue

            async def send(content: bytes) -> None:
                await one.send_message(queue, content)

            await send(b"awake")
            await assert_only("database", seen, lambda: send(b"awake"), lambda: send(DELAYED))

    run_scenario(scenario())


def test_a_requested_wait_is_a_tier_of_its_own(database_url: str) -> None:
    async def scenario() -> None:
        seen: list[Exchange] = []
        async with serving(database_url) as broker, client("c", broker.address, observer=seen.append) as one:

            async def dequeue(wait_s: float) -> None:
                assert await one.dequeue_message(Query(queue=one.own_queue), wait_s=wait_s) is None

            await dequeue(0)
            before, after = await sample(seen, lambda: dequeue(0)), await sample(seen, lambda: dequeue(LONG_S))
            # The first query takes part of the requested time, so not all of it is waited.
            grown = {name: after[name] - before[name] for name in TIERS}
            assert only_this_tier_grew("wait", grown, LONG_S, 0.3), grown

    run_scenario(scenario())


class SlowWire:
    """A relay between a client and a broker that pauses in the middle of requests, or of answers."""

    def __init__(self, target: str, within_requests: bool) -> None:
        self._host, _, self._port = target.partition(":")
        self._within_requests = within_requests
        self.delaying = False

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
            if self.delaying and slow:
                sink.write(data[:1])
                await asyncio.sleep(DELAY_S)
                data = data[1:]
            sink.write(data)


@pytest.mark.parametrize("tier", ["receive", "network"])
def test_a_slow_network_shows_in_receive_for_requests_and_in_network_for_answers(database_url: str, tier: str) -> None:
    async def scenario() -> None:
        seen: list[Exchange] = []
        async with serving(database_url) as broker:
            wire = SlowWire(broker.address, within_requests=tier == "receive")
            async with wire.running() as address, client("c", address, observer=seen.append) as one:
                queue = (await one.create_queue("q")).queue

                async def send(delaying: bool) -> None:
                    wire.delaying = delaying
                    await one.send_message(queue, b"content")

                await send(False)
                await assert_only(tier, seen, lambda: send(False), lambda: send(True))

    run_scenario(scenario())


def test_answers_that_a_socket_does_not_take_show_in_send(database_url: str) -> None:
    """Without our client, which always reads: frames are built and parsed here."""
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
            await asyncio.sleep(LONG_S)
            sent: list[int] = []
            for _ in range(200):
                length, _, flags, _, _ = header.unpack(await reader.readexactly(header.size))
                assert flags == 1
                payload = await reader.readexactly(length - 12)
                sent.append(times.unpack(payload[: times.size])[4])
            writer.close()
            assert max(sent) > LONG_S * 1e9  # one that had to wait for the reader
            assert min(sent) < LONG_S * 1e9 / 2  # one that the kernel took at once

    run_scenario(scenario())


def test_tiers_add_up_to_the_clients_time(database_url: str) -> None:
    async def scenario() -> None:
        seen: list[Exchange] = []
        async with serving(database_url) as broker, client("c", broker.address, observer=seen.append) as one:
            for _ in range(20):
                await one.send_message_to_client(one.id, b"content")
        for exchange in seen:
            assert exchange.times is not None
            assert exchange.network_ns is not None
            # The network is the remainder: it can be small, but never negative.
            assert exchange.network_ns >= 0
            assert exchange.network_ns + sum(exchange.times) == exchange.ended_ns - exchange.asked_ns
            assert exchange.times.database_ns > 0

    run_scenario(scenario())


def test_the_performance_log_has_the_original_actions_and_they_add_up(database_url: str, tmp_path: Path) -> None:
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

    run_scenario(scenario())
