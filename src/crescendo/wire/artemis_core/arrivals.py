"""Which messages and responses have arrived, and which of them can be taken as one batch?

The batch path: messages with a known layout are taken together, and so are plain responses to messages. All
other frames go one by one through the scalar codec, which alone decides what a frame means. Text messages always do:
their bodies are transcoded.
"""

import numpy as np
from msgspec.structs import replace

from crescendo.wire.artemis_core.events import Deliveries, Octets
from crescendo.wire.artemis_core.frames import LENGTH_BYTES, encode_frame
from crescendo.wire.artemis_core.large_messages import LargeMessage
from crescendo.wire.artemis_core.layout import Layout, SharedFields, is_redelivered, layout_of
from crescendo.wire.artemis_core.messages import PACKET_HEADER_BYTES, CoreMessage, MessageSpans, MessageType, text_of
from crescendo.wire.artemis_core.packet_fields import code_of
from crescendo.wire.artemis_core.packets import (
    FIRST_VERSION,
    NullResponse,
    ReceiveLargeMessage,
    ReceiveMessage,
)
from crescendo.wire.frame_layout import KnownLayouts
from crescendo.wire.java_primitives import LONG
from crescendo.wire.receive_buffer import ReceiveBuffer
from crescendo.wire.responses import ResponseRuns, Responses

_RESPONSES = ResponseRuns(
    encode_frame(NullResponse(0), FIRST_VERSION), same_bytes=PACKET_HEADER_BYTES, number_at=PACKET_HEADER_BYTES
)
"""To messages; responses are the same in all versions."""
_MESSAGE_CODE = code_of(ReceiveMessage)


class Arrivals:
    """Takes runs of messages and responses from the buffer."""

    def __init__(self, buffer: ReceiveBuffer, *, batching: bool) -> None:
        self._buffer = buffer
        self._batching = batching
        self._layouts: KnownLayouts[SharedFields] = KnownLayouts()

    def take_run(self) -> Deliveries | Responses | None:
        """The next messages with a known layout, or the next responses to messages; None if neither."""
        buffer = self._buffer
        code_at = buffer.start + LENGTH_BYTES
        if not self._batching or buffer.end <= code_at:
            return None
        if buffer.view[code_at] == _MESSAGE_CODE:
            found = self._layouts.match(buffer.view, buffer.start, buffer.end)
            return None if found is None else self._deliver(*found, batched=True)
        return _RESPONSES.take(buffer)

    def take_message(self, octets: memoryview, packet: ReceiveMessage, spans: MessageSpans) -> Deliveries:
        """The message in the frame at the start of the buffer, and those that repeat it."""
        if packet.message.message_type == MessageType.TEXT:
            self._buffer.start += len(octets)
            return delivery_of(packet.message, text_of(packet.message.body), packet, len(octets), is_credited=False)
        layout = layout_of(octets, packet, spans)
        buffer, count = self._buffer, 1
        if self._batching:
            self._layouts.remember(layout)
            count = layout.matches(buffer.view, buffer.start, buffer.end)
        return self._deliver(layout, count, batched=count > 1)

    def _deliver(self, layout: Layout, count: int, *, batched: bool) -> Deliveries:
        buffer = self._buffer
        view, start = buffer.view, buffer.start
        buffer.start += count * layout.length
        shared = layout.shared
        return Deliveries(
            shared.consumer,
            layout.ids(view, start, count),
            layout.bodies(view, start, count),
            shared.message,
            shared.redelivered,
            count * layout.length,
            False,
            batched,
        )


def large_delivery(found: LargeMessage) -> Deliveries:
    """A large message whose last part has arrived. Its parts were credited as they arrived."""
    message, body = found.packet.message, bytes(found.body)
    if message.message_type == MessageType.TEXT:
        body = text_of(body)
    return delivery_of(message, body, found.packet, found.frame_bytes, is_credited=True)


def delivery_of(
    message: CoreMessage,
    body: bytes,
    packet: ReceiveMessage | ReceiveLargeMessage,
    frame_bytes: int,
    *,
    is_credited: bool,
) -> Deliveries:
    """One message by itself."""
    return Deliveries(
        packet.consumer,
        _one_row(LONG.pack(message.message_id)),
        _one_row(body),
        replace(message, body=b""),
        is_redelivered(packet.deliveries),
        frame_bytes,
        is_credited,
        False,
    )


def _one_row(octets: bytes) -> Octets:
    return np.frombuffer(octets, np.uint8).reshape(1, -1)
