"""Does the client library lose and duplicate nothing when brokers fail and answers get lost?"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from crescendo.mlmq.client import AsyncClient, Backoff, Client, Exchange, Query, RefusedError, UnansweredError
from crescendo.mlmq.client.slots import Slots
from crescendo.model.errors import ConfigError, PeerError
from crescendo.wire.mlmq.codec import Codec
from crescendo.wire.mlmq.operations import ANSWERS, MAX_SLOTS, Refusal, Refused
from mlmq_brokers import client, run_scenario, serving

FAST = Backoff(first_s=0.01, most_s=0.05)


class LossyRelay:
    """A relay that drops the next answers of a broker, like a broken network, and forwards all requests."""

    def __init__(self, target: str) -> None:
        self._host, _, self._port = target.partition(":")
        self.drop = 0
        self.dropped = 0
        self.requests = 0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        try:
            yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(self._host, int(self._port))
        pumps = [asyncio.create_task(self._requests(reader, back)), asyncio.create_task(self._answers(there, writer))]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        for end in (writer, back):
            end.close()

    async def _requests(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            self.requests += 1
            sink.write(data)

    async def _answers(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            if self.dropped < self.drop:
                self.dropped += 1
            else:
                sink.write(data)


class RefusingRelay(LossyRelay):
    """A relay that replaces answers with refusals, like a broker that has lost its database."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.refusals: list[Refusal] = []
        self._codec = Codec(ANSWERS)

    async def _answers(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            if self.dropped < self.drop:
                self.dropped += 1
            elif self.refusals:
                number = int.from_bytes(data[8:16])
                sink.write(self._codec.encode(number, Refused(self.refusals.pop(0), "refused by the relay")))
            else:
                sink.write(data)


async def fetch(url: str, statement: str) -> Any:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


def test_a_send_whose_answer_is_lost_is_stored_once(database_url: str) -> None:
    async def scenario() -> None:
        seen: list[Exchange] = []
        async with serving(database_url) as broker:
            relay = LossyRelay(broker.address)
            options = {"backoff": FAST, "attempt_timeout_s": 1.0, "observer": seen.append}
            async with relay.running() as address, client("c", address, **options) as one:
                queue = (await one.create_queue("q")).queue
                relay.drop = 2
                sent = await one.send_message(queue, b"once")
                assert relay.dropped == 2
                assert seen[-1].attempts == 3
                assert seen[-1].network_ns is None
                assert sent.messages == (await fetch(database_url, "SELECT max(id) FROM mlmq.message"),)
                assert await fetch(database_url, "SELECT count(*) FROM mlmq.message") == 1

    run_scenario(scenario())


def test_a_dequeue_that_timed_out_loses_no_message(database_url: str) -> None:
    async def scenario() -> None:
        async with serving(database_url) as broker:
            relay = LossyRelay(broker.address)
            async with relay.running() as address, client("c", address, backoff=FAST, attempt_timeout_s=0.5) as one:
                queue = (await one.create_queue("q")).queue
                for content in (b"first", b"second"):
                    await one.send_message(queue, content)
                one.timeout_s = 0.8
                relay.drop = 1000
                with pytest.raises(UnansweredError, match="no answer within"):
                    await one.dequeue_message(Query(queue=queue))
                while await fetch(database_url, "SELECT count(*) FROM mlmq.message") != 1:  # it is taken
                    await asyncio.sleep(0.02)
                relay.drop, one.timeout_s = 0, 30.0
                got = [await one.dequeue_message(Query(queue=queue)) for _ in range(3)]
                assert [message.content if message else None for message in got] == [b"first", b"second", None]

    run_scenario(scenario())


def test_a_cancelled_dequeue_loses_no_message(database_url: str) -> None:
    async def scenario() -> None:
        async with serving(database_url) as broker:
            relay = LossyRelay(broker.address)
            async with relay.running() as address, client("c", address) as one:
                await one.send_message_to_client(one.id, b"mine")
                relay.drop = 1
                cancelled = asyncio.create_task(one.dequeue_message(Query(queue=one.own_queue)))
                while relay.dropped < 1:
                    await asyncio.sleep(0.005)
                cancelled.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await cancelled
                message = await one.dequeue_message(Query(queue=one.own_queue))
                assert message is not None
                assert message.content == b"mine"

    run_scenario(scenario())


def test_a_client_continues_on_another_broker(database_url: str) -> None:
    async def scenario() -> None:
        async with serving(database_url) as two:
            async with serving(database_url) as one:
                brokers = [one.address, two.address]
                survivor = AsyncClient("c", brokers, backoff=FAST, timeout_s=30)
                await survivor.init()
                await survivor.register()
                assert survivor.broker == one.address
                queue = (await survivor.create_queue("q")).queue
                asking = asyncio.create_task(survivor.dequeue_message(Query(queue=queue), wait_s=30))
                while not len(one.workers.room):
                    await asyncio.sleep(0.005)
                await one.drain()  # the waiting dequeue is refused, and waits at the other broker
                while not len(two.workers.room):
                    await asyncio.sleep(0.005)
            await survivor.send_message(queue, b"to the other broker")
            message = await asking
            assert message is not None
            assert survivor.broker == two.address
            assert survivor.connects == 2
            await survivor.close()

    run_scenario(scenario())


def test_overload_is_retried_or_raised_as_the_caller_chooses(database_url: str) -> None:
    async def scenario() -> None:
        async with (
            serving(database_url, workers=1, batch=1, request_queue=1) as broker,
            client("patient", broker.address, backoff=FAST) as patient,
            client("hasty", broker.address, patient=False) as hasty,
        ):
            blocker = await asyncpg.connect(database_url)
            async with blocker.transaction():
                await blocker.execute("LOCK TABLE mlmq.client IN ACCESS EXCLUSIVE MODE")
                filling = [asyncio.create_task(patient.lookup_client("hasty")) for _ in range(4)]
                while len(broker.queue) < 1 or broker.workers.busy < 1:
                    await asyncio.sleep(0.005)
                with pytest.raises(RefusedError, match="overloaded"):
                    await hasty.lookup_client("patient")
            await blocker.close()
            assert all(await asyncio.gather(*filling))

    run_scenario(scenario())


def test_a_refusal_with_unknown_outcome_loses_no_message_even_without_retries(database_url: str) -> None:
    async def scenario() -> None:
        async with serving(database_url) as broker:
            relay = RefusingRelay(broker.address)
            async with relay.running() as address, client("hasty", address, patient=False) as hasty:
                await hasty.send_message_to_client(hasty.id, b"kept")
                for reason in (Refusal.UNAVAILABLE, Refusal.INTERNAL):
                    relay.refusals = [reason]  # the broker has taken the message nevertheless
                    with pytest.raises(RefusedError) as caught:
                        await hasty.dequeue_message(Query(queue=hasty.own_queue))
                    assert caught.value.outcome_unknown
                    assert await fetch(database_url, "SELECT count(*) FROM mlmq.message") == 0
                message = await hasty.dequeue_message(Query(queue=hasty.own_queue))
                assert message is not None
                assert message.content == b"kept"
                assert await hasty.dequeue_message(Query(queue=hasty.own_queue)) is None

    run_scenario(scenario())


def test_a_request_is_retried_after_a_lost_answer_even_if_the_next_attempt_is_shed(database_url: str) -> None:
    async def scenario() -> None:
        async with serving(database_url) as broker:
            relay = RefusingRelay(broker.address)
            options = {"backoff": FAST, "impatient_of": [Refusal.OVERLOADED], "attempt_timeout_s": 1.0}
            async with relay.running() as address, client("c", address, **options) as one:
                relay.refusals = [Refusal.OVERLOADED]
                with pytest.raises(RefusedError, match="overloaded"):  # at once, when nothing was lost
                    await one.dequeue_message(Query(queue=one.own_queue))
                await one.send_message_to_client(one.id, b"kept")
                relay.drop, relay.refusals = 1, [Refusal.OVERLOADED]
                message = await one.dequeue_message(Query(queue=one.own_queue))
                assert message is not None
                assert message.content == b"kept"
                assert relay.dropped == 1
                assert not relay.refusals

    run_scenario(scenario())


def test_an_unreachable_broker_is_reported_within_the_timeout() -> None:
    async def scenario() -> None:
        nowhere = AsyncClient("c", ["127.0.0.1:1"], timeout_s=0.3, backoff=FAST)
        with pytest.raises(PeerError, match=r"no broker within 0.3 s; last: 127.0.0.1:1 cannot be reached"):
            await nowhere.init()
        with pytest.raises(UnansweredError, match=r"Register: no answer within 0.3 s"):
            await nowhere.register()
        assert not nowhere.is_connected

    run_scenario(scenario())
    for wrong in ([], ["nowhere"], [":80"], ["host:port"]):
        with pytest.raises(ConfigError, match="brokers"):
            AsyncClient("c", wrong)
    with pytest.raises(ConfigError, match="register"):
        Client("c", ["127.0.0.1:1"]).send_message(1, b"")


@pytest.mark.parametrize("junk", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00\x00\x00\x0d\x01\x00\x00\x21" + b"\0" * 9])
def test_a_peer_with_another_protocol_is_given_up(junk: bytes) -> None:
    async def scenario() -> None:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(junk)
            await reader.read()
            writer.close()

        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        one = AsyncClient("c", [address], timeout_s=2.0, attempt_timeout_s=1.0, backoff=Backoff(first_s=4))
        with pytest.raises(UnansweredError, match="given up"):
            await one.register()
        await one.close()
        server.close()

    run_scenario(scenario())


def test_pauses_grow_to_a_limit_and_have_jitter() -> None:
    backoff, rng = Backoff(first_s=0.1, most_s=1.0, factor=2.0), random.Random(7)
    for failures, ceiling_s in ((1, 0.1), (2, 0.2), (3, 0.4), (4, 0.8), (5, 1.0), (5000, 1.0)):
        pauses = {backoff.pause_s(failures, rng) for _ in range(50)}
        assert len(pauses) > 40
        assert all(ceiling_s / 2 <= pause_s <= ceiling_s for pause_s in pauses)


def test_a_slot_is_used_by_one_request_at_a_time_and_numbers_rise() -> None:
    async def scenario() -> None:
        slots = Slots(9)
        acquired = [await slots.acquire(1) for _ in range(MAX_SLOTS)]
        assert len({once.slot for once in acquired}) == MAX_SLOTS
        waiting = asyncio.create_task(slots.acquire(1))
        await asyncio.sleep(0)
        assert not waiting.done()
        slots.release(acquired[5])
        again = await waiting
        assert (again.session, again.slot, again.number) == (9, acquired[5].slot, acquired[5].number + 1)
        key, other = (Query(queue=1), 1, 0), (Query(queue=2), 1, 0)
        slots.keep_open(key, again)
        assert slots.reopen(other) is None
        assert slots.reopen(key) == again
        assert slots.reopen(key) is None

    run_scenario(scenario())


def test_a_slot_for_a_cancelled_request_goes_to_the_next_one() -> None:
    async def scenario() -> None:
        slots = Slots(9)
        acquired = [await slots.acquire(1) for _ in range(MAX_SLOTS)]
        first, second = asyncio.create_task(slots.acquire(1)), asyncio.create_task(slots.acquire(1))
        await asyncio.sleep(0)
        slots.release(acquired[5])
        first.cancel()
        assert (await second).slot == acquired[5].slot
        third = asyncio.create_task(slots.acquire(1))
        await asyncio.sleep(0)
        third.cancel()
        await asyncio.sleep(0)
        slots.release(acquired[6])
        assert (await slots.acquire(1)).slot == acquired[6].slot

    run_scenario(scenario())
