"""Does a way through a network carry every message, and unchanged?

Sends numbered messages to one node and receives them at another, with our own blocking client, then says what became
of them. A message that the first node gives back is sent again, as any sender would. It measures no times, and knows
nothing of how nodes are joined.
"""

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from crescendo.client.amqp10 import QUEUE
from crescendo.client.blocking_session import BlockingSession, SessionLink
from crescendo.model.errors import PeerError
from crescendo.systems.base import AMQP
from crescendo.systems.instance import RunningInstance
from crescendo.topology.graph import BROKER, RABBITMQ, Graph, queue_address
from crescendo.topology.link_fidelity import (
    BINARY_VALUE,
    BODY_KINDS,
    DATA,
    TEXT_VALUE,
    FidelityCount,
    LinkFidelity,
    link_message,
)
from crescendo.wire.amqp10.links import RECEIVER, SENDER
from crescendo.wire.amqp10.performatives import Accepted, Rejected, Source, Target

MESSAGES = 200
_WINDOW, _CREDIT = 100, 500
_TURN_S = 0.1
_ATTACH_TIMEOUT_S = 20.0


class Route(Struct, frozen=True):
    """Where messages enter the network, where they leave it, and under which address, as each end calls it."""

    source: str
    source_url: str
    target: str
    target_url: str
    address: str
    source_address: str
    target_address: str


def route_between(graph: Graph, running: Mapping[str, RunningInstance], way: tuple[str, str], address: str) -> Route:
    """The route between two nodes of a running network."""
    nodes = graph.by_id()
    called = [queue_address(nodes[name].program, address) for name in way]
    urls = [running[name].endpoints[AMQP] for name in way]
    return Route(way[0], urls[0], way[1], urls[1], address, *called)


def kinds_carried(graph: Graph, address: str) -> tuple[str, ...]:
    """The kinds of body that an address can carry without ending a link.

    A shovel of RabbitMQ 3 ends at a map or a list from an AMQP 1.0 broker, and finds it again when it restarts, because
    the message stays at the head of the queue.
    """
    nodes = graph.by_id()
    for link in graph.links:
        ends = nodes[link.source].program, nodes[link.target].program
        from_amqp_1_0 = ends[1] == RABBITMQ and ends[0] != RABBITMQ and nodes[link.source].type == BROKER
        if from_amqp_1_0 and link.via in {None, "shovel"} and address in link.addresses:
            return DATA, TEXT_VALUE, BINARY_VALUE
    return BODY_KINDS


def probe_route(
    route: Route,
    messages: int = MESSAGES,
    *,
    kinds: Sequence[str] = BODY_KINDS,
    size: int = 64,
    idle_s: float = 10.0,
    linger_s: float = 0.3,
    on_sent: Callable[[int], None] = lambda _: None,
) -> LinkFidelity:
    """Send the messages, and wait until all have arrived or nothing has arrived for `idle_s`.

    `on_sent` is called with how many were sent. After the last one `linger_s` remains for duplicates.
    """
    tag = secrets.token_hex(4)
    receiver = _ReceivingEnd(route, FidelityCount(tag, kinds, size))
    try:
        sender = _SendingEnd(route, lambda number: link_message(tag, number, kinds, size).encoded())
        try:
            sender.send(messages, on_sent, idle_s, receiver)
            receiver.await_all(messages, idle_s, linger_s)
        finally:
            sender.close()
    finally:
        receiver.close()
    return receiver.count.result(route.source, route.target, route.address, messages, resent=sender.resent)


class _SendingEnd:
    def __init__(self, route: Route, octets_of: Callable[[int], bytes]) -> None:
        deadline_s = time.monotonic() + _ATTACH_TIMEOUT_S
        self._octets_of = octets_of
        self._session = BlockingSession(route.source_url, deadline_s)
        target = Target(address=route.source_address, capabilities=[QUEUE])
        self._link: SessionLink = self._session.attach(SENDER, Source(), target, deadline_s)
        self._waiting: dict[int, int] = {}  # delivery -> number of the message
        self.resent = 0

    def send(self, messages: int, on_sent: Callable[[int], None], idle_s: float, receiver: "_ReceivingEnd") -> None:
        open_numbers, sent = deque(range(messages)), 0
        while open_numbers or self._waiting:
            if open_numbers and len(self._waiting) < _WINDOW:
                room = min(len(open_numbers), _WINDOW - len(self._waiting))
                numbers = [open_numbers.popleft() for _ in range(room)]
                deliveries = self._session.transfer_all(self._link, map(self._octets_of, numbers), _later(idle_s))
                self._waiting |= dict(zip(deliveries, numbers, strict=True))
                for number in numbers:
                    if number == sent:  # for the first time
                        sent += 1
                        on_sent(sent)
            else:
                self._session.run_until(self._has_outcome, _later(idle_s), "outcome of our messages")
            open_numbers.extendleft(reversed(self._taken_back()))
            receiver.raise_if_failed()

    def _has_outcome(self) -> bool:
        return any(self._session.outcomes[delivery] is not None for delivery in self._waiting)

    def _taken_back(self) -> list[int]:
        again = []
        for delivery in [known for known in self._waiting if self._session.outcomes[known] is not None]:
            number, outcome = self._waiting.pop(delivery), self._session.outcomes.pop(delivery)
            if isinstance(outcome, Rejected):
                raise PeerError(f"{self._session.endpoint} rejected a message: {outcome.error}")
            if not isinstance(outcome, Accepted):
                again.append(number)
        self.resent += len(again)
        return sorted(again)

    def close(self) -> None:
        self._session.close()


class _ReceivingEnd:
    """Receives in a thread of its own until it is closed."""

    def __init__(self, route: Route, count: FidelityCount) -> None:
        deadline_s = time.monotonic() + _ATTACH_TIMEOUT_S
        self.count = count
        self._session = BlockingSession(route.target_url, deadline_s)
        source = Source(address=route.target_address, capabilities=[QUEUE])
        self._link = self._session.attach(RECEIVER, source, Target(), deadline_s)
        self._credit_left = 0
        self._grant()
        self._last_s = time.monotonic()
        self._error: PeerError | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._turn()
        except PeerError as err:
            self._error = err

    def _turn(self) -> None:
        try:
            self._session.run_until(lambda: bool(self._link.arrived), _later(_TURN_S), "message")
        except PeerError:
            if self._session.closed:
                raise
        if not self._link.arrived:
            return
        arrivals = list(self._link.arrived)
        self._link.arrived.clear()
        self._session.settle_all(arrivals, Accepted())
        for arrival in arrivals:
            if self.count.take(arrival.octets):
                self._last_s = time.monotonic()
        self._credit_left -= len(arrivals)
        if self._credit_left <= _CREDIT // 2:
            self._grant()

    def _grant(self) -> None:
        """Not after every message: RabbitMQ 3.10 then sent over 1,000 messages where 500 were granted."""
        self._session.grant(self._link, _CREDIT)
        self._credit_left = _CREDIT

    def raise_if_failed(self) -> None:
        if self._error is not None:
            raise self._error

    def await_all(self, messages: int, idle_s: float, linger_s: float) -> None:
        """Until all have arrived, and for a moment longer; or until nothing has arrived for a while."""
        self._last_s = max(self._last_s, time.monotonic())
        while self.count.arrived < messages and time.monotonic() < self._last_s + idle_s:
            self.raise_if_failed()
            time.sleep(_TURN_S / 10)
        end_s = time.monotonic() + linger_s
        while time.monotonic() < end_s:
            self.raise_if_failed()
            time.sleep(_TURN_S / 10)

    def close(self) -> None:
        self._stop.set()
        self._thread.join(_ATTACH_TIMEOUT_S)
        self._session.close()


def _later(seconds: float) -> float:
    return time.monotonic() + seconds
