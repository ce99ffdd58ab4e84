"""Which `Once` does a request get, so that repeating it is safe?

A slot of the session is lent to one request at a time and numbers the requests that use it. A dequeue whose answer
never came keeps its slot, because the broker keeps the messages there for whoever repeats the request: the next equal
dequeue gets that `Once` again. Sends nothing.
"""

import asyncio
from collections import deque

from crescendo.wire.mlmq.operations import MAX_SLOTS, Once, Query

Wish = tuple[Query, int, int]  # query, count, lease: what makes two dequeues ask for the same


class Slots:
    """The slots of one session."""

    def __init__(self, session: int) -> None:
        self._session = session
        self._free = list(reversed(range(MAX_SLOTS)))
        self._last = [0] * MAX_SLOTS
        self._wanted: deque[asyncio.Future[int]] = deque()
        self._open_dequeues: dict[Wish, deque[Once]] = {}

    @property
    def open_dequeues(self) -> int:
        """Dequeues whose answers may still be fetched."""
        return sum(map(len, self._open_dequeues.values()))

    async def lend(self) -> Once:
        """A slot nobody uses, with its next number; waits while all are in use.

        The one that was used last: who asks one thing after the other needs one receipt only.
        """
        slot = self._free.pop() if self._free else await self._next_free()
        self._last[slot] += 1
        return Once(self._session, slot, self._last[slot])

    def give_back(self, once: Once) -> None:
        """The answer came, or nobody will ever want it."""
        self._free_up(once.slot)

    async def _next_free(self) -> int:
        """Who waits longest gets what becomes free."""
        handed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._wanted.append(handed)
        try:
            return await handed
        except asyncio.CancelledError:
            if handed.done() and not handed.cancelled():
                self._free_up(handed.result())
            raise

    def _free_up(self, slot: int) -> None:
        while self._wanted:
            handed = self._wanted.popleft()
            if not handed.done():
                handed.set_result(slot)
                return
        self._free.append(slot)

    def keep_open(self, wish: Wish, once: Once) -> None:
        """No answer came. The slot stays taken until an equal dequeue fetches it."""
        self._open_dequeues.setdefault(wish, deque()).append(once)

    def reopen(self, wish: Wish) -> Once | None:
        """The `Once` of an equal dequeue that was never answered, if there is one."""
        if not self._open_dequeues:
            return None
        waiting = self._open_dequeues.get(wish)
        if not waiting:
            return None
        once = waiting.popleft()
        if not waiting:
            del self._open_dequeues[wish]
        return once
