"""What is in the content of a message that a workload sends?

First the stamp that every payload of Crescendo begins with, so that the ledger knows the message; then two counters of
the workload's own: which stream of messages it belongs to (a token, a pair), and its number there. Packs and unpacks;
what a number should have been is judged elsewhere.
"""

import struct
from typing import NamedTuple

from crescendo.model.mlmq_clients import COUNTER_BYTES
from crescendo.model.payload import STAMP_BYTES
from crescendo.wire.stamp import MAGIC, ONE_STAMP

_COUNTERS = struct.Struct(">QQ")
_FILLING = b"."


class MessageContent(NamedTuple):
    """One message as its workload sees it."""

    sender: int  # the connection's number in the run
    seq: int
    sent_ns: int
    stream: int
    number: int


def pack(parcel: MessageContent, tag: int, size: int) -> bytes:
    # A closed loop has no schedule: a message is meant to leave when it leaves.
    stamp = ONE_STAMP.pack(MAGIC, parcel.sender, tag, parcel.seq, parcel.sent_ns, parcel.sent_ns)
    return (stamp + _COUNTERS.pack(parcel.stream, parcel.number)).ljust(size, _FILLING)


def unpack(content: bytes, tag: int, size: int) -> MessageContent | None:
    """None for what no client of this run has sent, or what is not as it was sent."""
    if len(content) < STAMP_BYTES + COUNTER_BYTES:
        return None
    magic, sender, stamped, seq, _, sent_ns = ONE_STAMP.unpack_from(content)
    parcel = MessageContent(sender, seq, sent_ns, *_COUNTERS.unpack_from(content, STAMP_BYTES))
    return parcel if (magic, stamped) == (MAGIC, tag) and content == pack(parcel, tag, size) else None
