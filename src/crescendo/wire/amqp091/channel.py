"""What is the state of one channel, and which events follow from the frames on it?

Sans-IO: methods and content frames go in, events come out, and answers go to the deque that the connection writes from.
Implements the client in full; for a server it only opens, closes, and counts published messages.
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
from crescendo.wire.amqp091.method_table import check_direction
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
    """One channel, as one peer sees it."""

    def __init__(self, number: int, outgoing: deque[memoryview], *, server: bool) -> None:
        self.number = number
        self.opened = False
        self.closing = False  # we sent close; until the answer arrives, all other frames are ignored
        self.flowing = True
        self.confirms: Confirms | None = None
        self.assembly: Assembly | None = None
        self._server = server
        self._publishes_received = 0
        self._outgoing = outgoing

    # -- sending -------------------------------------------------------------------------------------------------

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
        """Whether the peer lets us publish on this channel."""
        return self.opened and self.flowing and not self.closing

    @property
    def between_messages(self) -> bool:
        """Whether the next frame may begin a message."""
        return self.opened and not self.closing and self.assembly is None

    # -- receiving -----------------------------------------------------------------------------------------------

    def take_method(self, method: Method) -> Event | None:
        if isinstance(method, ConnectionMethod):
            raise PeerError(f"{type(method).__name__} on channel {self.number}")
        if self.closing and not isinstance(method, ChannelClose | ChannelCloseOk):
            return None
        if self.assembly is not None:
            raise PeerError(f"{type(method).__name__} in the middle of a message")
        check_direction(method, client=self._server)
        match method:
            case ChannelClose(reply_code=code, reply_text=text):
                self.send(ChannelCloseOk())
                # Both peers closed at once: the answer to our close is pending.
                return None if self.closing else ChannelClosed(self.number, code, text)
            case ChannelCloseOk() if self.closing:
                return ChannelClosed(self.number, 200, "")
            case ChannelOpen() | ChannelOpenOk() if not self.opened:
                self.opened = True
                if self._server:
                    self.send(ChannelOpenOk())
                return ChannelOpened(self.number)
            case _ if not self.opened:
                raise PeerError(f"{type(method).__name__} on channel {self.number} before it is open")
            case ChannelCloseOk() | ChannelOpen() | ChannelOpenOk():
                raise PeerError(f"an unrequested {type(method).__name__}")
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

    def take_content_frame(self, frame: Frame) -> Event | None:
        """Take the header of a message, or a fragment of its body."""
        if self.closing:
            return None
        assembly = self.assembly
        if assembly is None:
            raise PeerError("a content header or body without a method")
        if not assembly.take(frame) or assembly.header is None:
            return None
        self.assembly = None
        body = np.frombuffer(assembly.body, np.uint8).reshape(1, -1)
        return self.deliver(assembly.method, assembly.header.properties, body, None, batched=False)

    def deliver(
        self, method: Content, properties: Properties, bodies: Octets, tags: Tags | None, *, batched: bool
    ) -> Event:
        """The event for complete messages."""
        if isinstance(method, BasicReturn):
            return Returned(self.number, method, properties, bodies.tobytes())
        if isinstance(method, BasicPublish):
            first = self._publishes_received + 1
            self._publishes_received += len(bodies)
            tags = np.arange(first, self._publishes_received + 1, dtype=np.uint64)
        elif tags is None:
            tags = np.array([method.delivery_tag], np.uint64)
        return Deliveries(self.number, tags, bodies, method, properties, batched)

    def _take_confirm(self, method: BasicAck | BasicNack) -> Event:
        if self.confirms is None:
            raise PeerError("an unrequested publisher confirm")
        confirm = self.confirms.confirm_up_to if method.multiple else self.confirms.confirm_one
        return Confirmed(self.number, confirm(method.delivery_tag), isinstance(method, BasicAck))
