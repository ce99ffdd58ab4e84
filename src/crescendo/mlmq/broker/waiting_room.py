"""Which dequeues wait for a message, and which does a new message wake?

A dequeue that found nothing may stay here until its wait time is over; it holds no worker. It waits under one or more
keys (a queue, a client). Messages wake as many plain dequeues under their key as there are messages, longest waiting
first, and every selective one, because only the database knows whether the message matches it. Items with
the same selection count as one, so that one query can tell whether there is something for any of them. Queries no
database and sends no answer.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from itertools import islice
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)

_REMEMBERED_KEYS = 10_000


class WaitingRoom(Generic[T]):
    """At most `limit` items wait. `expired` is called with each item whose wait time is over."""

    def __init__(self, limit: int, expired: Callable[[T], None]) -> None:
        self.limit = limit
        self._expired = expired
        self._by_key: dict[int, dict[T, bool]] = {}  # in order of arrival; True: selective
        self._by_selection: dict[Hashable, dict[T, None]] = {}  # in order of arrival
        self._parked: dict[T, tuple[Mapping[int, bool], Hashable, asyncio.TimerHandle]] = {}
        self._arrivals: Counter[int] = Counter()
        self._forgotten_arrivals = 0

    def __len__(self) -> int:
        return len(self._parked)

    @property
    def full(self) -> bool:
        return len(self._parked) >= self.limit

    def arrivals(self, key: int) -> int:
        """How many messages have arrived under this key. It may grow without an arrival.

        Read it before querying the database: otherwise a message that arrives between the empty query and the parking
        would wake no dequeue.
        """
        return self._forgotten_arrivals + self._arrivals.get(key, 0)

    def park(self, item: T, keys: Mapping[int, bool], wait_s: float, selection: Hashable = None) -> None:
        """Let it wait under these keys, each with whether it is selective there. The caller has checked `full`."""
        for key, selective in keys.items():
            self._by_key.setdefault(key, {})[item] = selective
        self._by_selection.setdefault(selection, {})[item] = None
        timer = asyncio.get_running_loop().call_later(max(wait_s, 0.0), self._expire, item)
        self._parked[item] = keys, selection, timer

    def wake(self, key: int, messages: int, unclaimed: int | None = None) -> tuple[list[T], int]:
        """Messages have arrived. Returns the items to wake, and how many messages no plain dequeue here waited for.

        `unclaimed` is how many of them have not been handed out yet; by default all.
        """
        if len(self._arrivals) >= _REMEMBERED_KEYS:
            self._forgotten_arrivals += sum(self._arrivals.values()) + 1  # every count changes, so no message is missed
            self._arrivals.clear()
        self._arrivals[key] += messages
        left = messages if unclaimed is None else unclaimed
        woken = self.claim(key, left)
        plain = sum(not selective for _, selective in woken)
        return [item for item, _ in woken], left - plain

    def claim(self, key: int, messages: int) -> list[tuple[T, bool]]:
        """Remove the items that this many messages would wake, each with whether it is selective."""
        waiting = self._by_key.get(key)
        if not waiting:
            return []
        claimed: list[tuple[T, bool]] = []
        for item, selective in waiting.items():
            if selective or messages > 0:
                claimed.append((item, selective))
                messages -= not selective
        for item, _ in claimed:
            self.remove(item)
        return claimed

    @property
    def selections(self) -> list[Hashable]:
        """What the items wait for, each once."""
        return list(self._by_selection)

    def take_for(self, selection: Hashable, count: int) -> list[T]:
        """Remove those that have waited longest for this, so that they query again."""
        return self._take(self._by_selection.get(selection, {}), count)

    def take_oldest(self, count: int) -> list[T]:
        """Remove those that have waited longest."""
        return self._take(self._parked, count)

    def _take(self, waiting: Iterable[T], count: int) -> list[T]:
        chosen = list(islice(waiting, count))
        for item in chosen:
            self.remove(item)
        return chosen

    def remove(self, item: T) -> bool:
        """False: it was not waiting."""
        parked = self._parked.pop(item, None)
        if parked is None:
            return False
        keys, selection, timer = parked
        timer.cancel()
        for key in keys:
            waiting = self._by_key[key]
            del waiting[item]
            if not waiting:
                del self._by_key[key]
        equal = self._by_selection[selection]
        del equal[item]
        if not equal:
            del self._by_selection[selection]
        return True

    def _expire(self, item: T) -> None:
        if self.remove(item):
            self._expired(item)
