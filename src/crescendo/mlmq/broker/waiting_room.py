"""Which dequeues wait for a message, and whom does a new one wake?

A dequeue that found nothing may stay here until its time is over; no worker is held meanwhile. It waits under one or
more keys (a queue, a client). A message wakes as many plain dequeues under its key as there are messages, the longest
waiting first, and every choosy one, because only the database knows whether the message suits it. Asks no database and
answers nobody.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)

_REMEMBERED_KEYS = 10_000


class WaitingRoom(Generic[T]):
    """At most `limit` wait. `expired` is called with everybody whose time is over."""

    def __init__(self, limit: int, expired: Callable[[T], None]) -> None:
        self.limit = limit
        self._expired = expired
        self._by_key: dict[int, dict[T, bool]] = {}  # in order of arrival; True: choosy
        self._places: dict[T, tuple[Mapping[int, bool], asyncio.TimerHandle]] = {}
        self._arrivals: Counter[int] = Counter()
        self._forgotten = 0

    def __len__(self) -> int:
        return len(self._places)

    @property
    def full(self) -> bool:
        return len(self._places) >= self.limit

    def arrived(self, key: int) -> int:
        """How many messages have come under this key. It may grow without any.

        Read it before asking the database: else a message that comes between the empty look and the parking would wake
        nobody.
        """
        return self._forgotten + self._arrivals.get(key, 0)

    def park(self, item: T, keys: Mapping[int, bool], wait_s: float) -> None:
        """Let it wait under these keys, each with whether it is choosy there. The caller has checked `full`."""
        for key, choosy in keys.items():
            self._by_key.setdefault(key, {})[item] = choosy
        timer = asyncio.get_running_loop().call_later(max(wait_s, 0.0), self._expire, item)
        self._places[item] = keys, timer

    def wake(self, key: int, messages: int, unclaimed: int | None = None) -> tuple[list[T], int]:
        """Messages have come. Who is to look, and how many of them no plain dequeue here waited for.

        `unclaimed` says how many of them nobody has got yet; else none.
        """
        if len(self._arrivals) >= _REMEMBERED_KEYS:
            self._forgotten += sum(self._arrivals.values()) + 1  # every number changes, so nobody misses a message
            self._arrivals.clear()
        self._arrivals[key] += messages
        left = messages if unclaimed is None else unclaimed
        woken = self.claim(key, left)
        plain = sum(not choosy for _, choosy in woken)
        return [item for item, _ in woken], left - plain

    def claim(self, key: int, messages: int) -> list[tuple[T, bool]]:
        """Take out who would look if so many messages came, each with whether it is choosy."""
        waiting = self._by_key.get(key)
        if not waiting:
            return []
        claimed: list[tuple[T, bool]] = []
        for item, choosy in waiting.items():
            if choosy or messages > 0:
                claimed.append((item, choosy))
                messages -= not choosy
        for item, _ in claimed:
            self.leave(item)
        return claimed

    def oldest(self, most: int) -> list[T]:
        """Take out those who have waited longest since they last looked, so that they look again."""
        chosen = [item for _, item in zip(range(most), self._places, strict=False)]
        for item in chosen:
            self.leave(item)
        return chosen

    def leave(self, item: T) -> bool:
        """False: it was not here."""
        place = self._places.pop(item, None)
        if place is None:
            return False
        keys, timer = place
        timer.cancel()
        for key in keys:
            waiting = self._by_key[key]
            del waiting[item]
            if not waiting:
                del self._by_key[key]
        return True

    def _expire(self, item: T) -> None:
        if self.leave(item):
            self._expired(item)
