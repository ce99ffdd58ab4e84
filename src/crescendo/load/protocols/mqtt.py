"""How does the load engine speak MQTT?

A socket and a sans-IO connection make a channel. It tries MQTT 5 first, and MQTT 3.1.1 with a system that refuses it,
unless the address or the URL of the system chooses the version.
At-most-once is QoS 0, at-least-once is QoS 1. MQTT has only topics: `topic://x` is a subscription for each receiver,
`queue://x` one that all receivers share, if the system supports that. A protocol violation by the system closes this
channel, with its reason, and no other one.
"""

import secrets
import time
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from crescendo.load.protocols.base_channel import UNLIMITED, BaseChannel, BaseSendChannel, prefetch_of
from crescendo.load.protocols.interfaces import ReceivedMessages, SettledMessages
from crescendo.model.errors import ConfigError, PeerError
from crescendo.model.protocols import MQTT
from crescendo.model.urls import parse_url
from crescendo.model.workload import Group, Settle
from crescendo.record.schema import Settlement
from crescendo.wire.mqtt.batch import Ids, PublishBatch
from crescendo.wire.mqtt.connection import MAX_PACKET_BYTES, Connection
from crescendo.wire.mqtt.events import Acknowledged, Closed, Connected, Deliveries, Event, Refused, Subscribed
from crescendo.wire.mqtt.packet_types import V3, V5
from crescendo.wire.mqtt.packets import Connect, Filter
from crescendo.wire.mqtt.properties import NO_PROPERTIES, Property
from crescendo.wire.mqtt.reasons import FAILURE, Reason, reason_text
from crescendo.wire.mqtt.topics import filter_fault, shared

KEEP_ALIVE_S = 10
RECEIVE_MAXIMUM = 4000
SHARE_NAME = "crescendo"
_MAX_HELD_BYTES = 128 * 1024
_VERSIONS = {"3.1.1": V3, "5": V5}
_NO_RETAINED = 2  # retained messages are older than the run
_NS_PER_S = 10**9


class _Client(BaseChannel):
    """One connection, in either direction."""

    _connection: Connection

    def __init__(self, url: str, group: Group, *, batching: bool, version: int | None) -> None:
        super().__init__(url, group, batching=batching)
        self._keep_alive_s = group.connection.heartbeat_ms(KEEP_ALIVE_S * 1000) // 1000
        self._qos = list(Settle).index(group.settle)
        chosen = group.target.options.version or parse_url(url).options.get("version")
        version = version or _VERSIONS.get(chosen or "")
        self._may_fall_back = version is None
        self._version = version or V5

    def _connect(self, version: int) -> None:
        self._version = version
        self._dial(Connection(self._connect_packet(version), batching=self._batching))
        self._accepted = False
        self._pinged_ns: int | None = None  # when we sent a ping that is not answered yet

    def _connect_packet(self, version: int) -> Connect:
        most = prefetch_of(self._group, RECEIVE_MAXIMUM)
        terms = {Property.RECEIVE_MAXIMUM: most, Property.MAXIMUM_PACKET_SIZE: MAX_PACKET_BYTES}
        if self._subscription_name is not None:
            terms[Property.SESSION_EXPIRY_S] = MQTT.subscription_expiry_s or 0
        return Connect(
            # Short and plain enough for any MQTT 3.1.1 server; a persistent session belongs to its client id.
            client_id=f"crescendo{secrets.token_hex(6)}"
            if self._subscription_name is None
            else f"crescendo-{self._subscription_name}",
            clean=self._subscription_name is None,
            version=version,
            keep_alive_s=self._keep_alive_s,
            user=self._user,
            password=None if self._user is None else self._password.encode(),
            properties=terms if version == V5 else NO_PROPERTIES,
        )

    def keep_alive(self, now_ns: int) -> None:
        """An idle MQTT server answers pings and sends nothing else, so silence counts from an unanswered ping."""
        if self.closed is not None:
            return
        if self._pinged_ns is not None and self.read_ns > self._pinged_ns:
            self._pinged_ns = None
        if self._pinged_ns is not None:
            if now_ns - self._pinged_ns > self._idle_timeout_ns():
                self._fail(f"the system has been silent for {(now_ns - self.read_ns) / _NS_PER_S:.0f} s")
        elif self.ready and now_ns - min(self.read_ns, self._written_ns) > self._heartbeat_interval_ns():
            self._ping()

    def _send_close(self) -> None:
        self._connection.disconnect()

    def _idle_timeout_ns(self) -> int:
        return int(self._connection.limits.keep_alive_s or self._keep_alive_s) * _NS_PER_S

    def _heartbeat_interval_ns(self) -> int:
        return self._idle_timeout_ns() // 2

    def _ping(self) -> None:
        self._pinged_ns = time.monotonic_ns()
        self._connection.ping()
        self.flush()

    def _on_connection_error(self, reason: str) -> None:
        if not self._retry_as_v3():
            self._fail(reason if self._accepted else f"{reason}; is this an MQTT port?")

    def _retry_as_v3(self) -> bool:
        """Connect again with MQTT 3.1.1; False if that was tried already.

        A server that does not know MQTT 5 should say so; RabbitMQ 3.10 closes the connection without a reply.
        """
        if not self._may_fall_back:
            return False
        self._may_fall_back = False
        refused = self._transport
        try:
            self._connect(V3)
        except PeerError:
            return False
        finally:
            refused.close()  # last: if the new socket reused its file descriptor, the engine would miss the change
        return True

    def _handle(self, event: Event) -> bool:
        match event:
            case Connected():
                self._accepted, self._may_fall_back = True, False
                self._on_connected()
            case Refused(code=Reason.UNSUPPORTED_VERSION) if self._retry_as_v3():
                pass
            case Refused(reason=reason):
                self._fail(f"the system refused the connection: {reason}")
            case Closed(error=error):
                self._fail(f"the system closed the connection{self._last_request}: {error or 'no reason given'}")
            case _:
                return False
        return True

    @property
    def _last_request(self) -> str:
        """What the system may have closed the connection for, as a part of a sentence."""
        return ""

    @abstractmethod
    def _on_connected(self) -> None:
        """Called when the server has accepted the connection."""


class MqttSender(BaseSendChannel, _Client):
    """A sending channel."""

    def __init__(self, url: str, group: Group, *, batching: bool = True, version: int | None = None) -> None:
        super().__init__(url, group, batching=batching, version=version)
        self._connect(self._version)

    @property
    def _message_properties(self) -> dict[Property, Any]:
        """The properties of each message in MQTT 5."""
        properties: dict[Property, Any] = {}
        if self._group.target.options.ttl is not None:
            properties[Property.MESSAGE_EXPIRY_S] = max(self._group.target.options.ttl // _NS_PER_S, 1)
        if self._group.properties:
            properties[Property.USER_PROPERTY] = list(self._group.properties.items())
        return properties

    def _connect(self, version: int) -> None:
        self._version = version
        self._batches.clear()  # the two versions encode messages differently
        self.resize(self._size)
        super()._connect(version)

    def room(self) -> int:
        if not self._is_writable:
            return 0
        return min(self._connection.window.room, self.capacity) if self._qos else self.capacity

    def _new_batch(self, size: int) -> PublishBatch:
        return PublishBatch(
            topic=self._group.destination,
            body_length=size,
            qos=self._qos,
            version=self._version,
            retain=bool(self._group.target.options.retained),
            properties=self._message_properties if self._version == V5 else NO_PROPERTIES,
        )

    def _send_batch(self, count: int, position: int) -> None:
        self._connection.publish(self._batch, count)

    def _prepare(self, count: int, position: int) -> memoryview:
        return self._connection.prepared(self._batch, count)

    def _on_prepared_sent(self, position: int, sent_ns: list[int]) -> None:
        self._connection.published(self._batch, len(sent_ns))

    def _send_one(self, body: bytes, position: int) -> None:
        self._connection.publish_one(
            self._group.destination,
            body,
            qos=self._qos,
            retain=bool(self._group.target.options.retained),
            properties=self._message_properties if self._version == V5 else NO_PROPERTIES,
        )

    def pump(self) -> list[SettledMessages]:
        """Only messages are numbered on this connection, so their numbers are their positions."""
        found: dict[Settlement, list[tuple[int, int]]] = {}
        for event in self._events():
            if isinstance(event, Acknowledged):
                settlement = Settlement.ACCEPTED if event.code < FAILURE else Settlement.REJECTED
                for first, last in event.ranges:
                    _extend(found.setdefault(settlement, []), first, last)
        return [
            outcome
            for settlement, ranges in found.items()
            for outcome in self._settled_ranges(ranges, settlement)
        ]  # fmt: skip

    def _on_connected(self) -> None:
        terms, length = self._connection.limits, self._batch.packet_length
        if self._message_properties and self._version != V5:
            self._fail("the system speaks MQTT 3.1.1, which has neither properties nor a time to live; leave them out")
        elif length > terms.max_packet_bytes:
            self._fail(f"the system accepts packets of at most {terms.max_packet_bytes} bytes; these have {length}")
        elif self._qos > terms.maximum_qos:
            self._fail(
                f"{self._group.settle} needs QoS {self._qos}; the system accepts at most QoS {terms.maximum_qos}"
            )
        else:
            self.ready = True


def _extend(ranges: list[tuple[int, int]], first: int, last: int) -> None:
    """Acknowledgements arrive one by one; consecutive ones become one range."""
    if ranges and ranges[-1][1] + 1 == first:
        ranges[-1] = (ranges[-1][0], last)
    else:
        ranges.append((first, last))


class MqttReceiver(_Client):
    """A receiving channel. It is subscribed when it is ready; messages that arrive before `begin` wait."""

    def __init__(self, url: str, group: Group, *, batching: bool = True, version: int | None = None) -> None:
        self._begun = False
        self._unacknowledged: dict[int, list[Ids]] = defaultdict(list)  # QoS -> packet ids
        self._filter = group.destination if group.is_topic else shared(SHARE_NAME, group.destination)
        fault = filter_fault(self._filter)
        if fault is not None:
            raise ConfigError(f"address {group.address!r}: {fault}")
        super().__init__(url, group, batching=batching, version=version)
        self.window = 0 if self._qos else UNLIMITED  # servers have windows of their own and do not announce them
        self._connect(self._version)

    def begin(self) -> None:
        self._begun = True
        if self.closed is None:
            self._ping()  # the answer wakes the engine even if all waiting messages were read before

    def pump(self) -> Iterator[ReceivedMessages]:
        if self._is_paused and self._connection.undecoded_bytes > _MAX_HELD_BYTES:
            return
        for event in self._events():
            if isinstance(event, Deliveries):
                yield ReceivedMessages(event.bodies, event.redelivered, event.batched)
                if event.qos:
                    self._unacknowledged[event.qos].append(event.ids)
            elif isinstance(event, Subscribed):
                self._subscribed(event)

    def settle(self) -> None:
        if self._unacknowledged and self.closed is None:
            for qos, ids in self._unacknowledged.items():
                self._connection.acknowledge(ids[0] if len(ids) == 1 else np.concatenate(ids), qos)
            self._unacknowledged.clear()
            self.flush()

    @property
    def _is_paused(self) -> bool:
        return self.ready and not self._begun

    @property
    def _last_request(self) -> str:
        return "" if self.ready else f" after SUBSCRIBE {self._filter}"

    def _on_connected(self) -> None:
        connection, group = self._connection, self._group
        if not group.is_topic and not (connection.version == V5 and connection.limits.shared_available):
            offer = "MQTT 5 without" if connection.version == V5 else "MQTT 3.1.1, which has no"
            self._fail(
                f"the system speaks {offer} shared subscriptions, so receivers cannot share {group.address}; "
                f"write topic://{group.destination}, where every receiver gets every message"
            )
            return
        handling = 0 if group.target.options.retained else _NO_RETAINED
        self._connection.subscribe([Filter(self._filter, self._qos, retain_handling=handling)])

    def _subscribed(self, event: Subscribed) -> None:
        code = event.codes[0]
        if code >= FAILURE:
            self._fail(f"the system refused the subscription to {self._filter}: {reason_text(code, event.reason)}")
        elif code < self._qos:
            self._fail(f"{self._group.settle} needs QoS {self._qos}; the system granted QoS {code} on {self._filter}")
        else:
            self.ready = True
