"""How far is one channel, and what follows from a method or a piece of a message on it?

Sans-IO: what arrived goes in, an event comes out, and answers go to the deque that the connection writes from. A client
in full; for a server it opens, closes, and counts what is published.
"""

from collections import deque

import numpy as np

from crescendo.model.errors import PeerError
from crescendo.wire.amqp091.batch import Octets, Tags
from crescendo.wire.amqp091.confirms import Confirms
from crescendo.wire.amqp091.connection_methods import ConnectionMethod
from crescendo.wire.amqp091.content import Assembly
from crescendo.wire.amqp091.events import (
    ChannelClosed,
    ChannelOpened,
    Confirmed,
    Deliveries,
    Event,
    MethodReceived,
    Returned,
)
from crescendo.wire.amqp091.frames import Frame, encode_method_frame
from crescendo.wire.amqp091.method_table import check_speaker
from crescendo.wire.amqp091.methods import (
    BasicAck,
    BasicDeliver,
    BasicGetOk,
    BasicNack,
    BasicPublish,
    BasicReturn,
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
    ChannelFlowOk,
    ChannelOpen,
    ChannelOpenOk,
    ConfirmSelect,
    Content,
    Method,
)
from crescendo.wire.amqp091.properties import Properties


class Channel:
    """One channel, seen from one side."""

    def __init__(self, number: int, outgoing: deque[memoryview], *, server: bool) -> None:
        self.number = number
        self.opened = False
        self.closing = False  # we have said so; until the answer comes, nothing on it matters
        self.flowing = True
        self.confirms: Confirms | None = None
        self.assembly: Assembly | None = None
        self._server = server
        self._published_to_us = 0
        self._outgoing = outgoing

    # -- things to say -------------------------------------------------------------------------------------------

    def send(self, method: Method) -> None:
        self._outgoing.append(memoryview(encode_method_frame(self.number, method)))

    def close(self, code: int, reason: str) -> None:
        self.send(ChannelClose(code, reason))
        self.closing = True

    def select_confirms(self) -> None:
        self.confirms = Confirms()
        self.send(ConfirmSelect())

    def count_published(self, count: int) -> None:
        if self.confirms is not None:
            self.confirms.published += count

    @property
    def publishable(self) -> bool:
        """Whether the other side lets us publish on this channel."""
        return self.opened and self.flowing and not self.closing

    @property
    def between_messages(self) -> bool:
        """Whether a message may begin here."""
        return self.opened and not self.closing and self.assembly is None

    # -- things heard --------------------------------------------------------------------------------------------

    def take_method(self, method: Method) -> Event | None:
        if isinstance(method, ConnectionMethod):
            raise PeerError(f"{type(method).__name__} on channel {self.number}")
        if self.closing and not isinstance(method, ChannelClose | ChannelCloseOk):
            return None
        if self.assembly is not None:
            raise PeerError(f"{type(method).__name__} in the middle of a message")
        check_speaker(method, client=self._server)
        match method:
            case ChannelClose(reply_code=code, reply_text=text):
                self.send(ChannelCloseOk())
                # Both at once: the answer to ours is still to come.
                return None if self.closing else ChannelClosed(self.number, code, text)
            case ChannelCloseOk() if self.closing:
                return ChannelClosed(self.number, 200, "")
            case ChannelOpen() | ChannelOpenOk() if not self.opened:
                self.opened = True
                if self._server:
                    self.send(ChannelOpenOk())
                return ChannelOpened(self.number)
            case _ if not self.opened:
                raise PeerError(f"{type(method).__name__} on channel {self.number} before it was open")
            case ChannelCloseOk() | ChannelOpen() | ChannelOpenOk():
                raise PeerError(f"{type(method).__name__} that nobody asked for")
            case ChannelFlow(active=active):
                self.flowing = active
                self.send(ChannelFlowOk(active))
                return MethodReceived(self.number, method)
            case BasicAck() | BasicNack() if not self._server:
                return self._take_confirm(method)
            case BasicDeliver() | BasicPublish() | BasicReturn() | BasicGetOk():
                self.assembly = Assembly(method)
                return None
            case _:
                return MethodReceived(self.number, method)

    def take_piece(self, frame: Frame) -> Event | None:
        """The header of a message, or a part of its body."""
        if self.closing:
            return None
        assembly = self.assembly
        if assembly is None:
            raise PeerError("a content header or body without a method before it")
        if not assembly.take(frame) or assembly.header is None:
            return None
        self.assembly = None
        body = np.frombuffer(assembly.body, np.uint8).reshape(1, -1)
        return self.deliver(assembly.method, assembly.header.properties, body, None, batched=False)

    def deliver(
        self, method: Content, properties: Properties, bodies: Octets, tags: Tags | None, *, batched: bool
    ) -> Event:
        """The event of messages that are complete."""
        if isinstance(method, BasicReturn):
            return Returned(self.number, method, properties, bodies.tobytes())
        if isinstance(method, BasicPublish):
            first = self._published_to_us + 1
            self._published_to_us += len(bodies)
            tags = np.arange(first, self._published_to_us + 1, dtype=np.uint64)
        elif tags is None:
            tags = np.array([method.delivery_tag], np.uint64)
        return Deliveries(self.number, tags, bodies, method, properties, batched)

    def _take_confirm(self, method: BasicAck | BasicNack) -> Event:
        if self.confirms is None:
            raise PeerError("a publisher confirm that nobody asked for")
        confirm = self.confirms.up_to if method.multiple else self.confirms.one
        return Confirmed(self.number, confirm(method.delivery_tag), isinstance(method, BasicAck))
