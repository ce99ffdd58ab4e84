"""How does a receiver echo messages back to their sender?

The receiver replies on a queue that belongs to the sender: the same bytes, with the time of the reply behind the stamp.
From the replies the sender measures the round trip and each half of it. A reply that finds no credit is queued; none is
dropped, and none is part of the ledger.
"""

import struct
from collections import deque
from typing import NamedTuple

import numpy as np

from crescendo.load.protocols.interfaces import Octets, ReceiveChannel, SendChannel
from crescendo.model.arrays import Int64s
from crescendo.model.workload import ECHO_BYTES, STAMP_BYTES
from crescendo.record.schema import SPANS
from crescendo.record.writer import RowSink
from crescendo.wire.stamp import MAGIC, stamps_of

ROUND_TRIP, ONE_WAY = "round trip", "one way"
_ECHOED = struct.Struct(">q")
_ECHOED_AT = slice(STAMP_BYTES, ECHO_BYTES)


class EchoResponder:
    """The replying side of one receiver: a connection to the queue of each sender."""

    def __init__(self, channels: dict[int, SendChannel], tag: int) -> None:
        self.channels = channels
        self._tag = tag
        self._waiting: dict[int, deque[bytes]] = {sender: deque() for sender in channels}
        self._sent = dict.fromkeys(channels, 0)

    def answer(self, payloads: Octets, now_ns: int) -> None:
        """Echo those of these messages that belong to this run."""
        if payloads.shape[1] < ECHO_BYTES:
            return
        stamps = stamps_of(payloads)
        ours = np.flatnonzero((stamps["magic"] == MAGIC) & (stamps["tag"] == self._tag))
        for row in ours.tolist():
            sender = int(stamps["sender"][row])
            if sender in self._waiting:
                body = payloads[row].tobytes()
                self._waiting[sender].append(body[:STAMP_BYTES] + _ECHOED.pack(now_ns) + body[ECHO_BYTES:])
        self.send_waiting()

    def send_waiting(self) -> None:
        """Send as many queued replies as the channels have room for."""
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

    def maintain(self, now_ns: int) -> None:
        """Keep the connections alive and ignore their settlements."""
        for channel in self.channels.values():
            channel.keep_alive(now_ns)
            channel.pump()
            channel.flush()
        self.send_waiting()


class EchoedStamps(NamedTuple):
    """Replies that arrived in one read, or each at its own time."""

    received_ns: int | Int64s
    seq: Int64s
    intended_ns: Int64s
    sent_ns: Int64s
    echoed_ns: Int64s


class EchoReplies:
    """The side that waits for replies: one connection to the sender's own queue."""

    def __init__(self, channel: ReceiveChannel, sender: int, tag: int) -> None:
        self.channel = channel
        self._sender = sender
        self._tag = tag
        self.count = 0

    def take(self) -> list[EchoedStamps]:
        """Read once. Anything that is not a reply to this sender is skipped."""
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


def record_round_trips(log: RowSink, sender: int, answers: list[EchoedStamps], *, scheduled: bool) -> None:
    """Record round trips and one-way times: from the intended time, or from the send time if there is none."""
    for answer in answers:
        begun_ns = answer.intended_ns if scheduled else answer.sent_ns
        source, count, numbers = f"sender/{sender}", len(answer.seq), answer.seq.astype(np.float64)
        for action, end_ns in ((ROUND_TRIP, answer.received_ns), (ONE_WAY, answer.echoed_ns)):
            log.append(SPANS, count, end_ns, source, action, end_ns - begun_ns, numbers, "ok", "")
