"""How does a message come back to who sent it?

The receiver answers on a queue of the sender's own: the same bytes, with the time of the answer behind the stamp. The
sender takes the answers and knows how long the whole way took, and how long each half of it. An answer for which there
is no room waits its turn; none is dropped, and none is part of the ledger.
"""

import struct
from collections import deque
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from crescendo.load.protocols.interfaces import Octets, ReceiveChannel, SendChannel
from crescendo.model.workload import ECHO_BYTES, STAMP_BYTES
from crescendo.wire.stamp import MAGIC, stamps_of

_ECHOED = struct.Struct(">q")
_ECHOED_AT = slice(STAMP_BYTES, ECHO_BYTES)
Int64s = npt.NDArray[np.int64]


class EchoResponder:
    """The answering side of one receiver: a connection to the queue of each sender."""

    def __init__(self, channels: dict[int, SendChannel], tag: int) -> None:
        self.channels = channels
        self._tag = tag
        self._waiting: dict[int, deque[bytes]] = {sender: deque() for sender in channels}
        self._sent = dict.fromkeys(channels, 0)

    def answer(self, payloads: Octets, now_ns: int) -> None:
        """Send back what is ours of these."""
        if payloads.shape[1] < ECHO_BYTES:
            return
        stamps = stamps_of(payloads)
        ours = np.flatnonzero((stamps["magic"] == MAGIC) & (stamps["tag"] == self._tag))
        for row in ours.tolist():
            sender = int(stamps["sender"][row])
            if sender in self._waiting:
                body = payloads[row].tobytes()
                self._waiting[sender].append(body[:STAMP_BYTES] + _ECHOED.pack(now_ns) + body[ECHO_BYTES:])
        self.go_on()

    def go_on(self) -> None:
        """Send what waits and may leave."""
        for sender, waiting in self._waiting.items():
            channel = self.channels[sender]
            while waiting and (room := channel.room()) > 0:
                size = len(waiting[0])
                channel.resize(size)
                count = 0
                while waiting and count < min(room, channel.capacity) and len(waiting[0]) == size:
                    channel.bodies[count] = np.frombuffer(waiting.popleft(), np.uint8)
                    count += 1
                channel.send(self._sent[sender], count)
                self._sent[sender] += count

    def tend(self, now_ns: int) -> None:
        """Keep the connections alive; what was settled on them interests nobody."""
        for channel in self.channels.values():
            channel.keep_alive(now_ns)
            channel.pump()
            channel.flush()
        self.go_on()


class EchoedStamps(NamedTuple):
    """Answers that came with one read."""

    received_ns: int
    seq: Int64s
    intended_ns: Int64s
    sent_ns: Int64s
    echoed_ns: Int64s


class EchoReplies:
    """The side that waits for answers: one connection from the sender's own queue."""

    def __init__(self, channel: ReceiveChannel, sender: int, tag: int) -> None:
        self.channel = channel
        self._sender = sender
        self._tag = tag
        self.count = 0

    def take(self) -> list[EchoedStamps]:
        """Read once. Whatever is no answer to this sender is left out."""
        found = []
        for arrived in self.channel.pump():
            if arrived.payloads.shape[1] < ECHO_BYTES:
                continue
            stamps = stamps_of(arrived.payloads)
            ours = (stamps["magic"] == MAGIC) & (stamps["tag"] == self._tag) & (stamps["sender"] == self._sender)
            rows = arrived.payloads[ours]
            if not len(rows):
                continue
            stamps = stamps[ours]
            echoed_ns = np.ascontiguousarray(rows[:, _ECHOED_AT]).view(">i8")[:, 0].astype(np.int64)
            seq, intended_ns, sent_ns = (stamps[name].astype(np.int64) for name in ("seq", "intended_ns", "sent_ns"))
            found.append(EchoedStamps(self.channel.read_ns, seq, intended_ns, sent_ns, echoed_ns))
            self.count += len(rows)
        self.channel.settle()
        return found
