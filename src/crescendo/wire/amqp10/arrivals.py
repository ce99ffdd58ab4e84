"""Which messages, settlements and flows are in the receive buffer, and how many can be taken at once?

They make up nearly all the traffic of a busy connection. The batch path recognises by its bytes a frame that resembles
an earlier one, and takes a run of such frames together. All other frames are taken one by one. Only the scalar codec
decides what a frame means.
"""

import numpy as np

from crescendo.model.errors import PeerError
from crescendo.wire.amqp10.batch import Layout, Octets, layout_of, rows_of
from crescendo.wire.amqp10.disposition_runs import DispositionRun, disposition_run
from crescendo.wire.amqp10.events import Deliveries, Event, Settled
from crescendo.wire.amqp10.frame_pattern import FlowPattern, PatternMemory
from crescendo.wire.amqp10.frames import LENGTH, Body, Frame, find_body
from crescendo.wire.amqp10.links import RECEIVER, Link
from crescendo.wire.amqp10.performatives import Disposition, Flow, Transfer
from crescendo.wire.amqp10.serial import SERIAL_MASK
from crescendo.wire.amqp10.session import Session
from crescendo.wire.frame_buffer import FrameBuffer

MAX_MESSAGE_SIZE = 128 * 2**20
_SCALAR_RUN = 8  # settlements; for shorter runs, setting up arrays would cost more than everything else
_ARRAY_RUN = 2 * _SCALAR_RUN


class Arrivals:
    """Takes frames from the buffer and remembers the patterns of earlier ones."""

    def __init__(self, buffer: FrameBuffer, session: Session, *, batching: bool) -> None:
        self._buffer = buffer
        self._session = session
        self._links = session.links
        self._batching = batching
        self._layouts: PatternMemory[Layout] = PatternMemory()
        self._disposition_runs: PatternMemory[DispositionRun] = PatternMemory()
        self._flows: PatternMemory[FlowPattern] = PatternMemory()

    def forget(self) -> None:
        """Forget all layouts. A link is gone, and the next one with its handle may use another layout."""
        self._layouts.forget()

    # -- frames that match earlier ones --------------------------------------------------------------------------

    def take_settlements(self) -> list[Settled]:
        """Take the next settlements that match earlier ones, and apply the flows between them.

        A system that allows few messages in flight alternates small settlements and flows, and an event for each of
        them would be expensive. Consecutive ranges with the same outcome become one.
        """
        settlements: list[Settled] = []
        buffer = self._buffer
        view, end = buffer.view, buffer.end
        first, last = 0, -1
        current: Disposition | None = None
        while end - buffer.start >= LENGTH.size:
            start = buffer.start
            length = LENGTH.unpack_from(view, start)[0]
            run, pattern = self._disposition_runs.recall(length), self._flows.recall(length)
            if start + length > end:
                break
            octets = view[start : start + length]
            if run is not None and (numbers := run.pattern.read(octets)) is not None:
                if end - start >= _ARRAY_RUN * length and run.pattern.read(view[start + length : start + 2 * length]):
                    break  # long enough for the array path
                other = run.disposition
                if current is not None and numbers[0] == last + 1 <= numbers[-1] and _same_outcome(current, other):
                    last = numbers[-1]
                else:
                    if current is not None:
                        settlements.append(Settled(current.role, [(first, last)], bool(current.settled), current.state))
                    current, first, last = other, numbers[0], numbers[-1]
            elif pattern is not None and (flow := pattern.read(octets)) is not None:
                self._session.take_flow(flow)
            else:
                break
            buffer.start = start + length
        if current is not None:
            settlements.append(Settled(current.role, [(first, last)], bool(current.settled), current.state))
        return settlements

    def take_run(self, length: int) -> Event | None:
        """The event of a run that begins with a frame of this length, or None when the frame matches no earlier one."""
        buffer = self._buffer
        run = self._disposition_runs.recall(length)
        if run is not None:
            settled = self._take_disposition_run(run, length)
            if settled is not None:
                return settled
        pattern = self._flows.recall(length)
        if pattern is not None:
            flow = pattern.read(buffer.view[buffer.start : buffer.start + length])
            if flow is not None:
                buffer.start += length
                return self._session.take_flow(flow)
        layout = self._layouts.recall(length)
        if layout is None or self._links.partials:
            return None
        rows = rows_of(buffer.view[: buffer.end], buffer.start, length)
        count = layout.matches(rows)
        return self._deliver(layout, rows[:count], batched=True) if count else None

    def _take_disposition_run(self, run: DispositionRun, length: int) -> Settled | None:
        """Dispositions with the same outcome, as one event."""
        buffer = self._buffer
        view, start, end = buffer.view, buffer.start, buffer.end
        first_range = run.read_one(view[start : start + length])
        if first_range is None:
            return None
        first, last = first_range
        count, position = 1, start + length
        while position + length <= end and (next_range := run.read_one(view[position : position + length])) is not None:
            follows = (
                next_range[0] == (last + 1) & SERIAL_MASK
                and (next_range[1] - first) & SERIAL_MASK > (last - first) & SERIAL_MASK
            )
            if count == _SCALAR_RUN or not follows:
                count, ranges = run.read_rows(rows_of(view[:end], start, length))
                break
            count, position, last = count + 1, position + length, next_range[1]
        else:
            ranges = [(first, last)]
        buffer.start += count * length
        disposition = run.disposition
        return Settled(disposition.role, ranges, bool(disposition.settled), disposition.state)

    def _deliver(self, layout: Layout, rows: Octets, *, batched: bool) -> Deliveries:
        link = self._links.remote(layout.transfer.handle)
        self._buffer.start += rows.size
        self._session.count_arrived(link, len(rows))
        return Deliveries(
            link.handle,
            layout.ids(rows),
            bool(layout.transfer.settled),
            rows[:, layout.message_start :],
            layout.body.start,
            layout.body.length,
            layout.body.redelivered,
            batched,
        )

    # -- decoded frames ------------------------------------------------------------------------------------------

    def take_flow(self, octets: memoryview, flow: Flow) -> Event:
        if self._batching:
            self._flows.learn(len(octets), FlowPattern(octets, flow))
        self._buffer.start += len(octets)
        return self._session.take_flow(flow)

    def take_disposition(self, octets: memoryview, disposition: Disposition) -> Event:
        run = disposition_run(octets, disposition) if self._batching else None
        if run is not None:
            self._disposition_runs.learn(len(octets), run)
            settled = self._take_disposition_run(run, len(octets))
            if settled is not None:
                return settled
        self._buffer.start += len(octets)
        first, last = disposition.first, disposition.last
        delivery_range = (first, first if last is None else last)
        return Settled(disposition.role, [delivery_range], bool(disposition.settled), disposition.state)

    def take_transfer(self, octets: memoryview, frame: Frame, transfer: Transfer) -> Event | None:
        link = self._links.remote(transfer.handle)
        if link.role is not RECEIVER:
            raise PeerError("a transfer on a link where we send")
        if transfer.more or link.partial is not None or transfer.aborted:
            self._buffer.start += len(octets)
            return self._take_fragment(link, transfer, frame.payload)
        if transfer.delivery_id is None:
            raise PeerError("a transfer without a delivery id")
        body = find_body(frame.payload)
        layout = layout_of(octets, frame, body) if self._batching else None
        if layout is not None:
            self._layouts.learn(layout.length, layout)
            rows = rows_of(self._buffer.view[: self._buffer.end], self._buffer.start, len(octets))
            count = layout.matches(rows)
            return self._deliver(layout, rows[:count], batched=count > 1)
        self._buffer.start += len(octets)
        self._session.count_arrived(link, 1)
        return _delivery(link, transfer.delivery_id, bool(transfer.settled), frame.payload, body)

    def _take_fragment(self, link: Link, transfer: Transfer, payload: memoryview) -> Event | None:
        session = self._session
        session.next_incoming_id = (session.next_incoming_id + 1) & SERIAL_MASK
        if link.partial is None:
            if transfer.delivery_id is None:
                raise PeerError("a transfer without a delivery id")
            link.partial = bytearray()
            link.partial_id = transfer.delivery_id
            link.partial_settled = False
            self._links.partials += 1
        link.partial_settled |= bool(transfer.settled)
        link.partial += payload
        if len(link.partial) > MAX_MESSAGE_SIZE:
            raise PeerError(f"a message of more than {MAX_MESSAGE_SIZE} bytes")
        if transfer.more and not transfer.aborted:
            return None
        octets, link.partial = link.partial, None
        self._links.partials -= 1
        link.delivery_count = (link.delivery_count + 1) & SERIAL_MASK
        if transfer.aborted:
            return None
        message = memoryview(octets)
        return _delivery(link, link.partial_id, link.partial_settled, message, find_body(message))


def _same_outcome(one: Disposition, other: Disposition) -> bool:
    return one.role is other.role and one.settled is other.settled and one.state == other.state


def _delivery(link: Link, delivery_id: int, settled: bool, octets: memoryview, body: Body) -> Deliveries:
    """A single message."""
    ids = np.array([delivery_id], np.uint32)
    message = np.frombuffer(octets, np.uint8).reshape(1, -1)
    return Deliveries(link.handle, ids, settled, message, body.start, body.length, body.redelivered, False)
