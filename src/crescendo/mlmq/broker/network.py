"""How do requests come in from one client and answers go back, without its pace hurting anybody else?

Reads are bounded: who has too many requests unanswered is not read from until some are answered. Writes are bounded:
answers that a socket does not take wait in the response queue, and who makes it overflow, or reads nothing for too
long, is closed. Decides what is refused at the door; serves nothing itself.
"""

import asyncio
from collections import deque
from time import monotonic_ns
from typing import Protocol, cast

from crescendo.mlmq.broker.call import Call
from crescendo.wire.mlmq.codec import Codec, Frame, FrameError, Unreadable
from crescendo.wire.mlmq.operations import ANSWERS, REQUESTS, Answer, Refusal, Refused, refusal_of

TYPES = {**REQUESTS, **ANSWERS}
_REQUEST_KINDS = frozenset(REQUESTS.values())


class BrokerCallbacks(Protocol):
    """What a connection needs from its broker."""

    read_buffer: bytearray  # one for all: it is empty again before anybody else reads
    pipeline: int
    write_buffer_bytes: int
    send_timeout_s: float

    def refusal_at_the_door(self) -> Refused | None: ...
    def submit(self, call: Call) -> bool: ...
    def served(self, call: Call, answer: Answer) -> None: ...
    def admit(self, connection: "ClientConnection") -> bool: ...
    def gone(self, connection: "ClientConnection") -> None: ...
    def broken(self) -> None: ...
    def may_wait_for_socket(self) -> bool: ...
    def socket_waits(self, change: int) -> None: ...


class ClientConnection(asyncio.BufferedProtocol):
    """One client."""

    def __init__(self, house: BrokerCallbacks) -> None:
        self._house = house
        self._codec = Codec(TYPES)
        self._transport: asyncio.Transport | None = None
        self._first_byte_ns = 0
        self._unanswered = 0
        self._reading = True
        self._slow: asyncio.TimerHandle | None = None  # set while the socket takes nothing
        self._unsent: deque[Call] = deque()
        self.closing = False  # no answer will be sent any more
        self.parked: set[Call] = set()  # those of its dequeues that wait for a message

    # --- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(self._house.write_buffer_bytes)
        if not self._house.admit(self):
            text = "this broker has as many clients as it may have; try another one"
            self._say_goodbye(0, Refused(Refusal.OVERLOADED, text))

    def connection_lost(self, exc: Exception | None) -> None:
        self.closing = True
        self._transport = None
        self._forget_unsent()
        self._house.gone(self)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._house.read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        now_ns = monotonic_ns()
        if not self._codec.buffered_bytes:
            self._first_byte_ns = now_ns
        with memoryview(self._house.read_buffer) as view:
            self._codec.receive(view[:nbytes])
        self._take_frames(now_ns)

    def eof_received(self) -> bool:
        return False  # who has stopped asking wants no answers any more

    def pause_writing(self) -> None:
        self._slow = asyncio.get_running_loop().call_later(self._house.send_timeout_s, self._break_off)

    def resume_writing(self) -> None:
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None
        while self._unsent and self._slow is None:
            self._house.socket_waits(-1)
            self._write(self._unsent.popleft())
        self._read_on()

    # --- the broker's side

    def answer(self, call: Call, answer: Answer) -> None:
        """Send it, now or when the socket takes it. A client that is gone gets nothing."""
        if self.closing:
            return
        call.answer = answer
        if self._slow is None:
            self._write(call)
            if not self._reading:
                self._read_on()
        elif self._house.may_wait_for_socket():
            self._house.socket_waits(1)
            self._unsent.append(call)
        else:
            self._break_off()

    @property
    def idle(self) -> bool:
        """Everything asked was answered, and the kernel has it all."""
        return self._unanswered == 0 and (self._transport is None or self._transport.get_write_buffer_size() == 0)

    def close(self) -> None:
        """Send what was written, then close."""
        self.closing = True
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        self.closing = True
        self._forget_unsent()
        if self._transport is not None:
            self._transport.abort()

    # --- inside

    def _take_frames(self, now_ns: int) -> None:
        house, codec = self._house, self._codec
        while not self.closing:
            if self._unanswered >= house.pipeline:
                self._stop_reading()
                return
            try:
                frame = codec.next_frame()
            except FrameError as err:
                house.broken()
                reason = Refusal.TOO_LARGE if err.too_large else Refusal.INVALID
                self._say_goodbye(err.request or 0, Refused(reason, str(err)))
                return
            if frame is None:
                return
            self._take(frame, now_ns)
            self._first_byte_ns = now_ns  # what follows in this piece came with this piece

    def _take(self, frame: Frame | Unreadable, now_ns: int) -> None:
        if isinstance(frame, Unreadable):
            call = Call(self, frame.request, None, self._first_byte_ns, now_ns)
            reason = Refusal.UNKNOWN_KIND if frame.unknown else Refusal.INVALID
            refused: Refused | None = Refused(reason, frame.text)
        elif type(frame.value) not in _REQUEST_KINDS:
            call = Call(self, frame.request, None, self._first_byte_ns, now_ns)
            refused = Refused(Refusal.UNKNOWN_KIND, "an answer is no request")
        else:
            call = Call(self, frame.request, frame.value, self._first_byte_ns, now_ns, frame.wants_times)
            refused = refusal_of(frame.value) or self._house.refusal_at_the_door()
        self._unanswered += 1
        if refused is None and not self._house.submit(call):
            refused = Refused(Refusal.OVERLOADED, "too many requests wait; ask again later")
        if refused is not None:
            self.answer(call, refused)

    def _write(self, call: Call) -> None:
        if self._transport is None or call.answer is None:
            return
        call.sent(monotonic_ns())
        times = call.times() if call.wants_times else None
        self._transport.write(self._codec.encode(call.number, call.answer, times=times))
        self._unanswered -= 1
        self._house.served(call, call.answer)

    def _stop_reading(self) -> None:
        if self._reading and self._transport is not None:
            self._reading = False
            self._transport.pause_reading()

    def _read_on(self) -> None:
        if self._reading or self.closing or self._unanswered >= self._house.pipeline:
            return
        self._reading = True
        self._take_frames(monotonic_ns())  # what was read before we stopped
        if self._reading and self._transport is not None:
            self._transport.resume_reading()

    def _say_goodbye(self, number: int, refused: Refused) -> None:
        if self._transport is not None:
            self._transport.write(self._codec.encode(number, refused))
            self._slow = self._slow or asyncio.get_running_loop().call_later(self._house.send_timeout_s, self.abort)
        self.close()

    def _break_off(self) -> None:
        self._house.broken()
        self.abort()

    def _forget_unsent(self) -> None:
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None
        self._house.socket_waits(-len(self._unsent))
        self._unsent.clear()
