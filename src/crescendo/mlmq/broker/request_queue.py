"""What waits for a worker, and who is turned away?

A bounded first-in first-out queue from which a worker takes everything that waits, up to a limit, in one go: that is
where batches come from. It never blocks who puts: a full queue says no, and the caller says "overloaded".
"""

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class RequestQueue(Generic[T]):
    """At most `limit` items wait. One thread, many tasks."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._items: deque[T] = deque()
        self._takers: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: T) -> bool:
        """False: full, and nothing was done."""
        if len(self._items) >= self.limit:
            return False
        self._items.append(item)
        self._wake_one()
        return True

    async def take(self, most: int) -> list[T]:
        """All that waits, at most `most`; sleeps while nothing does."""
        items = self._items
        while not items:
            taker: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._takers.append(taker)
            try:
                await taker
            except asyncio.CancelledError:
                # The wake-up that came with the cancellation belongs to somebody else now.
                if taker.done() and not taker.cancelled() and items:
                    self._wake_one()
                raise
        if len(items) <= most:
            taken = list(items)
            items.clear()
            return taken
        taken = [items.popleft() for _ in range(most)]
        self._wake_one()  # what is left is for the next one
        return taken

    def _wake_one(self) -> None:
        while self._takers:
            taker = self._takers.popleft()
            if not taker.done():
                taker.set_result(None)
                return
