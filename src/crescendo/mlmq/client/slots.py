"""Which `Once` does a request get, so that repeating it is safe?

A slot of the session belongs to one request at a time and numbers the requests that use it. A dequeue without an answer
keeps its slot, because the broker keeps the messages there for a repetition: the next equal dequeue gets that `Once`
again. Only a few may stay open like this; the oldest are given up. Sends nothing.
"""

import asyncio
from collections import deque
from typing import Final

from crescendo.wire.mlmq.operations import MAX_SLOTS, Once, Query

DequeueKey = tuple[Query, int, int]  # query, count, lease: equal for two dequeues that request the same
MAX_OPEN: Final = 16


class Slots:
    """The slots of one session."""

    def __init__(self, session: int) -> None:
        self._session = session
        self._free = list(reversed(range(MAX_SLOTS)))
        self._last = [0] * MAX_SLOTS
        self._waiters: deque[asyncio.Future[int]] = deque()
        self._open_dequeues: dict[Once, DequeueKey] = {}  # oldest first
        self._to_give_up: list[Once] = []  # numbered already: whether the broker knows is unknown

    @property
    def open_dequeues(self) -> int:
        """Dequeues whose answers can still be fetched."""
        return len(self._open_dequeues)

    async def acquire(self, timeout_s: float) -> Once:
        """A free slot, with its next number; waits while all are in use. TimeoutError when it takes too long.

        The most recently used one: a client that sends one request after the other needs only one slot.
        """
        slot = self._free.pop() if self._free else await self._next_free(timeout_s)
        self._last[slot] += 1
        return Once(self._session, slot, self._last[slot])

    def release(self, once: Once) -> None:
        """The answer has arrived, or it will never be needed."""
        self._release_slot(once.slot)

    async def _next_free(self, timeout_s: float) -> int:
        """The longest waiting request gets the next free slot."""
        waiter: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(max(timeout_s, 0.0)):
                return await waiter
        except (asyncio.CancelledError, TimeoutError):
            if waiter.done() and not waiter.cancelled():
                self._release_slot(waiter.result())
            raise

    def _release_slot(self, slot: int) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(slot)
                return
        self._free.append(slot)

    def keep_open(self, key: DequeueKey, once: Once) -> None:
        """Its answer may still come. The slot stays in use until an equal dequeue fetches the answer."""
        self._open_dequeues[once] = key

    def reopen(self, key: DequeueKey) -> Once | None:
        """The `Once` of an equal unanswered dequeue, if there is one."""
        for once, open_key in self._open_dequeues.items():
            if open_key == key:
                del self._open_dequeues[once]
                return once
        return None

    def give_up_oldest(self) -> tuple[Once, ...]:
        """What to abandon, if too many dequeues are open: the older half, each with its next number.

        The caller then releases them, or returns them with `still_to_give_up`.
        """
        if len(self._open_dequeues) > MAX_OPEN:
            for once in list(self._open_dequeues)[: len(self._open_dequeues) - MAX_OPEN // 2]:
                del self._open_dequeues[once]
                self._last[once.slot] += 1
                self._to_give_up.append(Once(self._session, once.slot, self._last[once.slot]))
        given_up, self._to_give_up = tuple(self._to_give_up), []
        return given_up

    def still_to_give_up(self, onces: tuple[Once, ...]) -> None:
        """Abandoning them got no answer: try again with the same numbers."""
        self._to_give_up += onces
