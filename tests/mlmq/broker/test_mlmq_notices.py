"""Do brokers tell each other what they must know, and nobody what nobody wants to know?"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import asyncpg
import pytest

from crescendo.mlmq.broker import notices
from crescendo.mlmq.broker.notices import CHANNEL, Notices
from mlmq_brokers import play

HEARD = 5.0


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "_SIGN_OF_LIFE_S", 0.05)
    monkeypatch.setattr(notices, "_ALONE_AFTER_S", 0.3)


class Ear:
    """One broker's notices, and what it heard."""

    def __init__(self, url: str) -> None:
        self.heard: list[tuple[int, int]] = []
        self.missed = 0
        self.notices = Notices(
            lambda: asyncpg.connect(url), lambda key, count: self.heard.append((key, count)), self._miss
        )

    def _miss(self) -> None:
        self.missed += 1


@contextlib.asynccontextmanager
async def listening(url: str) -> AsyncIterator[Ear]:
    ear = Ear(url)
    task = asyncio.create_task(ear.notices.run())
    async with asyncio.timeout(HEARD):
        while not ear.missed:  # it says so when it begins to listen
            await asyncio.sleep(0.01)
    try:
        yield ear
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@contextlib.asynccontextmanager
async def overhearing(url: str) -> AsyncIterator[list[str]]:
    """Everything that is said, with the speakers' names."""
    connection = await asyncpg.connect(url)
    said: list[str] = []
    await connection.add_listener(CHANNEL, lambda *words: said.append(str(words[-1])))
    try:
        yield said
    finally:
        await connection.close()


async def until_heard(ear: Ear, *expected: tuple[int, int]) -> None:
    async with asyncio.timeout(HEARD):
        while ear.heard != list(expected):
            await asyncio.sleep(0.01)


def test_what_one_tells_the_others_hear_and_it_does_not(database_url: str) -> None:
    async def scenario() -> None:
        async with listening(database_url) as one, listening(database_url) as other:
            one.notices.tell(7, 3)
            await until_heard(other, (7, 3))
            await asyncio.sleep(0.5)  # long enough to be taken for gone by whoever gives no sign of life
            other.notices.tell(-4, 1)
            await until_heard(one, (-4, 1))

    play(scenario())


def test_who_is_alone_tells_nobody_until_somebody_comes(database_url: str) -> None:
    async def scenario() -> None:
        async with overhearing(database_url) as said, listening(database_url) as lonely:
            await asyncio.sleep(0.5)
            said.clear()
            lonely.notices.tell(7, 3)
            await asyncio.sleep(0.2)
            assert said
            assert not [words for words in said if ":" in words]
            async with listening(database_url) as newcomer:
                async with asyncio.timeout(HEARD):
                    while not newcomer.heard:
                        lonely.notices.tell(8, 1)
                        await asyncio.sleep(0.01)
                assert {key for key, _ in newcomer.heard} == {8}  # what was said before it came is lost

    play(scenario())
