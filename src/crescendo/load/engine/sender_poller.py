"""How does the sender engine wait for its sockets, and for how long exactly?

An epoll waits in whole milliseconds, `select` in microseconds. Where messages follow a schedule that matters, and
`select` waits for the epoll. Knows nothing about messages.
"""

import select
import time

from crescendo.load.engine.loop_clock import LoopClock

_NS_PER_MS = 1_000_000


class SenderPoller:
    """The sockets of one process that sends. Each belongs to a sender or to the echoes of one."""

    def __init__(self, epoll: select.epoll | None, *, precise: bool) -> None:
        self._epoll = select.epoll() if epoll is None else epoll
        self._precise = precise
        self.senders: dict[int, int] = {}  # file descriptor -> index of its sender
        self.replies: dict[int, int] = {}

    def watch_sender(self, fileno: int, index: int) -> None:
        self.senders[fileno] = index
        self._epoll.register(fileno, select.EPOLLIN)

    def watch_replies(self, fileno: int, index: int) -> None:
        self.replies[fileno] = index
        self._epoll.register(fileno, select.EPOLLIN)

    def watch_writable(self, fileno: int, wanted: bool) -> None:
        self._epoll.modify(fileno, select.EPOLLIN | (select.EPOLLOUT if wanted else 0))

    def wait(self, until_ns: int, clock: LoopClock, paused_ns: int = 0) -> list[tuple[int, int]]:
        """Wait for events, at most until this time."""
        before_ns = time.monotonic_ns()
        wait_ns = clock.wait_ns(before_ns, max(until_ns - before_ns, 0), paused_ns)
        if self._precise and wait_ns > 0:
            events = []
            if select.select((self._epoll,), (), (), wait_ns / 1e9)[0]:
                events = self._epoll.poll(0)
        else:
            wait_ns += -wait_ns % _NS_PER_MS
            events = self._epoll.poll(wait_ns / 1e9)
        clock.woken(before_ns, wait_ns, time.monotonic_ns(), found=bool(events), paused_ns=paused_ns)
        return events

    def close(self) -> None:
        self._epoll.close()
