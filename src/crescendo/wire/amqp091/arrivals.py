"""Which complete messages and confirms are in the receive buffer?

A complete message is taken without a copy, and messages with the layout of the last one are taken together: the batch
path. All other frames go one by one to their channel. Only the scalar codec decides what a frame means.
"""

import numpy as np

from crescendo.model.errors import PeerError
from crescendo.wire.amqp091.batch import ACK, Layout, Octets, layout_of, read_acks, rows_of
from crescendo.wire.amqp091.channel import Channel
from crescendo.wire.amqp091.content import WholeMessage, announces_content, checked_header, find_whole_message
from crescendo.wire.amqp091.events import Confirmed, Event
from crescendo.wire.amqp091.frames import decode_frame
from crescendo.wire.amqp091.method_table import check_direction, decode_method
from crescendo.wire.amqp091.methods import Content, Method
from crescendo.wire.frame_buffer import FrameBuffer


class Arrivals:
    """Takes runs of messages and confirms from the buffer, and remembers the layout of the last message."""

    def __init__(self, buffer: FrameBuffer, *, server: bool, batching: bool) -> None:
        self._buffer = buffer
        self._server = server
        self._batching = batching
        self._layout: Layout | None = None

    def forget(self) -> None:
        """Forget the layout. The channel of the last message may be closed."""
        self._layout = None

    def take_run(self, channels: dict[int, Channel]) -> Event | None:
        """The next messages that have the layout of the last one, or None."""
        layout, buffer = self._layout, self._buffer
        if layout is None or buffer.end - buffer.start < layout.length:
            return None
        channel = channels[layout.channel]
        if channel.closing or channel.assembly is not None:
            return None
        rows = rows_of(buffer.view[: buffer.end], buffer.start, layout.length)
        count = layout.matches(rows)
        return self._deliver_rows(channel, layout, rows[:count], batched=True) if count else None

    def take_method(self, channel: Channel, octets: memoryview) -> Event | bool:
        """The event that begins with this method frame; False: take the frame alone; True: wait for more bytes."""
        buffer = self._buffer
        if announces_content(octets):
            method_end = buffer.start + len(octets)
            whole = find_whole_message(buffer.view[: buffer.end], buffer.start, method_end, buffer.frame_max)
            return self._take_whole(channel, octets, whole) if isinstance(whole, WholeMessage) else whole
        if len(octets) == len(ACK) and channel.confirms is not None and self._batching:
            tags, multiples = read_acks(buffer.view[: buffer.end], buffer.start)
            if len(tags):
                buffer.start += len(tags) * len(ACK)
                return Confirmed(channel.number, channel.confirms.confirm_run(tags, multiples), True)
        return False

    def _take_whole(self, channel: Channel, first: memoryview, whole: WholeMessage) -> Event:
        buffer = self._buffer
        start = buffer.start
        method = self._content_method(decode_method(decode_frame(first).payload))
        header = checked_header(decode_frame(buffer.view[whole.method_end : whole.header_end]).payload)
        octets = buffer.view[start : whole.end]
        if header.body_size:
            decode_frame(octets[whole.header_end - start :])
        layout = layout_of(octets, channel.number, method, header.properties, header.body_size)
        self._layout = layout if self._batching else None
        if self._layout is not None:
            rows = rows_of(buffer.view[: buffer.end], start, len(octets))
            count = self._layout.matches(rows)
            return self._deliver_rows(channel, self._layout, rows[:count], batched=count > 1)
        body_start = len(octets) - 1 - header.body_size if header.body_size else len(octets)
        body = np.frombuffer(octets, np.uint8)[body_start : body_start + header.body_size].reshape(1, -1)
        buffer.start = whole.end
        return channel.deliver(method, header.properties, body, None, batched=False)

    def _deliver_rows(self, channel: Channel, layout: Layout, rows: Octets, *, batched: bool) -> Event:
        self._buffer.start += rows.size
        bodies = rows[:, layout.body_start : -1]
        return channel.deliver(layout.method, layout.properties, bodies, layout.tags(rows), batched=batched)

    def _content_method(self, method: Method) -> Content:
        check_direction(method, client=self._server)
        if not isinstance(method, Content):
            raise PeerError(f"{type(method).__name__} with content")
        return method
