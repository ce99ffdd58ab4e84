"""What a real router (Qpid Dispatch 1.19) sent, as bytes, and what Proton decodes from the same bytes.

The files in `decoded` hold the state of the same router at another time, as a foreign client saw it: the same entities
and attributes, other numbers.
"""

import json
from pathlib import Path
from typing import Any

from proton import Message

from crescendo.wire.amqp10.frames import decode_frame, frame_length
from crescendo.wire.amqp10.performatives import Transfer

FIXTURES = Path(__file__).parent / "fixtures"
RECORDED = ("allocator", "connection", "connector", "router", "router.address", "router.link", "router.node")
_MAX_FRAME_BYTES = 65_536
_PROTOCOL_HEADER_BYTES = 8


def message_of(kind: str, side: str) -> memoryview:
    """The bytes of the one message that this side ("router" or "client") sent."""
    data = memoryview((FIXTURES / f"{kind}.{side}.bin").read_bytes())
    position, message = 0, b""
    while position < len(data):
        if bytes(data[position : position + 4]) == b"AMQP":
            position += _PROTOCOL_HEADER_BYTES
            continue
        length = frame_length(data, position, _MAX_FRAME_BYTES)
        assert length is not None
        frame = decode_frame(data[position : position + length])
        if isinstance(frame.performative, Transfer):
            message += bytes(frame.payload)
        position += length
    return memoryview(message)


def decoded(kind: str) -> Message:
    """The router's answer as Proton decodes it."""
    message = Message()
    message.decode(bytes(message_of(kind, "router")))
    return message


def decoded_by_foreign_client(kind: str) -> dict[str, Any]:
    """Request, properties and body at another time, as a foreign client saved them."""
    content: dict[str, Any] = json.loads((FIXTURES / "decoded" / f"{kind}.json").read_text(encoding="utf-8"))
    return content
