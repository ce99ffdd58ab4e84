"""How does a connection get from the first byte to the open performative?

Both sides first exchange a protocol header for SASL, sign in, then exchange one for AMQP; a server without credentials
lets clients skip the first half. Who is let in is decided in `handshake.py`; here is the order of things. Answers go to
the deque that the connection writes from, so that even a refusal is written.
"""

from collections import deque
from collections.abc import Sequence

from crescendo.model.errors import PeerError
from crescendo.wire.amqp10.frames import PROTOCOL_AMQP, PROTOCOL_SASL, SASL_FRAME, Frame, encode_frame
from crescendo.wire.amqp10.handshake import ClientSasl, RefusedError, ServerSasl, check_header
from crescendo.wire.amqp10.performatives import Composite


class Opening:
    """One side's way in."""

    def __init__(
        self, sasl: ClientSasl | ServerSasl, first_words: Sequence[Composite], outgoing: deque[memoryview]
    ) -> None:
        """`first_words` is what we say as soon as we may."""
        self.expects_header = True  # else frames
        self.signed_in = False
        self._sasl = sasl
        self._first_words = first_words
        self._outgoing = outgoing
        if isinstance(sasl, ClientSasl):
            self._queue(sasl.greeting())

    def take_header(self, header: bytes) -> None:
        if isinstance(self._sasl, ServerSasl) and not self._sasl.done:
            self._greet(self._sasl, header)
            return
        check_header(header, PROTOCOL_AMQP if self._sasl.done else PROTOCOL_SASL)
        self.expects_header = False
        if isinstance(self._sasl, ServerSasl):
            self._enter()

    def take_frame(self, frame: Frame) -> None:
        if frame.kind != SASL_FRAME:
            raise PeerError("an AMQP frame before the sign-in was over")
        self._queue(self._sasl.answer(frame.performative))
        server = isinstance(self._sasl, ServerSasl)
        if not self._sasl.done:
            if server:
                raise RefusedError("wrong user or password")
            return
        self.expects_header = True
        if not server:
            self._enter()

    def _greet(self, sasl: ServerSasl, header: bytes) -> None:
        if header == PROTOCOL_AMQP and sasl.optional:
            sasl.done = True
            self._enter()
        else:
            self._queue(sasl.greeting())
            check_header(header, PROTOCOL_SASL)
        self.expects_header = False

    def _enter(self) -> None:
        self.signed_in = True
        self._queue(PROTOCOL_AMQP)
        for performative in self._first_words:
            self._queue(encode_frame(performative))

    def _queue(self, octets: bytes) -> None:
        if octets:
            self._outgoing.append(memoryview(octets))
