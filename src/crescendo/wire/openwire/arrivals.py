"""Which messages and responses have arrived, and which of them can be taken as one batch?

The batch path: dispatches with a known layout are taken together, and so are plain responses to messages.
All other frames go one by one through the scalar codec, which alone decides what a frame means.
"""

from crescendo.wire.frame_layout import KnownLayouts
from crescendo.wire.openwire.control_commands import Response
from crescendo.wire.openwire.events import Deliveries
from crescendo.wire.openwire.frames import LENGTH_BYTES, decode_frame, encode_frame
from crescendo.wire.openwire.layout import Layout, SharedFields, is_advisory, layout_of
from crescendo.wire.openwire.messages import MessageDispatch
from crescendo.wire.openwire.structures import FieldSpan, Structure
from crescendo.wire.receive_buffer import ReceiveBuffer
from crescendo.wire.responses import ResponseRuns, Responses

_RESPONSES = ResponseRuns(encode_frame(Response(), 1), same_bytes=LENGTH_BYTES + 1, number_at=10)
"""Responses are the same in all versions."""
DISPATCH_TYPE = encode_frame(MessageDispatch(), 1)[LENGTH_BYTES]


class Arrivals:
    """Takes runs of messages and responses from the buffer."""

    def __init__(self, buffer: ReceiveBuffer, *, batching: bool) -> None:
        self._buffer = buffer
        self._batching = batching
        self._layouts: KnownLayouts[SharedFields] = KnownLayouts()

    @property
    def begins_with_dispatch(self) -> bool:
        type_at = self._buffer.start + LENGTH_BYTES
        return self._buffer.end > type_at and self._buffer.view[type_at] == DISPATCH_TYPE

    def take_run(self) -> Deliveries | Responses | None:
        """The next messages with a known layout, or the next responses to messages; None if neither."""
        buffer = self._buffer
        if not self._batching:
            return None
        if self.begins_with_dispatch:
            found = self._layouts.match(buffer.view, buffer.start, buffer.end)
            return None if found is None else self._deliver(*found, batched=True)
        return _RESPONSES.take(buffer)

    def take_dispatch(self, octets: memoryview, version: int) -> Deliveries | None:
        """The message in this frame and those that repeat it; None if the frame is a dispatch without a message."""
        spans: list[FieldSpan] = []
        dispatch = decode_frame(octets, version, spans)
        if not isinstance(dispatch, MessageDispatch) or dispatch.message is None:
            self._buffer.start += len(octets)
            return None
        layout = layout_of(octets, dispatch, spans)
        buffer, count = self._buffer, 1
        if self._batching:
            self._layouts.remember(layout)
            count = layout.matches(buffer.view, buffer.start, buffer.end)
        return self._deliver(layout, count, batched=count > 1)

    def take_command(self, octets: memoryview, version: int) -> Structure:
        self._buffer.start += len(octets)
        return decode_frame(octets, version)

    def _deliver(self, layout: Layout, count: int, *, batched: bool) -> Deliveries:
        buffer = self._buffer
        view, start = buffer.view, buffer.start
        buffer.start += count * layout.length
        shared = layout.shared
        return Deliveries(
            shared.consumer,
            shared.destination,
            layout.ids(view, start, count),
            layout.bodies(view, start, count),
            shared.message,
            shared.redelivered,
            is_advisory(shared.message),
            batched,
        )
