"""How do requests and answers share one connection to one broker?

Requests are numbered and may be under way together; answers come in any order. When the connection ends, everybody who
still waits is told. Never connects again and never repeats a request: whoever owns the link decides that.
"""

import asyncio
from time import monotonic, monotonic_ns
from typing import Any, NamedTuple, cast

from crescendo.model.errors import PeerError
from crescendo.wire.mlmq.codec import Codec, FrameError, Times, Unreadable
from crescendo.wire.mlmq.operations import ANSWERS, REQUESTS, Answer, Refused, Request

_TYPES = {**REQUESTS, **ANSWERS}
_BUFFER_BYTES = 64 * 1024


class Reply(NamedTuple):
    """An answer, and when it was asked for and came."""

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
        self._codec = Codec(_TYPES)
        self._buffer = bytearray(_BUFFER_BYTES)
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, tuple[asyncio.Future[Reply], int, float]] = {}  # asked when, given up when
        self._loop = asyncio.get_running_loop()
        self._watch: asyncio.TimerHandle | None = None
        self._watch_s = 0.0
        self._last_number = 0
        self._reason = "closed"

    async def ask(self, request: Request, timeout_s: float) -> Reply:
        """The answer to one request. PeerError when the connection ends first, TimeoutError when it takes too long."""
        if self._transport is None or not self.open:
            raise PeerError(f"{self.broker}: the connection is {self._reason}")
        loop = self._loop
        future: asyncio.Future[Reply] = loop.create_future()
        self._last_number = number = self._last_number + 1
        frame = self._codec.encode(number, request, wants_times=self._wants_times)
        asked_ns = monotonic_ns()
        until_s = asked_ns / 1e9 + timeout_s
        self._waiting[number] = future, asked_ns, until_s
        if self._watch is None or until_s < self._watch_s:
            self._watch_until(until_s)
        try:
            self._transport.write(frame)
            return await future
        finally:
            self._waiting.pop(number, None)

    def close(self, reason: str = "closed") -> None:
        """End it now; who waits is told the reason."""
        if self.open:
            self.open = False
            self._reason = reason
        if self._transport is not None:
            self._transport.abort()

    def _watch_until(self, until_s: float) -> None:
        """One timer for everybody who waits: requests are many, and hardly any is given up."""
        if self._watch is not None:
            self._watch.cancel()
        self._watch_s = until_s
        self._watch = self._loop.call_later(max(until_s - monotonic(), 0.0), self._give_up)

    def _give_up(self) -> None:
        self._watch = None
        now_s = monotonic()
        for future, _, until_s in self._waiting.values():
            if until_s <= now_s and not future.done():
                future.set_exception(TimeoutError())
        left = [until_s for future, _, until_s in self._waiting.values() if not future.done()]
        if left:
            self._watch_until(min(left))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.open = True

    def connection_lost(self, exc: Exception | None) -> None:
        if self.open:
            self._reason = f"lost: {exc}" if exc else "closed by the broker"
        self.open = False
        self._transport = None
        if self._watch is not None:
            self._watch.cancel()
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
                    self.close(f"given up: the broker sent what we cannot read: {frame.text}")
                    return
                self._settle(frame.request, frame.value, frame.times, now_ns)
        except FrameError as err:
            self.close(f"given up: {err}")

    def _settle(self, number: int, answer: Any, times: Times | None, now_ns: int) -> None:
        if number == 0 and isinstance(answer, Refused):
            self.close(f"refused: {answer.text}")  # about the connection, not about a request
            return
        entry = self._waiting.get(number)
        if entry is not None and not entry[0].done():  # otherwise: too late, nobody waits for it any more
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
