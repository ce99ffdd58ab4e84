"""How do requests and answers share one connection to one broker?

Requests are numbered and may be in flight together; answers arrive in any order. When the connection ends, every
pending request fails. Never reconnects and never repeats a request: the owner of the link decides that.
"""

import asyncio
from time import monotonic, monotonic_ns
from typing import Any, NamedTuple, cast

from crescendo.model.errors import PeerError
from crescendo.wire.mlmq.codec import Codec, FrameError, Times, Unreadable
from crescendo.wire.mlmq.operations import TYPES, Answer, Refused, Request

_BUFFER_BYTES = 64 * 1024


class Reply(NamedTuple):
    """An answer, when its request was sent and when it arrived."""

    answer: Answer
    asked_ns: int
    answered_ns: int
    times: Times | None


class BrokerLink(asyncio.BufferedProtocol):
    """One connection."""

    def __init__(self, broker: str, wants_times: bool) -> None:
        self.broker = broker
        self.open = False
        self._wants_times = wants_times
        self._codec = Codec(TYPES)
        self._buffer = bytearray(_BUFFER_BYTES)
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, tuple[asyncio.Future[Reply], int, float]] = {}  # sent at, deadline
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = 0.0
        self._last_number = 0
        self._reason = "closed"

    async def ask(self, request: Request, timeout_s: float) -> Reply:
        """Send a request, await its answer. PeerError when the connection ends first, TimeoutError at the deadline."""
        if self._transport is None or not self.open:
            raise PeerError(f"{self.broker}: the connection is {self._reason}")
        loop = self._loop
        future: asyncio.Future[Reply] = loop.create_future()
        self._last_number = number = self._last_number + 1
        frame = self._codec.encode(number, request, wants_times=self._wants_times)
        asked_ns = monotonic_ns()
        deadline_s = asked_ns / 1e9 + timeout_s
        self._waiting[number] = future, asked_ns, deadline_s
        if self._timer is None or deadline_s < self._timer_s:
            self._set_timer(deadline_s)
        try:
            self._transport.write(frame)
            return await future
        finally:
            self._waiting.pop(number, None)

    def close(self, reason: str = "closed") -> None:
        """Close it now; pending requests fail with the reason."""
        if self.open:
            self.open = False
            self._reason = reason
        if self._transport is not None:
            self._transport.abort()

    def _set_timer(self, deadline_s: float) -> None:
        """One timer for all pending requests: there are many, and hardly any times out."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer_s = deadline_s
        self._timer = self._loop.call_later(max(deadline_s - monotonic(), 0.0), self._fail_overdue)

    def _fail_overdue(self) -> None:
        self._timer = None
        now_s = monotonic()
        for future, _, deadline_s in self._waiting.values():
            if deadline_s <= now_s and not future.done():
                future.set_exception(TimeoutError())
        left = [deadline_s for future, _, deadline_s in self._waiting.values() if not future.done()]
        if left:
            self._set_timer(min(left))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.open = True

    def connection_lost(self, exc: Exception | None) -> None:
        if self.open:
            self._reason = f"lost: {exc}" if exc else "closed by the broker"
        self.open = False
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        for future, *_ in self._waiting.values():
            if not future.done():
                future.set_exception(PeerError(f"{self.broker}: the connection was {self._reason}"))

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        now_ns = monotonic_ns()
        with memoryview(self._buffer) as view:
            self._codec.receive(view[:nbytes])
        try:
            while (frame := self._codec.next_frame()) is not None:
                if isinstance(frame, Unreadable):
                    self.close(f"given up: the broker sent an unreadable frame: {frame.text}")
                    return
                self._settle(frame.request, frame.value, frame.times, now_ns)
        except FrameError as err:
            self.close(f"given up: {err}")

    def _settle(self, number: int, answer: Any, times: Times | None, now_ns: int) -> None:
        if number == 0 and isinstance(answer, Refused):
            self.close(f"refused: {answer.text}")  # about the connection, not about a request
            return
        entry = self._waiting.get(number)
        if entry is not None and not entry[0].done():  # otherwise it is too late: the request has ended
            entry[0].set_result(Reply(answer, entry[1], now_ns, times))


async def connect(broker: str, timeout_s: float, wants_times: bool) -> BrokerLink:
    """A link to a broker at host:port."""
    host, _, port = broker.rpartition(":")
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_s):
            _, link = await loop.create_connection(lambda: BrokerLink(broker, wants_times), host, int(port))
    except TimeoutError as err:
        raise PeerError(f"{broker} did not answer within {timeout_s:g} s") from err
    except OSError as err:
        raise PeerError(f"{broker} cannot be reached: {err.strerror or err}") from err
    return link
