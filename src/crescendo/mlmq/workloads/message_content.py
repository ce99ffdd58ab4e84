"""What does the content of a workload message consist of?

First the stamp that every Crescendo payload begins with, so that the ledger recognises the message; then two counters
of the workload: the stream it belongs to (a token, a pair), and its number there. Packs and unpacks; the numbers are
judged elsewhere.
"""

import struct
from typing import NamedTuple

from crescendo.model.mlmq_clients import COUNTER_BYTES
from crescendo.model.payload import STAMP_BYTES
from crescendo.wire.stamp import MAGIC, ONE_STAMP

_COUNTERS = struct.Struct(">QQ")
_PADDING = b"."


class MessageContent(NamedTuple):
    """One message as its workload sees it."""

    sender: int  # the connection's number in the run
    seq: int
    sent_ns: int
    stream: int
    number: int


def pack(content: MessageContent, tag: int, size: int) -> bytes:
    # A closed loop has no schedule: the intended time is the send time.
    stamp = ONE_STAMP.pack(MAGIC, content.sender, tag, content.seq, content.sent_ns, content.sent_ns)
    return (stamp + _COUNTERS.pack(content.stream, content.number)).ljust(size, _PADDING)


def unpack(payload: bytes, tag: int, size: int) -> MessageContent | None:
    """None for a payload that no client of this run has sent, or that was altered."""
    if len(payload) < STAMP_BYTES + COUNTER_BYTES:
        return None
    magic, sender, stamped_tag, seq, _, sent_ns = ONE_STAMP.unpack_from(payload)
    content = MessageContent(sender, seq, sent_ns, *_COUNTERS.unpack_from(payload, STAMP_BYTES))
    return content if (magic, stamped_tag) == (MAGIC, tag) and payload == pack(content, tag, size) else None
