"""Do brokers notify each other of messages, and send nothing when there is no other broker?"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import asyncpg
import pytest

from crescendo.mlmq.broker import notices
from crescendo.mlmq.broker.notices import CHANNEL, Notices
from mlmq_brokers import run_scenario

TIMEOUT_S = 5.0


@pytest.fixture(autouse=True)
def fast_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "_HEARTBEAT_S", 0.05)
    monkeypatch.setattr(notices, "_ALONE_AFTER_S", 0.3)


class NoticeListener:
    """The notices of one broker, and what it received."""

    def __init__(self, url: str) -> None:
        self.received: list[tuple[int, int]] = []
        self.gaps = 0
        self.notices = Notices(
            lambda: asyncpg.connect(url), lambda key, count: self.received.append((key, count)), self._count_gap
        )

    def _count_gap(self) -> None:
        self.gaps += 1


@contextlib.asynccontextmanager
async def listening(url: str) -> AsyncIterator[NoticeListener]:
    listener = NoticeListener(url)
    task = asyncio.create_task(listener.notices.run())
    async with asyncio.timeout(TIMEOUT_S):
        while not listener.gaps:  # reported when it starts to listen
            await asyncio.sleep(0.01)
    try:
        yield listener
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@contextlib.asynccontextmanager
async def all_notices(url: str) -> AsyncIterator[list[str]]:
    """The payload of every notice, with the name of its sender."""
    connection = await asyncpg.connect(url)
    payloads: list[str] = []
    await connection.add_listener(CHANNEL, lambda *arguments: payloads.append(str(arguments[-1])))
    try:
        yield payloads
    finally:
        await connection.close()


async def until_received(listener: NoticeListener, *expected: tuple[int, int]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while listener.received != list(expected):
            await asyncio.sleep(0.01)


def test_the_other_broker_receives_a_notice_and_its_sender_does_not(database_url: str) -> None:
    async def scenario() -> None:
        async with listening(database_url) as one, listening(database_url) as other:
            one.notices.notify(7, 3)
            await until_received(other, (7, 3))
            await asyncio.sleep(0.5)  # long enough to be considered gone without heartbeats
            other.notices.notify(-4, 1)
            await until_received(one, (-4, 1))

    run_scenario(scenario())


def test_a_lone_broker_sends_no_notices_until_another_one_starts(database_url: str) -> None:
    async def scenario() -> None:
        async with all_notices(database_url) as payloads, listening(database_url) as lonely:
            await asyncio.sleep(0.5)
            payloads.clear()
            lonely.notices.notify(7, 3)
            await asyncio.sleep(0.2)
            assert not [payload for payload in payloads if ":" in payload]
            async with listening(database_url) as newcomer:
                async with asyncio.timeout(TIMEOUT_S):
                    while not newcomer.received:
                        lonely.notices.notify(8, 1)
                        await asyncio.sleep(0.01)
                assert {key for key, _ in newcomer.received} == {8}  # earlier notices are lost

    run_scenario(scenario())


def test_notices_are_rarer_the_more_brokers_read_them(database_url: str) -> None:
    async def scenario() -> None:
        async with listening(database_url) as one, listening(database_url):
            pause_s = one.notices.pause_s()
            async with listening(database_url), asyncio.timeout(TIMEOUT_S):
                while one.notices.pause_s() < 2 * pause_s:
                    await asyncio.sleep(0.01)
            async with asyncio.timeout(TIMEOUT_S):
                while one.notices.pause_s() > pause_s:  # one has gone
                    await asyncio.sleep(0.01)

    run_scenario(scenario())
