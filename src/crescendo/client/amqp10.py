"""How does the lab exchange a few AMQP 1.0 messages with a system?

A small blocking client: send a message, receive one, send a request and wait for the answer at its own reply node.
Every call ends within its timeout, with a result or with a PeerError that quotes the system. It is not a load
generator: it handles one message at a time, and sends none that needs more than one frame.
"""

import time
import uuid
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from crescendo.client.amqp10_message import Amqp10Message
from crescendo.client.blocking_session import Arrival, BlockingSession, SessionLink
from crescendo.model.errors import PeerError
from crescendo.wire.amqp10.links import RECEIVER, SENDER
from crescendo.wire.amqp10.performatives import Accepted, Released, Source, Target

TIMEOUT_S = 5.0
QUEUE, TOPIC = "queue", "topic"
_REPLY_CREDIT = 8  # the answer, and late answers to requests that timed out
_MAX_FOREIGN = 64  # how many messages of other senders `echo` holds before it gives up and releases them


class Amqp10Client:
    """One connection to one system. Connects in the constructor; the caller must close it."""

    def __init__(self, url: str, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._session = BlockingSession(url, time.monotonic() + timeout_s)
        self._sources: dict[str | None, SessionLink] = {}  # by address; None is our own reply node
        self._targets: dict[str, SessionLink] = {}

    @property
    def stale(self) -> bool:
        """Whether the connection is closed or may be: reconnect before the next call."""
        return self._session.stale

    def send(
        self,
        address: str,
        body: Any,
        *,
        application_properties: Mapping[str, Any] | None = None,
        capability: str | None = None,
    ) -> None:
        """Send one message and wait until the system has accepted it."""
        deadline_s = self._deadline_s()
        target = self._target(address, capability, deadline_s)
        delivery = self._session.transfer(target, Amqp10Message(body, application_properties or {}), deadline_s)
        self._await_accepted(delivery, deadline_s)

    def receive(self, address: str, timeout_s: float | None = None, *, capability: str | None = None) -> bytes:
        """Accept the next message and return its body. PeerError if none arrives in time."""
        body = self.receive_message(address, timeout_s, capability=capability).body
        if body is None or isinstance(body, str):
            return (body or "").encode()
        if not isinstance(body, bytes):
            raise PeerError(f"a message whose body is a {type(body).__name__} where bytes or text were expected")
        return body

    def receive_message(
        self, address: str, timeout_s: float | None = None, *, capability: str | None = None
    ) -> Amqp10Message:
        """Accept the next message and return it with all its sections."""
        deadline_s = self._deadline_s(timeout_s)
        source = self._source(address, capability, deadline_s)
        if not source.arrived:
            self._session.grant(source, 1)
            self._session.run_until(lambda: bool(source.arrived), deadline_s, f"message from {address!r}")
        arrival = source.arrived.popleft()
        message = arrival.message
        self._session.settle(arrival, Accepted())
        return message

    def request(
        self, address: str, body: Any, application_properties: Mapping[str, Any] | None = None
    ) -> Amqp10Message:
        """Send a request, and return the answer with our correlation id. Late answers to other requests are dropped."""
        deadline_s = self._deadline_s()
        replies = self._source(None, None, deadline_s)
        target = self._target(address, None, deadline_s)
        self._session.grant(replies, _REPLY_CREDIT)
        correlation = uuid.uuid4().hex
        question = Amqp10Message(
            body, application_properties or {}, reply_to=replies.address, correlation_id=correlation
        )
        delivery = self._session.transfer(target, question, deadline_s)
        try:
            while True:
                self._session.run_until(
                    lambda: bool(replies.arrived) or self._declined(delivery),
                    deadline_s,
                    f"answer from {address!r}",
                )
                if not replies.arrived:
                    raise PeerError(f"{self._session.endpoint} did not accept our request to {address!r}")
                arrival = replies.arrived.popleft()
                answer = arrival.message
                self._session.settle(arrival, Accepted())
                if answer.correlation_id == correlation:
                    return answer
        finally:
            self._session.outcomes.pop(delivery, None)

    def echo(self, address: str, body: bytes, *, capability: str | None = None) -> None:
        """Send one message to a node and receive it back; other messages stay in the node.

        The receiver attaches first, because a router grants no credit for an address without a receiver. Messages of
        other senders are held until the end and then released: released at once, they would be redelivered before ours.
        """
        deadline_s = self._deadline_s()
        source = self._source(address, capability, deadline_s)
        self._session.grant(source, 1)
        target = self._target(address, capability, deadline_s)
        delivery = self._session.transfer(target, Amqp10Message(body), deadline_s)
        foreign: list[Arrival] = []
        try:
            while True:
                what = f"trace of the message we sent to {address!r}, only {len(foreign)} others"
                self._session.run_until(lambda: bool(source.arrived), deadline_s, what)
                arrival = source.arrived.popleft()
                if arrival.message.body in (body, body.decode(errors="replace")):
                    break
                foreign.append(arrival)
                if len(foreign) >= _MAX_FOREIGN:
                    raise PeerError(f"{self._session.endpoint}: {address!r} holds too many messages of other senders")
                self._session.grant(source, 1)
            self._session.settle(arrival, Accepted())
        finally:
            for other in foreign:
                self._session.settle(other, Released())
        self._await_accepted(delivery, deadline_s)

    def close(self) -> None:
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _deadline_s(self, timeout_s: float | None = None) -> float:
        return time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)

    def _source(self, address: str | None, capability: str | None, deadline_s: float) -> SessionLink:
        link = self._sources.get(address)
        if link is None:
            capabilities = None if capability is None else [capability]
            source = Source(address=address, dynamic=True if address is None else None, capabilities=capabilities)
            link = self._sources[address] = self._session.attach(RECEIVER, source, Target(), deadline_s)
        return link

    def _target(self, address: str, capability: str | None, deadline_s: float) -> SessionLink:
        link = self._targets.get(address)
        if link is None:
            target = Target(address=address, capabilities=None if capability is None else [capability])
            link = self._targets[address] = self._session.attach(SENDER, Source(), target, deadline_s)
        return link

    def _declined(self, delivery: int) -> bool:
        outcome = self._session.outcomes[delivery]
        return outcome is not None and not isinstance(outcome, Accepted)

    def _await_accepted(self, delivery: int, deadline_s: float) -> None:
        outcomes = self._session.outcomes
        try:
            self._session.run_until(lambda: outcomes[delivery] is not None, deadline_s, "outcome of our message")
            if self._declined(delivery):
                raise PeerError(f"{self._session.endpoint} did not accept our message: {outcomes[delivery]}")
        finally:
            outcomes.pop(delivery, None)


def pass_a_message(url: str, address: str, timeout_s: float) -> None:
    """Probe a system: send one marked message through a queue. PeerError says what failed.

    Messages of other senders stay in the queue.
    """
    with Amqp10Client(url, timeout_s) as client:
        client.echo(address, f"crescendo {uuid.uuid4().hex}".encode(), capability=QUEUE)
