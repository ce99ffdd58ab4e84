"""Where do notes wait until somebody takes them?

In a queue with a limit, between the network thread and the one that reads. Of the statistics of one process only the
latest waits: an older report says nothing that the newer one does not, so hundreds of peers cannot fill the queue of a
reader that was held up. What finds no room is refused, for the caller to count. Does not look into notes.
"""

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

MAX_WAITING = 10_000

T = TypeVar("T")


class NoteQueue(Generic[T]):
    """Notes in the order of their arrival."""

    def __init__(self, limit: int = MAX_WAITING) -> None:
        self._limit = limit
        self._waiting: OrderedDict[object, T] = OrderedDict()
        self._number = 0
        self._woken = False
        self._changed = threading.Condition()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, note: T, replaces: object = None) -> bool:
        """Add a note; one with the same `replaces` that still waits gives its place to it. False: there is no room."""
        with self._changed:
            self._number += 1
            key = self._number if replaces is None else replaces
            if key not in self._waiting and len(self._waiting) >= self._limit:
                return False
            self._waiting[key] = note
            self._changed.notify()
            return True

    def wake(self) -> None:
        """End every wait: the connection is lost."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def get(self, timeout_s: float = 0.0) -> T | None:
        """The next note; None after the timeout, or when nothing waits and nothing more will come."""
        with self._changed:
            if timeout_s > 0 and not self._waiting:
                self._changed.wait_for(lambda: bool(self._waiting) or self._woken, timeout_s)
            return self._waiting.popitem(last=False)[1] if self._waiting else None
