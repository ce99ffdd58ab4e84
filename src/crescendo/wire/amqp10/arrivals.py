"""Which messages, settlements and flows lie in the receive buffer, and how many of them at once?

They are nearly all that is said on a busy connection. What looks like an earlier one is recognised by its bytes, and
many in a row are taken together: the batch path. Everything else is taken frame by frame. Only the scalar codec decides
what a frame means.
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
from crescendo.wire.amqp10.serial import SERIAL
from crescendo.wire.amqp10.session import Session
from crescendo.wire.frame_buffer import FrameBuffer

MAX_MESSAGE_SIZE = 128 * 2**20
_FEW = 8  # settlements; below this, setting up arrays would cost more than all the rest
_MANY = 2 * _FEW


class Arrivals:
    """What is taken from the buffer, and how earlier frames looked."""

    def __init__(self, buffer: FrameBuffer, session: Session, *, batching: bool) -> None:
        self._buffer = buffer
        self._session = session
        self._links = session.links
        self._batching = batching
        self._layouts: PatternMemory[Layout] = PatternMemory()
        self._settlings: PatternMemory[DispositionRun] = PatternMemory()
        self._flows: PatternMemory[FlowPattern] = PatternMemory()

    def forget(self) -> None:
        """A link is gone: some layouts may be its own, and the next link of its handle need not be the same."""
        self._layouts.forget()

    # -- what looks like earlier frames --------------------------------------------------------------------------

    def take_answers(self) -> list[Settled]:
        """The settlements that come next and look like earlier ones; flows between them are taken in on the way.

        A system that lets few messages be under way answers in small pieces, settlement and flow by turns, and what an
        event costs would be paid for each. Stretches that follow each other and fared alike become one.
        """
        answers: list[Settled] = []
        buffer = self._buffer
        view, end = buffer.view, buffer.end
        first, last = 0, -1
        like: Disposition | None = None
        while end - buffer.start >= LENGTH.size:
            start = buffer.start
            length = LENGTH.unpack_from(view, start)[0]
            settling, shape = self._settlings.recall(length), self._flows.recall(length)
            if start + length > end:
                break
            octets = view[start : start + length]
            if settling is not None and (numbers := settling.shape.read(octets)) is not None:
                if end - start >= _MANY * length and settling.shape.read(view[start + length : start + 2 * length]):
                    break  # worth an array
                same = settling.disposition
                if like is not None and numbers[0] == last + 1 <= numbers[-1] and _means_the_same(like, same):
                    last = numbers[-1]
                else:
                    if like is not None:
                        answers.append(Settled(like.role, [(first, last)], bool(like.settled), like.state))
                    like, first, last = same, numbers[0], numbers[-1]
            elif shape is not None and (flow := shape.read(octets)) is not None:
                self._session.take_flow(flow)
            else:
                break
            buffer.start = start + length
        if like is not None:
            answers.append(Settled(like.role, [(first, last)], bool(like.settled), like.state))
        return answers

    def take_run(self, length: int) -> Event | None:
        """What begins with a frame of this length, if it looks like an earlier one."""
        buffer = self._buffer
        settling = self._settlings.recall(length)
        if settling is not None:
            settled = self._take_settlings(settling, length)
            if settled is not None:
                return settled
        shape = self._flows.recall(length)
        if shape is not None:
            flow = shape.read(buffer.view[buffer.start : buffer.start + length])
            if flow is not None:
                buffer.start += length
                return self._session.take_flow(flow)
        layout = self._layouts.recall(length)
        if layout is None or self._links.partials:
            return None
        rows = rows_of(buffer.view[: buffer.end], buffer.start, length)
        count = layout.matches(rows)
        return self._deliver(layout, rows[:count], batched=True) if count else None

    def _take_settlings(self, settling: DispositionRun, length: int) -> Settled | None:
        """Settlements that are alike, as one."""
        buffer = self._buffer
        view, start, end = buffer.view, buffer.start, buffer.end
        alone = settling.one(view[start : start + length])
        if alone is None:
            return None
        first, last = alone
        count, place = 1, start + length
        while place + length <= end and (another := settling.one(view[place : place + length])) is not None:
            follows = another[0] == (last + 1) & SERIAL and (another[1] - first) & SERIAL > (last - first) & SERIAL
            if count == _FEW or not follows:
                count, stretches = settling.run(rows_of(view[:end], start, length))
                break
            count, place, last = count + 1, place + length, another[1]
        else:
            stretches = [(first, last)]
        buffer.start += count * length
        like = settling.disposition
        return Settled(like.role, stretches, bool(like.settled), like.state)

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

    # -- what was decoded ----------------------------------------------------------------------------------------

    def take_flow(self, octets: memoryview, flow: Flow) -> Event:
        if self._batching:
            self._flows.learn(len(octets), FlowPattern(octets, flow))
        self._buffer.start += len(octets)
        return self._session.take_flow(flow)

    def take_disposition(self, octets: memoryview, disposition: Disposition) -> Event:
        settling = disposition_run(octets, disposition) if self._batching else None
        if settling is not None:
            self._settlings.learn(len(octets), settling)
            settled = self._take_settlings(settling, len(octets))
            if settled is not None:
                return settled
        self._buffer.start += len(octets)
        first, last = disposition.first, disposition.last
        stretch = (first, first if last is None else last)
        return Settled(disposition.role, [stretch], bool(disposition.settled), disposition.state)

    def take_transfer(self, octets: memoryview, frame: Frame, transfer: Transfer) -> Event | None:
        link = self._links.remote(transfer.handle)
        if link.role is not RECEIVER:
            raise PeerError("a message on a link where we send")
        if transfer.more or link.partial is not None or transfer.aborted:
            self._buffer.start += len(octets)
            return self._take_piece(link, transfer, frame.payload)
        if transfer.delivery_id is None:
            raise PeerError("a message without a delivery id")
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

    def _take_piece(self, link: Link, transfer: Transfer, payload: memoryview) -> Event | None:
        session = self._session
        session.next_incoming_id = (session.next_incoming_id + 1) & SERIAL
        if link.partial is None:
            if transfer.delivery_id is None:
                raise PeerError("a message without a delivery id")
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
        link.delivery_count = (link.delivery_count + 1) & SERIAL
        if transfer.aborted:
            return None
        message = memoryview(octets)
        return _delivery(link, link.partial_id, link.partial_settled, message, find_body(message))


def _means_the_same(one: Disposition, other: Disposition) -> bool:
    return one.role is other.role and one.settled is other.settled and one.state == other.state


def _delivery(link: Link, delivery_id: int, settled: bool, octets: memoryview, body: Body) -> Deliveries:
    """One message by itself."""
    ids = np.array([delivery_id], np.uint32)
    message = np.frombuffer(octets, np.uint8).reshape(1, -1)
    return Deliveries(link.handle, ids, settled, message, body.start, body.length, body.redelivered, False)
