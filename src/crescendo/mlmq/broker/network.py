"""How do requests arrive from one client and answers return, without its pace affecting other clients?

Reads are bounded: a client with too many unanswered requests is not read from until some are answered. Writes are
bounded: answers that a socket does not take wait in the response queue, and a client that makes it overflow, or reads
nothing for too long, is closed. Decides what is refused on arrival; serves nothing itself.
"""

import asyncio
from collections import deque
from time import monotonic_ns
from typing import Protocol, cast

from crescendo.mlmq.broker.call import Call
from crescendo.wire.mlmq.codec import Codec, Frame, FrameError, Unreadable
from crescendo.wire.mlmq.operations import REQUESTS, TYPES, Answer, Refusal, Refused, refusal_of

_REQUEST_KINDS = frozenset(REQUESTS.values())


class BrokerCallbacks(Protocol):
    """What a connection needs from its broker."""

    read_buffer: bytearray  # shared by all connections: emptied before the next one reads
    pipeline: int
    write_buffer_bytes: int
    send_timeout_s: float

    def refusal_if_draining(self) -> Refused | None: ...
    def submit(self, call: Call) -> bool: ...
    def served(self, call: Call, answer: Answer) -> None: ...
    def admit(self, connection: "ClientConnection") -> bool: ...
    def connection_closed(self, connection: "ClientConnection") -> None: ...
    def count_broken_client(self) -> None: ...
    def response_queue_has_room(self) -> bool: ...
    def change_unsent(self, change: int) -> None: ...


class ClientConnection(asyncio.BufferedProtocol):
    """One client."""

    def __init__(self, broker: BrokerCallbacks) -> None:
        self._broker = broker
        self._codec = Codec(TYPES)
        self._transport: asyncio.Transport | None = None
        self._first_byte_ns = 0
        self._unanswered = 0
        self._reading = True
        self._send_timer: asyncio.TimerHandle | None = None  # running while the socket takes nothing
        self._unsent: deque[Call] = deque()
        self.closing = False  # no answer will be sent any more
        self.parked: set[Call] = set()  # its dequeues that wait for a message

    # --- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(self._broker.write_buffer_bytes)
        if not self._broker.admit(self):
            text = "this broker has reached its limit of clients; try another one"
            self._refuse_and_close(0, Refused(Refusal.OVERLOADED, text))

    def connection_lost(self, exc: Exception | None) -> None:
        self.closing = True
        self._transport = None
        self._discard_unsent()
        self._broker.connection_closed(self)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._broker.read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        now_ns = monotonic_ns()
        if not self._codec.buffered_bytes:
            self._first_byte_ns = now_ns
        with memoryview(self._broker.read_buffer) as view:
            self._codec.receive(view[:nbytes])
        self._take_frames(now_ns)

    def eof_received(self) -> bool:
        return False  # a client that has stopped sending wants no more answers

    def pause_writing(self) -> None:
        self._send_timer = asyncio.get_running_loop().call_later(self._broker.send_timeout_s, self._abort_broken)

    def resume_writing(self) -> None:
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None
        while self._unsent and self._send_timer is None:
            self._broker.change_unsent(-1)
            self._write(self._unsent.popleft())
        self._resume_reading()

    # --- called by the broker

    def park(self, call: Call) -> None:
        """It waits for a message, so its client may send further requests."""
        self.parked.add(call)
        if not self._reading:
            self._resume_reading()

    def answer(self, call: Call, answer: Answer) -> None:
        """Send it, now or when the socket takes it. A disconnected client gets nothing."""
        if self.closing:
            return
        call.answer = answer
        if self._send_timer is None:
            self._write(call)
            if not self._reading:
                self._resume_reading()
        elif self._broker.response_queue_has_room():
            self._broker.change_unsent(1)
            self._unsent.append(call)
        else:
            self._abort_broken()

    @property
    def idle(self) -> bool:
        """Every request is answered, and the kernel has all the bytes."""
        return self._unanswered == 0 and (self._transport is None or self._transport.get_write_buffer_size() == 0)

    def close(self) -> None:
        """Flush, then close."""
        self.closing = True
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        self.closing = True
        self._discard_unsent()
        if self._transport is not None:
            self._transport.abort()

    # --- private

    def _take_frames(self, now_ns: int) -> None:
        broker, codec = self._broker, self._codec
        while not self.closing:
            if self._has_enough:
                self._pause_reading()
                return
            try:
                frame = codec.next_frame()
            except FrameError as err:
                broker.count_broken_client()
                reason = Refusal.TOO_LARGE if err.too_large else Refusal.INVALID
                self._refuse_and_close(err.request or 0, Refused(reason, str(err)))
                return
            if frame is None:
                return
            self._take(frame, now_ns)
            self._first_byte_ns = now_ns  # further frames of this chunk arrived with it

    @property
    def _has_enough(self) -> bool:
        """Whether too many requests are unanswered. As many again may wait for a message: they keep nobody busy."""
        limit = self._broker.pipeline
        return self._unanswered >= limit and (
            self._unanswered >= 2 * limit or self._unanswered - len(self.parked) >= limit
        )

    def _take(self, frame: Frame | Unreadable, now_ns: int) -> None:
        if isinstance(frame, Unreadable):
            call = Call(self, frame.request, None, self._first_byte_ns, now_ns)
            reason = Refusal.UNKNOWN_KIND if frame.unknown else Refusal.INVALID
            refused: Refused | None = Refused(reason, frame.text)
        elif type(frame.value) not in _REQUEST_KINDS:
            call = Call(self, frame.request, None, self._first_byte_ns, now_ns)
            refused = Refused(Refusal.UNKNOWN_KIND, "an answer is not a request")
        else:
            call = Call(self, frame.request, frame.value, self._first_byte_ns, now_ns, frame.wants_times)
            refused = refusal_of(frame.value) or self._broker.refusal_if_draining()
        self._unanswered += 1
        if refused is None and not self._broker.submit(call):
            refused = Refused(Refusal.OVERLOADED, "too many requests are waiting; ask again later")
        if refused is not None:
            self.answer(call, refused)

    def _write(self, call: Call) -> None:
        if self._transport is None or call.answer is None:
            return
        call.sent(monotonic_ns())
        times = call.times() if call.wants_times else None
        self._transport.write(self._codec.encode(call.number, call.answer, times=times))
        self._unanswered -= 1
        self._broker.served(call, call.answer)

    def _pause_reading(self) -> None:
        if self._reading and self._transport is not None:
            self._reading = False
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._reading or self.closing or self._has_enough:
            return
        self._reading = True
        self._take_frames(monotonic_ns())  # frames that were read before the pause
        if self._reading and self._transport is not None:
            self._transport.resume_reading()

    def _refuse_and_close(self, number: int, refused: Refused) -> None:
        if self._transport is not None:
            self._transport.write(self._codec.encode(number, refused))
            self._send_timer = self._send_timer or asyncio.get_running_loop().call_later(
                self._broker.send_timeout_s, self.abort
            )
        self.close()

    def _abort_broken(self) -> None:
        self._broker.count_broken_client()
        self.abort()

    def _discard_unsent(self) -> None:
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None
        self._broker.change_unsent(-len(self._unsent))
        self._unsent.clear()
