"""Does a broker stay correct and small whatever a client sends, even if the client never reads?

The bytes are built here with struct and MessagePack, following docs/mlmq.md, not with the codec of the broker.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import psutil
import pytest

from crescendo.mlmq.broker.server import Broker
from crescendo.wire.mlmq.operations import MAX_CONTENT_BYTES, Refusal
from mlmq_brokers import client, process, run_scenario, serving

REGISTER, LOOKUP_CLIENT, SEND, PEEK = 1, 5, 7, 8
REGISTERED, SENT, MESSAGES, REFUSED = 64, 68, 69, 72
_HEADER = struct.Struct("!iBBHQ")


def frame(kind: int, number: int, body: Any) -> bytes:
    packed = msgspec.msgpack.encode(body)
    return _HEADER.pack(12 + len(packed), 1, 0, kind, number) + packed


class Raw:
    """A connection that knows only the frame header."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def answer(self) -> tuple[int, int, Any]:
        length, version, flags, kind, number = _HEADER.unpack(await self.reader.readexactly(_HEADER.size))
        assert (version, flags) == (1, 0)
        return kind, number, msgspec.msgpack.decode(await self.reader.readexactly(length - 12))

    async def is_closed(self) -> bool:
        return await self.reader.read(1) == b""


@contextlib.asynccontextmanager
async def raw(broker: Broker) -> AsyncIterator[Raw]:
    host, _, port = broker.address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield Raw(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def test_a_frame_split_at_every_byte_is_one_request(database_url: str) -> None:
    async def scenario() -> None:
        async with serving(database_url) as broker, raw(broker) as peer:
            request = frame(LOOKUP_CLIENT, 2**63, ["nobody"])
            for split in range(1, len(request)):
                peer.writer.write(request[:split])
                await asyncio.sleep(0.001)  # lets the broker read the first part separately
                peer.writer.write(request[split:])
                kind, number, body = await peer.answer()
                assert (kind, number, body[0]) == (REFUSED, 2**63, Refusal.NO_SUCH_CLIENT)
            assert broker.metrics.requests["LookupClient", "no_such_client"] == len(request) - 1

    run_scenario(scenario())


def test_coalesced_frames_are_all_answered_and_none_twice(database_url: str) -> None:
    async def scenario() -> None:
        async with serving(database_url, pipeline=7) as broker, raw(broker) as peer:
            count = 300  # far more than may be unanswered at once
            peer.writer.write(b"".join(frame(REGISTER, n, [f"client {n % 10}"]) for n in range(count)))
            answers = [await peer.answer() for _ in range(count)]
            assert {kind for kind, _, _ in answers} == {REGISTERED}
            assert sorted(number for _, number, _ in answers) == list(range(count))
            assert len({body[0] for _, _, body in answers}) == 10

    run_scenario(scenario())


def test_a_client_that_pipelines_too_much_is_not_read_from(database_url: str) -> None:
    async def scenario() -> None:
        async with serving(database_url, pipeline=3, workers=1, batch=1) as broker, raw(broker) as peer:
            async with broker.store.pool.acquire() as lock, lock.transaction():
                await lock.execute("LOCK TABLE mlmq.client IN ACCESS EXCLUSIVE MODE")
                peer.writer.write(b"".join(frame(LOOKUP_CLIENT, n, ["nobody"]) for n in range(10)))
                while broker.workers.busy < 1 or len(broker.queue) < 2:
                    await asyncio.sleep(0.005)
                await asyncio.sleep(0.1)
                assert len(broker.queue) == 2  # one is served, two wait, seven have not been read
            assert sorted([(await peer.answer())[1] for _ in range(10)]) == list(range(10))

    run_scenario(scenario())


def test_an_unreadable_frame_is_refused_and_the_connection_stays_open(database_url: str) -> None:
    async def scenario() -> None:
        async with serving(database_url) as broker, raw(broker) as peer:
            peer.writer.write(
                frame(33, 1, [])  # no such type
                + frame(LOOKUP_CLIENT, 2, 7)  # not what the type says
                + _HEADER.pack(12 + 3, 1, 0, LOOKUP_CLIENT, 3) + b"\xc1\xc1\xc1"  # not MessagePack
                + frame(REFUSED, 4, [1, "I refuse"])  # an answer
                + frame(SEND, 5, [1, b"x" * (MAX_CONTENT_BYTES + 1), [1]])
                + frame(REGISTER, 6, ["fine"])
            )  # fmt: skip
            answers = {number: (kind, body) for kind, number, body in [await peer.answer() for _ in range(6)]}
            reasons = {number: Refusal(body[0]) for number, (kind, body) in answers.items() if kind == REFUSED}
            assert reasons == {
                1: Refusal.UNKNOWN_KIND,
                2: Refusal.INVALID,
                3: Refusal.INVALID,
                4: Refusal.UNKNOWN_KIND,
                5: Refusal.TOO_LARGE,
            }
            assert answers[6][0] == REGISTERED

    run_scenario(scenario())


def test_an_invalid_length_or_version_closes_the_connection_with_a_reason(database_url: str) -> None:
    async def scenario() -> None:
        async with serving(database_url) as broker:
            for header, reason in (
                (_HEADER.pack(2**31 - 1, 1, 0, SEND, 9), Refusal.TOO_LARGE),
                (_HEADER.pack(-1, 1, 0, SEND, 9), Refusal.INVALID),
                (_HEADER.pack(0, 1, 0, SEND, 9), Refusal.INVALID),
                (_HEADER.pack(12, 2, 0, SEND, 9), Refusal.INVALID),
            ):
                async with raw(broker) as peer:
                    peer.writer.write(header)
                    kind, number, body = await peer.answer()
                    assert (kind, number, body[0]) == (REFUSED, 9, reason)
                    assert await peer.is_closed()
            assert broker.metrics.broken_clients == 4
            async with client("fine", broker.address):  # others are still served
                pass

    run_scenario(scenario())


def test_too_many_clients_are_refused_and_counted(database_url: str) -> None:
    async def scenario() -> None:
        async with serving(database_url, clients=2) as broker, raw(broker) as first, raw(broker) as second:
            for peer in (first, second):
                peer.writer.write(frame(REGISTER, 1, ["me"]))
                assert (await peer.answer())[0] == REGISTERED
            async with raw(broker) as third:
                kind, number, body = await third.answer()
                assert (kind, number, body[0]) == (REFUSED, 0, Refusal.OVERLOADED)
                assert await third.is_closed()
            assert broker.metrics.refused_clients == 1
            assert len(broker.connections) == 2

    run_scenario(scenario())


async def _peek_without_reading(broker: Broker, count: int) -> socket.socket:
    """Request large answers and read nothing."""
    async with client("talker", broker.address) as talker:
        queue = (await talker.create_queue("big")).queue
        for _ in range(20):
            await talker.send_message(queue, b"x" * MAX_CONTENT_BYTES)
    loop = asyncio.get_running_loop()
    sink = socket.socket()
    sink.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sink.setblocking(False)
    host, _, port = broker.address.partition(":")
    await loop.sock_connect(sink, (host, int(port)))
    requests_bytes = b"".join(frame(PEEK, n, [talker.id, [queue], 20]) for n in range(count))
    with contextlib.suppress(TimeoutError, OSError):  # the broker stops reading, or closes
        await asyncio.wait_for(loop.sock_sendall(sink, requests_bytes), 5)
    return sink


def test_a_client_that_does_not_read_holds_little_memory_and_is_closed_in_the_end(database_url: str) -> None:
    async def scenario() -> None:
        # 40 kB per answer: the kernel's buffers are full long before 500 answers.
        async with serving(database_url, pipeline=16, send_timeout=2_000_000_000, write_buffer=65536) as broker:
            sink = await _peek_without_reading(broker, 500)
            try:
                while broker.metrics.broken_clients == 0:
                    assert broker.unsent <= 16
                    async with asyncio.timeout(10), client("other", broker.address) as other:
                        assert await other.lookup_client("talker") is not None  # other clients are unaffected
                    await asyncio.sleep(0.05)
                assert broker.metrics.requests["Peek", "ok"] < 500
                assert broker.unsent == 0
            finally:
                sink.close()

    run_scenario(scenario())


def test_a_client_that_overflows_the_response_queue_is_closed(database_url: str) -> None:
    async def scenario() -> None:
        async with serving(database_url, pipeline=1000, response_queue=5, write_buffer=65536) as broker:
            sink = await _peek_without_reading(broker, 500)
            try:
                while broker.metrics.broken_clients == 0:
                    assert broker.unsent <= 5
                    await asyncio.sleep(0.01)
            finally:
                sink.close()

    run_scenario(scenario())


async def shed_many(url: str, directory: Path, requests: int) -> None:
    block = 1000
    requests_bytes = b"".join(frame(LOOKUP_CLIENT, n, ["nobody"]) for n in range(block))
    with process(
        url, directory, workers=1, batch=1, request_queue=1, pipeline=10_000, database_timeout="30m"
    ) as broker:
        host, _, port = broker.address.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        peer = Raw(reader, writer)
        blocker = await asyncpg.connect(url)
        resident_bytes = []
        async with blocker.transaction():
            await blocker.execute("LOCK TABLE mlmq.client IN ACCESS EXCLUSIVE MODE")
            writer.write(frame(LOOKUP_CLIENT, 10**6, ["nobody"]) * 2)  # one is served, one waits
            await asyncio.sleep(0.5)
            for _ in range(requests // block):
                writer.write(requests_bytes)
                reasons = {(await peer.answer())[2][0] for _ in range(block)}
                assert reasons == {Refusal.OVERLOADED}
                resident_bytes.append(psutil.Process(broker.process.pid).memory_info().rss)
        writer.close()
        await blocker.close()
        assert resident_bytes[-1] < resident_bytes[len(resident_bytes) // 4] * 1.05 + 2**20


def test_shed_requests_leave_nothing_behind(database_url: str, tmp_path: Path) -> None:
    run_scenario(shed_many(database_url, tmp_path, 20_000))


@pytest.mark.soak
def test_a_million_shed_requests_leave_nothing_behind(database_url: str, tmp_path: Path) -> None:
    asyncio.run(shed_many(database_url, tmp_path, 1_000_000))
