"""How does a message arrive whose body is sent in parts?

Its headers announce how long the body is; parts follow until one says that it is the last. The announced length is
checked before anything is kept, and memory grows only as fast as parts arrive. Each consumer has at most one unfinished
message. Bodies that a client compressed stay compressed.
"""

from crescendo.model.errors import PeerError
from crescendo.wire.artemis_core.packets import ReceiveLargeMessage, ReceivePart


class LargeMessage:
    """A message of which some parts have arrived."""

    def __init__(self, packet: ReceiveLargeMessage, frame_bytes: int) -> None:
        self.packet = packet
        self.body = bytearray()
        self.frame_bytes = frame_bytes

    def add(self, part: ReceivePart, frame_bytes: int) -> bool:
        """Whether this was the last part."""
        self.frame_bytes += frame_bytes
        announced, found = self.packet.body_bytes, len(self.body) + len(part.content)
        if found > announced or (not part.continues and found != announced):
            raise PeerError(f"a large message of {announced} bytes has parts of {found} bytes")
        self.body += part.content
        return not part.continues


class LargeMessages:
    """The unfinished messages of one session."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._unfinished: dict[int, LargeMessage] = {}

    def begin(self, packet: ReceiveLargeMessage, frame_bytes: int) -> None:
        if not 0 <= packet.body_bytes <= self._max_bytes:
            raise PeerError(f"a large message of {packet.body_bytes} bytes where {self._max_bytes} is the limit")
        if packet.consumer in self._unfinished:
            raise PeerError("a large message before the last one was complete")
        if len(self._unfinished) >= _MAX_CONSUMERS:
            raise PeerError(f"large messages for more than {_MAX_CONSUMERS} consumers at once")
        self._unfinished[packet.consumer] = LargeMessage(packet, frame_bytes)

    def add(self, part: ReceivePart, frame_bytes: int) -> LargeMessage | None:
        """The message of which this was the last part; None if more follow."""
        message = self._unfinished.get(part.consumer)
        if message is None:
            raise PeerError("a part of a large message that did not begin")
        if not message.add(part, frame_bytes):
            return None
        return self._unfinished.pop(part.consumer)


_MAX_CONSUMERS = 16
