"""Which `Once` does a request get, so that repeating it is safe?

A slot of the session belongs to one request at a time and numbers the requests that use it. A dequeue without an answer
keeps its slot, because the broker keeps the messages there for a repetition: the next equal dequeue gets that `Once`
again. Sends nothing.
"""

import asyncio
from collections import deque

from crescendo.wire.mlmq.operations import MAX_SLOTS, Once, Query

DequeueKey = tuple[Query, int, int]  # query, count, lease: equal for two dequeues that request the same


class Slots:
    """The slots of one session."""

    def __init__(self, session: int) -> None:
        self._session = session
        self._free = list(reversed(range(MAX_SLOTS)))
        self._last = [0] * MAX_SLOTS
        self._waiters: deque[asyncio.Future[int]] = deque()
        self._open_dequeues: dict[DequeueKey, deque[Once]] = {}

    @property
    def open_dequeues(self) -> int:
        """Dequeues whose answers can still be fetched."""
        return sum(map(len, self._open_dequeues.values()))

    async def acquire(self) -> Once:
        """A free slot, with its next number; waits while all are in use.

        The most recently used one: a client that sends one request after the other needs only one receipt.
        """
        slot = self._free.pop() if self._free else await self._next_free()
        self._last[slot] += 1
        return Once(self._session, slot, self._last[slot])

    def release(self, once: Once) -> None:
        """The answer has arrived, or it will never be needed."""
        self._release_slot(once.slot)

    async def _next_free(self) -> int:
        """The longest waiting request gets the next free slot."""
        waiter: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
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
        """No answer arrived. The slot stays in use until an equal dequeue fetches the answer."""
        self._open_dequeues.setdefault(key, deque()).append(once)

    def reopen(self, key: DequeueKey) -> Once | None:
        """The `Once` of an equal unanswered dequeue, if there is one."""
        if not self._open_dequeues:
            return None
        waiting = self._open_dequeues.get(key)
        if not waiting:
            return None
        once = waiting.popleft()
        if not waiting:
            del self._open_dequeues[key]
        return once
