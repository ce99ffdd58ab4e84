"""Which requests wait for a worker, which does a worker take, and which are shed?

A bounded queue with a lane for each kind of statement. A worker takes all requests of one lane, up to a limit: that is
where batches come from, because one lane is one statement. While a lane is being served, new requests gather in it,
unless they make a full batch: many small statements cost far more than a few large ones. `put` never blocks: a full
queue returns False, and the caller answers "overloaded".
"""

import asyncio
from collections import deque
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_NONE = object()  # no lane


class RequestQueue(Generic[T]):
    """At most `limit` items wait, at most `batch` are taken at once. One thread, many tasks."""

    def __init__(self, limit: int, batch: int) -> None:
        self.limit = limit
        self.batch = batch
        self._waiting = 0
        self._arrivals = 0
        self._lanes: dict[Any, deque[tuple[int, T]]] = {}  # with the arrival number
        self._served: dict[Any, int] = {}  # how many workers serve it
        self._takers: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        return self._waiting

    def put(self, item: T, lane: Any = None) -> bool:
        """False: full, and the item was not added."""
        if self._waiting >= self.limit:
            return False
        self._arrivals += 1
        self._waiting += 1
        waiting = self._lanes.get(lane)
        if waiting is None:
            waiting = self._lanes[lane] = deque()
        waiting.append((self._arrivals, item))
        if self._may_be_taken(lane, waiting):
            self._wake_one()
        return True

    async def take(self) -> tuple[Any, list[T]]:
        """The items of the lane that has waited longest, at most a batch; sleeps while there is none.

        The worker calls `done` with the lane afterwards, and then takes again.
        """
        while (lane := self._next()) is _NONE:
            taker: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._takers.append(taker)
            try:
                await taker
            except asyncio.CancelledError:
                # Pass on the wake-up that raced with the cancellation.
                if taker.done() and not taker.cancelled():
                    self._wake_one()
                raise
        waiting = self._lanes[lane]
        taken = [waiting.popleft()[1] for _ in range(min(self.batch, len(waiting)))]
        self._waiting -= len(taken)
        self._served[lane] = self._served.get(lane, 0) + 1
        if self._takers and self._next() is not _NONE:
            self._wake_one()  # the rest is for the next worker
        return lane, taken

    def done(self, lane: Any) -> None:
        """The items taken from this lane have been served."""
        self._served[lane] -= 1

    def _next(self) -> Any:
        oldest, found = self._arrivals + 1, _NONE
        for lane, waiting in self._lanes.items():
            if waiting and waiting[0][0] < oldest and self._may_be_taken(lane, waiting):
                oldest, found = waiting[0][0], lane
        return found

    def _may_be_taken(self, lane: Any, waiting: deque[tuple[int, T]]) -> bool:
        return not self._served.get(lane) or len(waiting) >= self.batch

    def _wake_one(self) -> None:
        while self._takers:
            taker = self._takers.popleft()
            if not taker.done():
                taker.set_result(None)
                return
