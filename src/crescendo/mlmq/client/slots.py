"""Which `Once` does a request get, so that repeating it is safe?

A slot of the session is lent to one request at a time and numbers the requests that use it. A dequeue whose answer
never came keeps its slot, because the broker keeps the messages there for whoever repeats the request: the next equal
dequeue gets that `Once` again. Sends nothing.
"""

import asyncio
from collections import deque

from crescendo.wire.mlmq_operations import MAX_SLOTS, Dequeue, Once, Query

Wish = tuple[Query, int, int]  # query, count, lease: what makes two dequeues ask for the same


class Slots:
    """The slots of one session."""

    def __init__(self, session: int) -> None:
        self._session = session
        self._free = list(reversed(range(MAX_SLOTS)))
        self._last = [0] * MAX_SLOTS
        self._left = asyncio.Semaphore(MAX_SLOTS)
        self._open_dequeues: dict[Wish, deque[Once]] = {}

    @property
    def open_dequeues(self) -> int:
        """Dequeues whose answers may still be fetched."""
        return sum(map(len, self._open_dequeues.values()))

    async def lend(self) -> Once:
        """A slot nobody uses, with its next number; waits while all are in use.

        The one that was used last: who asks one thing after the other needs one receipt only.
        """
        await self._left.acquire()
        slot = self._free.pop()
        self._last[slot] += 1
        return Once(self._session, slot, self._last[slot])

    def give_back(self, once: Once) -> None:
        """The answer came, or nobody will ever want it."""
        self._free.append(once.slot)
        self._left.release()

    def keep_open(self, request: Dequeue, once: Once) -> None:
        """No answer came. The slot stays taken until an equal dequeue fetches it."""
        self._open_dequeues.setdefault(_wish(request), deque()).append(once)

    def reopen(self, request: Dequeue) -> Once | None:
        """The `Once` of an equal dequeue that was never answered, if there is one."""
        wish = _wish(request)
        waiting = self._open_dequeues.get(wish)
        if not waiting:
            return None
        once = waiting.popleft()
        if not waiting:
            del self._open_dequeues[wish]
        return once


def _wish(request: Dequeue) -> Wish:
    return request.query, request.count, request.lease_ms
