"""What is the state of a session, and which events follow from the performatives on it?

Sans-IO: performatives go in, events come out, and answers go to the deque that the connection writes from. A session's
window counts frames, a link's credit counts messages. Does not read messages; `arrivals.py` does.
"""

from collections import deque
from typing import Any

from crescendo.model.errors import PeerError
from crescendo.wire.amqp10.events import Attached, Begun, Credited, Detached, Ended, Event, error_text
from crescendo.wire.amqp10.frame_template import FrameTemplate
from crescendo.wire.amqp10.frames import HEADER_BYTES, encode_frame
from crescendo.wire.amqp10.links import SENDER, Link, Links
from crescendo.wire.amqp10.performatives import (
    Accepted,
    Attach,
    Begin,
    Composite,
    Detach,
    Disposition,
    End,
    Flow,
    Transfer,
    encode_composite,
)
from crescendo.wire.amqp10.serial import HALF_RANGE, SERIAL_MASK, serial_distance

WINDOW = HALF_RANGE  # ours is always open: arriving frames are read at once
_FLOW_NUMBERS = 7  # up to the credit


class Session:
    """The one session of a connection."""

    def __init__(self, outgoing: deque[memoryview], *, server: bool, accepts_links: bool) -> None:
        self.links = Links(accepts_links=accepts_links)
        self.next_outgoing_id = 0  # in frames
        self.next_incoming_id = 0
        self.remote_window = 0
        self._outgoing = outgoing
        self._server = server
        self._channel = 0
        self._begun = False
        self._accepted_templates: dict[tuple[bool, bool], FrameTemplate] = {}  # by role and settled flag
        self._credit_template: FrameTemplate | None = None

    # -- sending -------------------------------------------------------------------------------------------------

    def send(self, performative: Composite, payload: bytes = b"") -> None:
        self._outgoing.append(memoryview(encode_frame(performative, payload, channel=self._channel)))

    def send_flow(self, **link: Any) -> None:
        self.send(Flow(self.next_incoming_id, WINDOW, self.next_outgoing_id, WINDOW, **link))

    def send_accepted(self, first: int, last: int, *, role: bool, settled: bool) -> None:
        """Send the outcome accepted for these deliveries."""
        template = self._accepted_templates.get((role, settled))
        if template is None:

            def accepted(one: int, other: int) -> Disposition:
                return Disposition(role, one, other, settled, Accepted())

            template = self._accepted_templates[role, settled] = FrameTemplate(accepted, 2, channel=self._channel)
        self._outgoing.append(memoryview(template.fill_two(first, last)))

    def send_credit(self, link: Link, credit: int) -> None:
        """Grant credit: the peer may send `credit` messages from now on."""
        if self._credit_template is None:
            self._credit_template = FrameTemplate(Flow, _FLOW_NUMBERS, channel=self._channel)
        numbers = (self.next_incoming_id, WINDOW, self.next_outgoing_id, WINDOW)
        self._outgoing.append(
            memoryview(self._credit_template.fill(*numbers, link.handle, link.delivery_count, credit))
        )

    def send_message(self, first: Transfer, message: bytes, max_frame_size: int) -> None:
        """Queue one message, split to the peer's maximum frame size; `first` is the transfer of its first frame."""
        room = max_frame_size - HEADER_BYTES - len(encode_composite(first)) - 1  # 1: the more flag
        position = 0
        while True:
            fragment = message[position : position + room]
            position += len(fragment)
            more = position < len(message)
            performative = first if position == len(fragment) else Transfer(first.handle)
            performative.more = True if more else None
            self.send(performative, fragment)
            self.next_outgoing_id = (self.next_outgoing_id + 1) & SERIAL_MASK
            self.remote_window -= 1
            if not more:
                break

    # -- receiving -----------------------------------------------------------------------------------------------

    def take_begin(self, channel: int, begin: Begin) -> Event:
        if self._begun:
            raise PeerError("a second session; a connection has one")
        self._begun = True
        self._accepted_templates, self._credit_template = {}, None  # the channel may have changed
        self.next_incoming_id = begin.next_outgoing_id
        self.remote_window = begin.incoming_window
        if self._server:
            self._channel = channel
            self.send(Begin(channel, 0, WINDOW, WINDOW))
        return Begun()

    def take_attach(self, attach: Attach) -> Event:
        return Attached(self.links.attached(attach).handle, attach)

    def take_flow(self, flow: Flow) -> Event:
        known = flow.next_incoming_id if flow.next_incoming_id is not None else 0
        self.remote_window = serial_distance(known + flow.incoming_window, self.next_outgoing_id)
        if flow.handle is None:
            if flow.echo:
                self.send_flow()
            return Credited(None)
        link = self.links.remote(flow.handle)
        if link.role is SENDER and flow.link_credit is not None:
            link.credit_limit = ((flow.delivery_count or 0) + flow.link_credit) & SERIAL_MASK
            if flow.drain:  # we never hold messages back, so there is nothing left to send
                link.delivery_count = link.credit_limit
                self.send_flow(handle=link.handle, delivery_count=link.delivery_count, link_credit=0, drain=True)
        if flow.echo:
            credit = serial_distance(link.credit_limit, link.delivery_count)
            self.send_flow(handle=link.handle, delivery_count=link.delivery_count, link_credit=credit)
        return Credited(link.handle)

    def take_detach(self, detach: Detach) -> Event:
        link = self.links.remote(detach.handle)
        self.links.forget(link)
        if not link.detached:
            self.send(Detach(link.handle, bool(detach.closed)))
        return Detached(link.handle, error_text(detach.error))

    def take_end(self, end: End) -> Event:
        self.links.forget_all()
        self._begun = False
        self.send(End())
        return Ended(error_text(end.error))

    def count_arrived(self, link: Link, deliveries: int) -> None:
        """Count messages of one frame each that arrived."""
        self.next_incoming_id = (self.next_incoming_id + deliveries) & SERIAL_MASK
        link.delivery_count = (link.delivery_count + deliveries) & SERIAL_MASK
