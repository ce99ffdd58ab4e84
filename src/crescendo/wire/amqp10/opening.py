"""How does a connection get from the first byte to the open performative?

Both peers exchange SASL protocol headers, sign in, then exchange AMQP protocol headers; a server without credentials
lets clients skip the SASL half. This module owns the order of steps; `handshake.py` decides about credentials. Answers
go to the deque that the connection writes from, so that even a refusal is written.
"""

from collections import deque
from collections.abc import Sequence

from crescendo.model.errors import PeerError
from crescendo.wire.amqp10.frames import PROTOCOL_AMQP, PROTOCOL_SASL, SASL_FRAME, Frame, encode_frame
from crescendo.wire.amqp10.handshake import ClientSasl, HandshakeRefusedError, ServerSasl, check_header
from crescendo.wire.amqp10.performatives import Composite


class Opening:
    """The opening sequence of one peer."""

    def __init__(
        self, sasl: ClientSasl | ServerSasl, first_performatives: Sequence[Composite], outgoing: deque[memoryview]
    ) -> None:
        """`first_performatives` are sent as soon as the protocol allows."""
        self.expects_header = True  # else frames
        self.signed_in = False
        self._sasl = sasl
        self._first_performatives = first_performatives
        self._outgoing = outgoing
        if isinstance(sasl, ClientSasl):
            self._queue(sasl.first_bytes())

    def take_header(self, header: bytes) -> None:
        if isinstance(self._sasl, ServerSasl) and not self._sasl.done:
            self._answer_client_header(self._sasl, header)
            return
        check_header(header, PROTOCOL_AMQP if self._sasl.done else PROTOCOL_SASL)
        self.expects_header = False
        if isinstance(self._sasl, ServerSasl):
            self._start_amqp()

    def take_frame(self, frame: Frame) -> None:
        if frame.kind != SASL_FRAME:
            raise PeerError("an AMQP frame before sign-in")
        self._queue(self._sasl.answer(frame.performative))
        server = isinstance(self._sasl, ServerSasl)
        if not self._sasl.done:
            if server:
                raise HandshakeRefusedError("wrong user or password")
            return
        self.expects_header = True
        if not server:
            self._start_amqp()

    def _answer_client_header(self, sasl: ServerSasl, header: bytes) -> None:
        if header == PROTOCOL_AMQP and sasl.optional:
            sasl.done = True
            self._start_amqp()
        else:
            self._queue(sasl.first_bytes())
            check_header(header, PROTOCOL_SASL)
        self.expects_header = False

    def _start_amqp(self) -> None:
        self.signed_in = True
        self._queue(PROTOCOL_AMQP)
        for performative in self._first_performatives:
            self._queue(encode_frame(performative))

    def _queue(self, octets: bytes) -> None:
        if octets:
            self._outgoing.append(memoryview(octets))
