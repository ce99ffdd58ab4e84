"""How does the load engine speak MQTT?

A socket and a sans-IO connection make a channel. MQTT 5 is tried first; a system that refuses it is asked again in
MQTT 3.1.1. At-most-once is QoS 0, at-least-once is QoS 1. MQTT has only topics: `topic://x` is a subscription for each
receiver, `queue://x` one that all receivers share, where the system can do that. Everything the other side does wrong
ends this channel with its own words and no other one.
"""

import secrets
import time
from collections import defaultdict
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

import numpy as np

from crescendo.load.driver import Arrived, Outcome
from crescendo.model.errors import ConfigError, PeerError
from crescendo.model.workload import Group, Settle
from crescendo.net.sockets import connect, fill, flush, shut
from crescendo.record.schema import Settlement
from crescendo.wire.mqtt.batch import Ids, PublishBatch
from crescendo.wire.mqtt.connection import MAX_PACKET_BYTES, Connection
from crescendo.wire.mqtt.events import Acknowledged, Closed, Connected, Deliveries, Event, Refused, Subscribed
from crescendo.wire.mqtt.kinds import V3, V5
from crescendo.wire.mqtt.packets import Connect, Filter
from crescendo.wire.mqtt.properties import NO_PROPERTIES, Property
from crescendo.wire.mqtt.reasons import FAILURE, Reason, in_words
from crescendo.wire.mqtt.topics import filter_fault, shared
from crescendo.wire.stamp import stamps_of

DEFAULT_PORT = 1883
KEEP_ALIVE_S = 10
RECEIVE_MAXIMUM = 4000
SHARE_NAME = "crescendo"
_HELD_BYTES = 128 * 1024
_NO_RETAINED = 2  # retained messages are older than the run
_NS_PER_S = 10**9


class _Client:
    """One connection, either way."""

    def __init__(self, url: str, group: Group, *, batching: bool, version: int | None) -> None:
        self._url = urlsplit(url)
        self._group = group
        self._qos = 0 if group.settle is Settle.AT_MOST_ONCE else 1
        self._batching = batching
        self._may_fall_back = version is None
        self.ready = False
        self.closed: str | None = None
        self._dial(version or V5)

    def _dial(self, version: int) -> None:
        host, port = self._url.hostname or "127.0.0.1", self._url.port or DEFAULT_PORT
        self._connection = Connection(self._greeting(version), batching=self._batching)
        self._socket = connect(host, port)
        self.read_ns = self._written_ns = time.monotonic_ns()
        self._pinged_ns: int | None = None  # when we asked for the sign of life that is still to come

    def _greeting(self, version: int) -> Connect:
        limits = {Property.RECEIVE_MAXIMUM: RECEIVE_MAXIMUM, Property.MAXIMUM_PACKET_SIZE: MAX_PACKET_BYTES}
        user, password = self._url.username, self._url.password
        return Connect(
            client_id=f"crescendo{secrets.token_hex(6)}",  # short and plain enough for any MQTT 3.1.1 server
            version=version,
            keep_alive_s=KEEP_ALIVE_S,
            user=None if user is None else unquote(user),
            password=None if user is None else unquote(password or "").encode(),
            properties=limits if version == V5 else NO_PROPERTIES,
        )

    def fileno(self) -> int:
        return self._socket.fileno()

    def flush(self) -> bool:
        outgoing = self._connection.outgoing
        if not outgoing or self.closed is not None:
            return True
        try:
            done = flush(self._socket, outgoing)
        except PeerError as err:
            self._fail(str(err))
            return True
        self._written_ns = time.monotonic_ns()
        return done

    def keep_alive(self, now_ns: int) -> None:
        """Only a question makes an idle MQTT server speak, so silence counts from an unanswered one."""
        if self.closed is not None:
            return
        limit_ns = (self._connection.terms.keep_alive_s or KEEP_ALIVE_S) * _NS_PER_S
        if self._pinged_ns is not None:
            if now_ns - self._pinged_ns > limit_ns:
                self._fail(f"the system has been silent for {(now_ns - self.read_ns) / _NS_PER_S:.0f} s")
        elif self.ready and now_ns - min(self.read_ns, self._written_ns) > limit_ns // 2:
            self._ping()

    def close(self) -> None:
        if self.closed is None:
            self._connection.disconnect()
            self.flush()
            self.closed = "closed by us"
        shut(self._socket)

    @property
    def _holds_back(self) -> bool:
        """Whether what arrives must wait, because nobody records it yet."""
        return False

    def _ping(self) -> None:
        self._pinged_ns = time.monotonic_ns()
        self._connection.ping()
        self.flush()

    def _events(self) -> Iterator[Event]:
        """Read once; yield what it meant."""
        if self.closed is not None or (self._holds_back and self._connection.undecoded_bytes > _HELD_BYTES):
            return
        try:
            count = fill(self._socket, self._connection.receive_buffer())
            if count is None:
                return
            if count == 0:
                raise PeerError("the system closed the connection")
            self.read_ns = time.monotonic_ns()
            self._pinged_ns = None
            self._connection.received(count)
            while self.closed is None and not self._holds_back and (event := self._connection.next_event()) is not None:
                if not self._handle_common(event):
                    yield event
        except PeerError as err:
            if not self._falls_back():
                self._fail(str(err))
            return
        self.flush()

    def _falls_back(self) -> bool:
        """Ask once more in MQTT 3.1.1; False when there is nothing more to try.

        A server that does not know MQTT 5 should say so; RabbitMQ 3.10 hangs up without a word.
        """
        if not self._may_fall_back:
            return False
        self._may_fall_back = False
        shut(self._socket)
        try:
            self._dial(V3)
        except PeerError:
            return False
        return True

    def _handle_common(self, event: Event) -> bool:
        match event:
            case Connected():
                self._may_fall_back = False
                self._enter()
            case Refused(code=Reason.UNSUPPORTED_VERSION) if self._falls_back():
                pass
            case Refused(reason=reason):
                self._fail(f"the system refused the connection: {reason}")
            case Closed(error=error):
                self._fail(f"the system closed the connection: {error or 'no reason given'}")
            case _:
                return False
        return True

    def _fail(self, reason: str) -> None:
        self.closed = reason
        self.ready = False
        shut(self._socket)

    def _enter(self) -> None:
        """The server let us in."""
        raise NotImplementedError


class MqttSender(_Client):
    """A sending channel."""

    def __init__(self, url: str, group: Group, *, batching: bool = True, version: int | None = None) -> None:
        self.batched = 0
        super().__init__(url, group, batching=batching, version=version)

    def _dial(self, version: int) -> None:
        self._batch = PublishBatch(
            topic=self._group.destination, body_length=self._group.size, qos=self._qos, version=version
        )
        self.capacity = self._batch.capacity
        self.stamps = stamps_of(self._batch.bodies)
        super()._dial(version)

    def room(self) -> int:
        if not self.ready or self._connection.outgoing:
            return 0
        return min(self._connection.window.room, self.capacity) if self._qos else self.capacity

    def send(self, count: int) -> None:
        if self._batching:
            self._connection.publish(self._batch, count)
            self.batched += count
        else:
            for body in self._batch.bodies[:count]:
                self._connection.publish_one(self._group.destination, body.tobytes(), qos=self._qos)
        self.flush()

    def pump(self) -> list[Outcome]:
        """Messages are all that takes numbers on this connection, so their numbers are their sequence numbers."""
        outcomes: list[Outcome] = []
        for event in self._events():
            if isinstance(event, Acknowledged):
                settlement = Settlement.ACCEPTED if event.code < FAILURE else Settlement.REJECTED
                for first, last in event.ranges:
                    # Acknowledgements come one by one; what is consecutive becomes one outcome.
                    before = outcomes[-1] if outcomes else None
                    if before is not None and before.last_seq + 1 == first and before.settlement == settlement:
                        outcomes[-1] = Outcome(before.first_seq, last, settlement)
                    else:
                        outcomes.append(Outcome(first, last, settlement))
        return outcomes

    def _enter(self) -> None:
        terms, length = self._connection.terms, self._batch.packet_length
        if length > terms.max_packet_bytes:
            self._fail(f"the system takes packets of at most {terms.max_packet_bytes} bytes; these have {length}")
        elif self._qos > terms.maximum_qos:
            self._fail(f"at-least-once needs QoS {self._qos}, and the system takes at most QoS {terms.maximum_qos}")
        else:
            self.ready = True


class MqttReceiver(_Client):
    """A receiving channel. It is subscribed when it is ready; what comes before `begin` waits."""

    def __init__(self, url: str, group: Group, *, batching: bool = True, version: int | None = None) -> None:
        self._begun = False
        self._filter = group.destination if group.is_topic else shared(SHARE_NAME, group.destination)
        fault = filter_fault(self._filter)
        if fault is not None:
            raise ConfigError(f"address {group.address!r}: {fault}")
        super().__init__(url, group, batching=batching, version=version)

    def begin(self) -> None:
        self._begun = True
        if self.closed is None:
            self._ping()  # the answer wakes whoever watches the socket, also when all that waits was read before

    def pump(self) -> Iterator[Arrived]:
        taken: dict[int, list[Ids]] = defaultdict(list)
        for event in self._events():
            if isinstance(event, Deliveries):
                yield Arrived(event.bodies, event.redelivered, event.batched)
                if event.qos:
                    taken[event.qos].append(event.ids)
            elif isinstance(event, Subscribed):
                self._subscribed(event)
        if taken and self.closed is None:
            for qos, ids in taken.items():
                self._connection.acknowledge(ids[0] if len(ids) == 1 else np.concatenate(ids), qos)
            self.flush()

    @property
    def _holds_back(self) -> bool:
        return self.ready and not self._begun

    def _enter(self) -> None:
        connection, group = self._connection, self._group
        if not group.is_topic and not (connection.version == V5 and connection.terms.shared_available):
            spoken = "MQTT 5 without" if connection.version == V5 else "MQTT 3.1.1, which has no"
            self._fail(
                f"the system speaks {spoken} shared subscriptions, so receivers cannot share {group.address}; "
                f"write topic://{group.destination}, where every receiver gets every message"
            )
            return
        self._connection.subscribe([Filter(self._filter, self._qos, retain_handling=_NO_RETAINED)])

    def _subscribed(self, event: Subscribed) -> None:
        code = event.codes[0]
        if code >= FAILURE:
            self._fail(f"the system refused the subscription to {self._filter}: {in_words(code, event.reason)}")
        elif code < self._qos:
            self._fail(f"at-least-once needs QoS {self._qos}, and the system granted QoS {code} on {self._filter}")
        else:
            self.ready = True
