"""How does blocking code drive one AMQP 1.0 connection?

A transport, plain or with TLS, a sans-IO connection and a deadline for every wait. It keeps received messages until the
caller asks for them. A fault of the system ends the connection with a PeerError that quotes the system. It decides
nothing about messages: `amqp10` does.
"""

import contextlib
import itertools
import os
import select
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from crescendo.client.amqp10_message import Amqp10Message, decode_message, encode_message
from crescendo.model.errors import ConfigError, PeerError
from crescendo.model.protocols import AMQP10
from crescendo.model.urls import parse_url
from crescendo.net.tls import tls_of_url
from crescendo.net.transport import connect
from crescendo.wire.amqp10.connection import Connection
from crescendo.wire.amqp10.events import Attached, Begun, Closed, Deliveries, Detached, Ended, Event, Refused, Settled
from crescendo.wire.amqp10.handshake import Credentials
from crescendo.wire.amqp10.links import RECEIVER, SENDER
from crescendo.wire.amqp10.performatives import (
    Accepted,
    Composite,
    Modified,
    Rejected,
    Released,
    Source,
    Target,
)

MAX_MESSAGE_BYTES = 16 * 2**20
_MAX_ARRIVED = 1024  # far more than the credit we ever grant
_CLOSE_TIMEOUT_S = 0.5
_TERMINAL = (Accepted, Rejected, Released, Modified)
_numbers = itertools.count()


class Arrival:
    """A received message and the delivery id to settle it with, None if it arrived settled."""

    __slots__ = ("delivery", "octets")

    def __init__(self, delivery: int | None, octets: bytes) -> None:
        self.delivery = delivery
        self.octets = octets  # as it arrived

    @property
    def message(self) -> Amqp10Message:
        """Its content; PeerError if it is not a valid message. The octets are there in any case."""
        return decode_message(memoryview(self.octets))


class SessionLink:
    """One of our links. A receiving link keeps its arrived messages."""

    def __init__(self, handle: int, role: bool) -> None:
        self.handle = handle
        self.role = role
        self.address: str | None = None  # the address that the system reports; it chooses that of a dynamic node
        self.attached = False
        self.arrived: deque[Arrival] = deque()


class BlockingSession:
    """One connection with one session. Connects in the constructor; the caller must close it."""

    def __init__(self, url: str, deadline_s: float) -> None:
        parts = parse_url(url)
        if parts.scheme not in AMQP10.schemes:
            raise ConfigError(f"a URL that begins with {parts.scheme!r} where amqp://host:port or amqps:// is needed")
        host, port = parts.host or "127.0.0.1", parts.port or AMQP10.schemes[parts.scheme]
        credentials = None
        if parts.user is not None:
            credentials = Credentials(parts.user, parts.password or "")
        self.endpoint = f"{host}:{port}"
        self.outcomes: dict[int, Any] = {}  # by delivery id, while a caller waits; None until known
        self._name = f"crescendo-client-{os.getpid()}-{next(_numbers)}"
        self._wire = Connection(container_id=self._name, hostname=host, credentials=credentials, batching=False)
        self._links: dict[int, SessionLink] = {}
        self._begun = False
        self._closed = False
        self._poll = select.poll()
        self._last_sent_s = time.monotonic()
        left_s = max(deadline_s - time.monotonic(), 0.001)
        self._transport = connect(host, port, tls=tls_of_url(url), timeout_s=left_s)
        try:
            self.run_until(lambda: self._begun, deadline_s, "session")
        except BaseException:
            self._close_transport()
            raise

    @property
    def stale(self) -> bool:
        """Whether the system may have dropped us, because we were idle for longer than it allows."""
        limit_ms = self._wire.remote_idle_time_out_ms
        return self._closed or bool(limit_ms and (time.monotonic() - self._last_sent_s) * 1000 > limit_ms / 2)

    @property
    def closed(self) -> bool:
        """Whether the connection is closed, by either side."""
        return self._closed

    def attach(self, role: bool, source: Source, target: Target, deadline_s: float) -> SessionLink:
        handle = self._wire.attach(f"{self._name}-{next(_numbers)}", role, source, target)
        link = self._links[handle] = SessionLink(handle, role)
        address = target.address if role is SENDER else source.address
        node = "a reply node" if address is None else repr(address)
        self.run_until(lambda: link.attached, deadline_s, f"link {'to' if role is SENDER else 'from'} {node}")
        return link

    def transfer(self, link: SessionLink, message: Amqp10Message, deadline_s: float) -> int:
        """Send one message once there is credit; returns its delivery id, the key of its entry in `outcomes`."""
        return self.transfer_octets(link, encode_message(message), deadline_s)

    def transfer_octets(self, link: SessionLink, octets: bytes, deadline_s: float) -> int:
        """The same with a message that is encoded already."""
        [delivery] = self.transfer_all(link, [octets], deadline_s)
        return delivery

    def transfer_all(self, link: SessionLink, messages: Iterable[bytes], deadline_s: float) -> list[int]:
        """Several messages, written together as far as there is credit."""
        deliveries = []
        for octets in messages:
            if self._wire.sendable(link.handle) == 0:
                has_credit = lambda: self._wire.sendable(link.handle) > 0  # noqa: E731 - used once
                self.run_until(has_credit, deadline_s, f"credit to send to {link.address!r}")
            delivery = self._wire.transfer_message(link.handle, octets)
            self.outcomes[delivery] = None
            deliveries.append(delivery)
        self._flush()
        return deliveries

    def grant(self, link: SessionLink, credit: int) -> None:
        self._wire.grant(link.handle, credit)

    def settle(self, arrival: Arrival, state: Composite) -> None:
        self.settle_all([arrival], state)

    def settle_all(self, arrivals: Sequence[Arrival], state: Composite) -> None:
        """Give all of them the same outcome, those with consecutive numbers at once."""
        if self._closed:
            return
        ranges: list[list[int]] = []
        for delivery in (arrival.delivery for arrival in arrivals if arrival.delivery is not None):
            if ranges and delivery == ranges[-1][1] + 1:
                ranges[-1][1] = delivery
            else:
                ranges.append([delivery, delivery])
        for first, last in ranges:
            self._wire.settle(first, last, state)
        self._flush()

    def run_until(self, done: Callable[[], bool], deadline_s: float, what: str) -> None:
        """Write and read until `done` holds. PeerError after the deadline; `what` says what was missing."""
        while not done():
            if self._closed:
                raise PeerError(f"{self.endpoint}: the connection is closed")
            idle = self._flush()
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise PeerError(f"{self.endpoint} did not answer in time: no {what}")
            self._poll.register(self._transport, select.POLLIN if idle else select.POLLIN | select.POLLOUT)
            if self._transport.pending or self._poll.poll(left_s * 1000):
                self._read()

    def close(self) -> None:
        """Close, and wait briefly for the peer's close, so that our last dispositions are not lost in flight."""
        with contextlib.suppress(PeerError):  # closed either way
            if not self._closed:
                self._wire.close()
                self.run_until(lambda: self._closed, time.monotonic() + _CLOSE_TIMEOUT_S, "close")
        self._close_transport()

    # -- bytes and events ----------------------------------------------------------------------------------------

    def _flush(self) -> bool:
        if self._wire.outgoing:
            self._last_sent_s = time.monotonic()
        try:
            return self._transport.flush(self._wire.outgoing)
        except PeerError as err:
            raise self._lost(str(err)) from err

    def _read(self) -> None:
        try:
            count = self._transport.recv_into(self._wire.receive_buffer())
            if count is None:
                return
            if count == 0:
                raise PeerError("the system closed the connection")
            self._wire.received(count)
            while (event := self._wire.next_event()) is not None:
                self._take(event)
        except PeerError as err:
            raise self._lost(str(err)) from err

    def _take(self, event: Event) -> None:
        match event:
            case Begun():
                self._begun = True
            case Attached(handle=handle, attach=attach):
                link = self._links[handle]
                terminus = attach.target if link.role is SENDER else attach.source
                if isinstance(terminus, Source | Target):  # else refused: the detach that follows gives the reason
                    link.address = None if terminus.address is None else str(terminus.address)
                    link.attached = True
            case Deliveries():
                self._take_deliveries(event)
            case Settled(role=role, ranges=ranges, settled=settled, state=state) if role is RECEIVER:
                for first, last in ranges:
                    if isinstance(state, _TERMINAL) or settled:
                        for delivery in [known for known in self.outcomes if first <= known <= last]:
                            self.outcomes[delivery] = state or Accepted()
                    if not settled:
                        self._wire.settle(first, last, state, role=SENDER)
            case Refused(reason=reason):
                raise PeerError(reason)
            case Detached(error=error):
                raise PeerError(f"the system ended the link: {error or 'no reason given'}")
            case Ended(error=error):
                raise PeerError(f"the system ended the session: {error or 'no reason given'}")
            case Closed(error=error):
                if error:
                    raise PeerError(f"the system closed the connection: {error}")
                self._closed = True

    def _take_deliveries(self, event: Deliveries) -> None:
        link = self._links[event.handle]
        for delivery, row in zip(event.ids.tolist(), event.messages, strict=True):
            if row.nbytes > MAX_MESSAGE_BYTES:
                raise PeerError(f"a message of {row.nbytes} bytes where {MAX_MESSAGE_BYTES} is the limit")
            if len(link.arrived) >= _MAX_ARRIVED:
                raise PeerError("the system sends messages without credit")
            link.arrived.append(Arrival(None if event.settled else delivery, row.tobytes()))

    def _lost(self, reason: str) -> PeerError:
        self._close_transport()
        return PeerError(f"{self.endpoint}: {reason}")

    def _close_transport(self) -> None:
        self._closed = True
        with contextlib.suppress(PeerError):
            self._transport.flush(self._wire.outgoing)
        self._transport.close()
