"""Does the client library lose nothing and double nothing when brokers and answers get lost?"""

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
from mlmq_brokers import client, play, serving

QUICK = Backoff(first_s=0.01, most_s=0.05)


class Thief:
    """A relay that swallows the next answers of a broker, as a broken network would, and lets requests through."""

    def __init__(self, target: str) -> None:
        self._host, _, self._port = target.partition(":")
        self.swallow = 0
        self.swallowed = 0
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
            if self.swallowed < self.swallow:
                self.swallowed += 1
            else:
                sink.write(data)


class Liar(Thief):
    """A relay that puts refusals in the place of a broker's answers, as a broker does that lost its database."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.lies: list[Refusal] = []
        self._codec = Codec(ANSWERS)

    async def _answers(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            if self.swallowed < self.swallow:
                self.swallowed += 1
            elif self.lies:
                number = int.from_bytes(data[8:16])
                sink.write(self._codec.encode(number, Refused(self.lies.pop(0), "so it says")))
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
            thief = Thief(broker.address)
            options = {"backoff": QUICK, "attempt_timeout_s": 1.0, "observer": seen.append}
            async with thief.running() as address, client("c", address, **options) as one:
                queue = (await one.create_queue("q")).queue
                thief.swallow = 2
                sent = await one.send_message(queue, b"once")
                assert thief.swallowed == 2
                assert seen[-1].attempts == 3
                assert seen[-1].network_ns is None
                assert sent.messages == (await fetch(database_url, "SELECT max(id) FROM mlmq.message"),)
                assert await fetch(database_url, "SELECT count(*) FROM mlmq.message") == 1

    play(scenario())


def test_a_dequeue_that_ran_out_of_time_loses_no_message(database_url: str) -> None:
    async def scenario() -> None:
        async with serving(database_url) as broker:
            thief = Thief(broker.address)
            async with thief.running() as address, client("c", address, backoff=QUICK, attempt_timeout_s=0.5) as one:
                queue = (await one.create_queue("q")).queue
                for content in (b"first", b"second"):
                    await one.send_message(queue, content)
                one.timeout_s = 0.8
                thief.swallow = 1000
                with pytest.raises(UnansweredError, match="no answer within"):
                    await one.dequeue_message(Query(queue=queue))
                assert await fetch(database_url, "SELECT count(*) FROM mlmq.message") == 1  # it was taken
                thief.swallow, one.timeout_s = 0, 30.0
                got = [await one.dequeue_message(Query(queue=queue)) for _ in range(3)]
                assert [message.content if message else None for message in got] == [b"first", b"second", None]

    play(scenario())


def test_a_cancelled_dequeue_loses_no_message(database_url: str) -> None:
    async def scenario() -> None:
        async with serving(database_url) as broker:
            thief = Thief(broker.address)
            async with thief.running() as address, client("c", address) as one:
                await one.send_message_to_client(one.id, b"mine")
                thief.swallow = 1
                cancelled = asyncio.create_task(one.dequeue_message(Query(queue=one.own_queue)))
                while thief.swallowed < 1:
                    await asyncio.sleep(0.005)
                cancelled.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await cancelled
                message = await one.dequeue_message(Query(queue=one.own_queue))
                assert message is not None
                assert message.content == b"mine"

    play(scenario())


def test_clients_go_on_with_another_broker_and_come_back(database_url: str) -> None:
    async def scenario() -> None:
        async with serving(database_url) as two:
            async with serving(database_url) as one:
                brokers = [one.address, two.address]
                survivor = AsyncClient("c", brokers, backoff=QUICK, timeout_s=30)
                await survivor.init()
                await survivor.register()
                assert survivor.broker == one.address
                queue = (await survivor.create_queue("q")).queue
                asking = asyncio.create_task(survivor.dequeue_message(Query(queue=queue), wait_s=30))
                while not len(one.workers.room):
                    await asyncio.sleep(0.005)
                await one.drain()  # the waiting dequeue is sent away, and waits at the other one
                while not len(two.workers.room):
                    await asyncio.sleep(0.005)
            await survivor.send_message(queue, b"to whoever is there")
            message = await asking
            assert message is not None
            assert survivor.broker == two.address
            assert survivor.connects == 2
            await survivor.close()

    play(scenario())


def test_overload_is_waited_out_or_told_as_the_caller_likes(database_url: str) -> None:
    async def scenario() -> None:
        async with (
            serving(database_url, workers=1, batch=1, request_queue=1) as broker,
            client("patient", broker.address, backoff=QUICK) as patient,
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

    play(scenario())


def test_a_refusal_that_could_not_tell_loses_no_message_even_to_the_hasty(database_url: str) -> None:
    async def scenario() -> None:
        async with serving(database_url) as broker:
            liar = Liar(broker.address)
            async with liar.running() as address, client("hasty", address, patient=False) as hasty:
                await hasty.send_message_to_client(hasty.id, b"kept")
                for reason in (Refusal.UNAVAILABLE, Refusal.INTERNAL):
                    liar.lies = [reason]  # the broker has taken the message out all the same
                    with pytest.raises(RefusedError) as caught:
                        await hasty.dequeue_message(Query(queue=hasty.own_queue))
                    assert caught.value.outcome_unknown
                    assert await fetch(database_url, "SELECT count(*) FROM mlmq.message") == 0
                message = await hasty.dequeue_message(Query(queue=hasty.own_queue))
                assert message is not None
                assert message.content == b"kept"
                assert await hasty.dequeue_message(Query(queue=hasty.own_queue)) is None

    play(scenario())


def test_who_has_lost_an_answer_insists_although_the_next_attempt_was_shed(database_url: str) -> None:
    async def scenario() -> None:
        async with serving(database_url) as broker:
            liar = Liar(broker.address)
            options = {"backoff": QUICK, "impatient_of": [Refusal.OVERLOADED], "attempt_timeout_s": 1.0}
            async with liar.running() as address, client("c", address, **options) as one:
                liar.lies = [Refusal.OVERLOADED]
                with pytest.raises(RefusedError, match="overloaded"):  # at once, when nothing was lost
                    await one.dequeue_message(Query(queue=one.own_queue))
                await one.send_message_to_client(one.id, b"kept")
                liar.swallow, liar.lies = 1, [Refusal.OVERLOADED]
                message = await one.dequeue_message(Query(queue=one.own_queue))
                assert message is not None
                assert message.content == b"kept"
                assert liar.swallowed == 1
                assert not liar.lies

    play(scenario())


def test_no_broker_is_a_sentence_within_the_time_given() -> None:
    async def scenario() -> None:
        nowhere = AsyncClient("c", ["127.0.0.1:1"], timeout_s=0.3, backoff=QUICK)
        with pytest.raises(PeerError, match=r"no broker within 0.3 s; last: 127.0.0.1:1 cannot be reached"):
            await nowhere.init()
        with pytest.raises(UnansweredError, match=r"Register: no answer within 0.3 s"):
            await nowhere.register()
        assert not nowhere.is_connected

    play(scenario())
    for wrong in ([], ["nowhere"], [":80"], ["host:port"]):
        with pytest.raises(ConfigError, match="brokers"):
            AsyncClient("c", wrong)
    with pytest.raises(ConfigError, match="register"):
        Client("c", ["127.0.0.1:1"]).send_message(1, b"")


@pytest.mark.parametrize("junk", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00\x00\x00\x0d\x01\x00\x00\x21" + b"\0" * 9])
def test_a_peer_that_speaks_something_else_is_given_up(junk: bytes) -> None:
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

    play(scenario())


def test_pauses_grow_to_a_limit_and_differ() -> None:
    backoff, chance = Backoff(first_s=0.1, most_s=1.0, factor=2.0), random.Random(7)
    for failures, ceiling_s in ((1, 0.1), (2, 0.2), (3, 0.4), (4, 0.8), (5, 1.0), (5000, 1.0)):
        pauses = {backoff.pause_s(failures, chance) for _ in range(50)}
        assert len(pauses) > 40
        assert all(ceiling_s / 2 <= pause_s <= ceiling_s for pause_s in pauses)


def test_a_slot_is_used_by_one_request_at_a_time_and_numbers_rise() -> None:
    async def scenario() -> None:
        slots = Slots(9)
        lent = [await slots.lend() for _ in range(MAX_SLOTS)]
        assert len({once.slot for once in lent}) == MAX_SLOTS
        waiting = asyncio.create_task(slots.lend())
        await asyncio.sleep(0)
        assert not waiting.done()
        slots.give_back(lent[5])
        again = await waiting
        assert (again.session, again.slot, again.number) == (9, lent[5].slot, lent[5].number + 1)
        wish, other = (Query(queue=1), 1, 0), (Query(queue=2), 1, 0)
        slots.keep_open(wish, again)
        assert slots.reopen(other) is None
        assert slots.reopen(wish) == again
        assert slots.reopen(wish) is None


def test_a_slot_that_comes_too_late_goes_to_the_next_who_waits() -> None:
    async def scenario() -> None:
        slots = Slots(9)
        lent = [await slots.lend() for _ in range(MAX_SLOTS)]
        first, second = asyncio.create_task(slots.lend()), asyncio.create_task(slots.lend())
        await asyncio.sleep(0)
        slots.give_back(lent[5])
        first.cancel()
        assert (await second).slot == lent[5].slot
        third = asyncio.create_task(slots.lend())
        await asyncio.sleep(0)
        third.cancel()
        await asyncio.sleep(0)
        slots.give_back(lent[6])
        assert (await slots.lend()).slot == lent[6].slot

    play(scenario())
