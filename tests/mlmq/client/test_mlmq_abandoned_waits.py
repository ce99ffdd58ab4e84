"""Does a client that gives up waiting, again and again, keep working without losing a message?"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from time import monotonic

import pytest

from crescendo.mlmq.client import AsyncClient, Backoff, Query, UnansweredError
from crescendo.mlmq.client.shared_links import SharedLinks
from crescendo.mlmq.client.slots import MAX_OPEN, Slots
from crescendo.wire.mlmq.operations import MAX_SLOTS, Once, Registered
from mlmq_brokers import client, run_scenario, serving

FAST = Backoff(first_s=0.01, most_s=0.05)
LIMIT_S = 20.0  # of the client; a busy machine needs a small part of it


async def give_up(one: AsyncClient, context: int, wait_s: float = 60.0) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(one.dequeue_message(Query(one.own_queue, context=context), wait_s=wait_s), 0.01)


@pytest.mark.parametrize("at_once", [False, True])
def test_more_cancelled_waits_than_slots_block_nobody(database_url: str, at_once: bool) -> None:
    async def scenario() -> None:
        async with serving(database_url) as broker, client("c", broker.address, timeout_s=LIMIT_S) as one:
            contexts = range(1_000, 1_000 + 2 * MAX_SLOTS)
            if at_once:
                for first in range(0, 2 * MAX_SLOTS, MAX_SLOTS):
                    await asyncio.gather(*(give_up(one, context) for context in contexts[first : first + MAX_SLOTS]))
            else:
                for context in contexts:
                    await give_up(one, context)
            started_s = monotonic()
            await one.send_message_to_client(one.id, b"served")
            assert monotonic() - started_s < LIMIT_S
            # The waits that were given up have left the broker, too.
            assert len(broker.workers.room) <= MAX_OPEN + 1
            # Nobody waits for this one any more except abandoned requests, and it is not lost to them.
            for context in (contexts[0], contexts[-1]):
                await one.send_response_to_client(one.id, context, b"%d" % context)
                got = await one.dequeue_message(Query(one.own_queue, context=context), wait_s=10)
                assert got is not None
                assert got.content == b"%d" % context

    run_scenario(scenario())


def test_a_message_that_an_abandoned_wait_has_taken_goes_back(database_url: str) -> None:
    """The answer is lost, the request is never repeated, and further waits need its slot."""

    async def scenario() -> None:
        async with (
            serving(database_url) as broker,
            client("sender", broker.address) as sender,
            client("c", broker.address, timeout_s=LIMIT_S) as one,
        ):
            waiting = asyncio.create_task(one.dequeue_message(Query(one.own_queue), wait_s=30))
            while not len(broker.workers.room):
                await asyncio.sleep(0.01)
            sending = asyncio.create_task(sender.send_message_to_client(one.id, b"taken"))
            while len(broker.workers.room):
                await asyncio.sleep(0)
            waiting.cancel()  # its answer is on the way, or about to be
            await sending
            for context in range(1, 2 * MAX_OPEN):
                await give_up(one, context)
            got = await one.dequeue_message(Query(one.own_queue, sender=sender.id), wait_s=10)
            assert got is not None
            assert (got.content, got.redelivered) == (b"taken", True)

    run_scenario(scenario())


def test_without_answers_no_request_outlives_its_timeout() -> None:
    async def scenario() -> None:
        async with silent_server() as address:
            one = AsyncClient("c", [address], timeout_s=2.0, attempt_timeout_s=5.0, backoff=FAST)
            one._slots = Slots(1)  # as after a registration, for which this server is too silent
            one._registered = Registered(1, 1, 1)
            started_s = monotonic()
            results = await asyncio.gather(
                *(one.send_message(1, b"") for _ in range(3 * MAX_SLOTS)), return_exceptions=True
            )
            assert all(isinstance(result, UnansweredError) for result in results)
            assert monotonic() - started_s < 5.0  # three rounds of slots would take longer than a request may
            await one.close()

    run_scenario(scenario())


@pytest.mark.parametrize("shared", [False, True])
def test_requests_to_a_host_that_is_gone_do_not_wait_for_each_other(shared: bool) -> None:
    """One of them connects; the time-outs of the others go on meanwhile."""

    async def scenario() -> None:
        with unanswering_address() as address:
            links = SharedLinks(8) if shared else None
            clients = [AsyncClient("c", [address], timeout_s=1.0, links=links) for _ in range(8 if shared else 1)]
            started_s = monotonic()
            asked = [clients[number % len(clients)].lookup_client("x") for number in range(8)]
            results = await asyncio.gather(*asked, return_exceptions=True)
            assert all(isinstance(result, UnansweredError) for result in results), results
            assert monotonic() - started_s < 5.0  # one after the other they would take eight
            for one in clients:
                await one.close()

    run_scenario(scenario())


@contextlib.contextmanager
def unanswering_address() -> Iterator[str]:
    """A listener whose backlog is full: further connections are neither accepted nor refused."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect(listener.getsockname())
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@contextlib.asynccontextmanager
async def silent_server() -> AsyncIterator[str]:
    async def read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while await reader.read(65536):
                pass
        writer.close()

    server = await asyncio.start_server(read, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


class HoldingRelay:
    """A slow broker: it takes requests, and serves those that it holds when their client has long gone."""

    def __init__(self, target: str) -> None:
        self._host, _, self._port = target.partition(":")
        self.release = asyncio.Event()
        self.release.set()
        self.passed = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(self._host, int(self._port))
        answers = asyncio.create_task(self._answers(there, writer))
        while data := await reader.read(65536):
            held = not self.release.is_set()
            await self.release.wait()
            back.write(data)
            if held:
                await asyncio.sleep(0.2)
                self.passed.set()
        answers.cancel()
        await asyncio.gather(answers, return_exceptions=True)
        back.close()
        writer.close()

    async def _answers(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            with contextlib.suppress(ConnectionError):
                sink.write(data)


def test_what_a_late_copy_of_a_dequeue_takes_is_fetched_by_the_next_one(database_url: str) -> None:
    """The first broker is slow; the second says that the queue is empty. Then a message comes, and the first wakes."""

    async def scenario() -> None:
        async with serving(database_url) as slow, serving(database_url) as quick:
            relay = HoldingRelay(slow.address)
            server = await asyncio.start_server(relay.serve, "127.0.0.1", 0)
            address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
            async with (
                client("c", address, quick.address, timeout_s=10, attempt_timeout_s=0.3, backoff=FAST) as one,
                client("sender", quick.address) as sender,
            ):
                relay.release.clear()
                assert await one.dequeue_message(Query(one.own_queue)) is None
                await sender.send_message_to_client(one.id, b"late")
                relay.release.set()
                await relay.passed.wait()
                await one.send_message(one.own_queue, b"other")  # must not use the slot of that dequeue
                got = await one.dequeue_message(Query(one.own_queue))
                assert got is not None
                assert got.content == b"late"
            server.close()

    run_scenario(scenario())


def test_the_oldest_open_dequeues_are_given_up_first_and_until_it_is_answered() -> None:
    async def scenario() -> None:
        slots = Slots(9)
        opened = [await slots.acquire(1) for _ in range(MAX_OPEN + 1)]
        for number, once in enumerate(opened):
            slots.keep_open((Query(queue=number + 1), 1, 0), once)
            assert bool(slots.give_up_oldest()) == (number == MAX_OPEN), number
            if number == MAX_OPEN - 1:
                assert slots.open_dequeues == MAX_OPEN
        given_up = [Once(9, once.slot, once.number + 1) for once in opened[: MAX_OPEN + 1 - MAX_OPEN // 2]]
        assert slots.open_dequeues == MAX_OPEN // 2
        slots.still_to_give_up(tuple(given_up))
        assert slots.give_up_oldest() == tuple(given_up)
        assert slots.reopen((Query(queue=1), 1, 0)) is None
        assert slots.reopen((Query(queue=MAX_OPEN + 1), 1, 0)) == opened[-1]

    run_scenario(scenario())
