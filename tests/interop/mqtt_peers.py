"""MQTT brokers on free loopback ports, paho clients in threads, and our own channels driven by hand."""

import contextlib
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from crescendo.load.protocols.interfaces import SettledMessages
from crescendo.load.protocols.mqtt import MqttSender
from crescendo.wire.mqtt.connection import Connection
from crescendo.wire.mqtt.events import Acknowledged, Deliveries
from crescendo.wire.mqtt.packet_types import V3, V5
from crescendo.wire.mqtt.packets import Connect
from pumping import TIMEOUT_S, pumped, ready

PAHO_VERSIONS = {V3: MQTTProtocolVersion.MQTTv311, V5: MQTTProtocolVersion.MQTTv5}
FOREIGN_WINDOW = 500  # messages in flight to or from paho, which is slow and keeps them all in memory


def payloads_of(count: int, size: int) -> list[bytes]:
    return [number.to_bytes(8, "big").ljust(size, b".")[:size] for number in range(count)]


# -- brokers ---------------------------------------------------------------------------------------------------------


class Broker(NamedTuple):
    url: str
    pid: int


@contextlib.contextmanager
def mosquitto(directory: Path, *lines: str) -> Iterator["Broker"]:
    """A mosquitto with these lines in its configuration, or by default one without limits."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = int(probe.getsockname()[1])
    configuration = directory / "mosquitto.conf"
    limits = ("max_inflight_messages 0", "max_queued_messages 0", "allow_anonymous true")
    settings = [f"listener {port} 127.0.0.1", "user root", "log_dest none", *(lines or limits)]
    configuration.write_text("\n".join(settings) + "\n")
    process = subprocess.Popen(["mosquitto", "-c", configuration])
    try:
        _await_listener(port)
        yield Broker(f"mqtt://127.0.0.1:{port}", process.pid)
    finally:
        process.terminate()
        process.wait(10)


def _await_listener(port: int) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert time.monotonic() < deadline_s, "the broker does not listen"
            time.sleep(0.05)
        else:
            return


# -- paho ------------------------------------------------------------------------------------------------------------


class Foreign:
    """A paho client with its own thread."""

    def __init__(self, url: str, version: int) -> None:
        parts = urlsplit(url)
        self.received: list[bytes] = []
        self.messages: list[paho.MQTTMessage] = []
        self._arrived = threading.Condition()
        self._subscribed = threading.Event()
        self._connected = threading.Event()
        self.client = paho.Client(CallbackAPIVersion.VERSION2, protocol=PAHO_VERSIONS[version])
        self.client.max_inflight_messages_set(FOREIGN_WINDOW)
        if parts.username is not None:
            self.client.username_pw_set(unquote(parts.username), unquote(parts.password or ""))
        self.client.on_connect = lambda *_: self._connected.set()
        self.client.on_subscribe = lambda *_: self._subscribed.set()
        self.client.on_message = self._keep
        self.client.connect("127.0.0.1", parts.port or 1883)
        self.client.loop_start()
        assert self._connected.wait(TIMEOUT_S)

    def __enter__(self) -> "Foreign":
        return self

    def __exit__(self, *_: object) -> None:
        self.client.disconnect()
        self.client.loop_stop()

    def _keep(self, _client: Any, _data: Any, message: paho.MQTTMessage) -> None:
        with self._arrived:
            self.messages.append(message)
            self.received.append(bytes(message.payload))
            self._arrived.notify_all()

    def subscribe(self, topic: str, qos: int) -> None:
        self._subscribed.clear()
        self.client.subscribe(topic, qos)
        assert self._subscribed.wait(TIMEOUT_S)

    def send(self, topic: str, payloads: list[bytes], qos: int, *, retain: bool = False) -> None:
        """Publish all; returns when each is acknowledged by the broker, or at QoS 0 written."""
        infos = [self.client.publish(topic, payload, qos, retain) for payload in payloads]
        for info in infos:
            info.wait_for_publish(TIMEOUT_S)
            assert info.is_published()

    def wait_for(self, count: int) -> None:
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.received) >= count, TIMEOUT_S), len(self.received)


# -- ours ------------------------------------------------------------------------------------------------------------


def refusal_of(channel: Any) -> str:
    """Why the channel ended before it was ready."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while channel.closed is None:
        assert time.monotonic() < deadline_s
        assert not channel.ready
        channel.flush()
        list(channel.pump())
        time.sleep(0.005)
    return str(channel.closed)


class Sending:
    """Our sender with payloads to send, one step at a time."""

    def __init__(self, channel: MqttSender, payloads: list[bytes], *, settled: bool) -> None:
        self.channel = ready(channel)
        self.outcomes: list[SettledMessages] = []
        self._payloads = payloads
        self._settled = settled
        self._sent = 0
        self._done = 0

    @property
    def finished(self) -> bool:
        done = self._sent if self._settled else self._done
        return done == len(self._payloads) and self.channel.flush()

    def step(self, wait_s: float = 0.0, limit: int = 1 << 30) -> None:
        count = min(self.channel.room(), len(self._payloads) - self._sent, limit)
        rows = self.channel._batch.bodies  # the engine writes stamps only; here whole payloads are compared
        for row, payload in zip(rows, self._payloads[self._sent : self._sent + count], strict=False):
            row[:] = memoryview(payload)
        if count:
            self.channel.send(self._sent, count)
            self._sent += count
        for outcome in pumped(self.channel, wait_s):
            self.outcomes.append(outcome)
            self._done += len(outcome.seqs)

    def run(self) -> list[SettledMessages]:
        deadline_s = time.monotonic() + TIMEOUT_S
        while not self.finished:
            assert time.monotonic() < deadline_s, f"{self._sent} sent, {self._done} settled"
            self.step(0.005)
        return self.outcomes


class Direct:
    """Our connection on a blocking socket, for what the load does not use: persistent sessions, retained messages."""

    def __init__(self, url: str, connect: Connect) -> None:
        self._socket = socket.create_connection(("127.0.0.1", urlsplit(url).port or 1883), TIMEOUT_S)
        self.connection = Connection(connect)
        self.bodies: list[bytes] = []
        self.acknowledged: list[int] = []
        self.retained: list[bool] = []

    def __enter__(self) -> "Direct":
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.disconnect()
        self._write()
        self._socket.close()

    def _write(self) -> None:
        while self.connection.outgoing:
            self._socket.sendall(self.connection.outgoing.popleft())

    def until(self, kind: type[Any] | None = None, *, bodies: int = 0, acknowledged: int = 0) -> Any:
        """Exchange packets until an event of this kind, or this many messages or acknowledgements, have arrived."""
        while True:
            self._write()
            while (event := self.connection.next_event()) is not None:
                if isinstance(event, Deliveries):
                    self.connection.acknowledge(event.ids, event.qos)
                    self.bodies += [body.tobytes() for body in event.bodies]
                    self.retained += [event.retain] * len(event.bodies)
                elif isinstance(event, Acknowledged):
                    self.acknowledged += [n for first, last in event.ranges for n in range(first, last + 1)]
                if kind is not None and isinstance(event, kind):
                    return event
            self._write()
            if kind is None and len(self.bodies) >= bodies and len(self.acknowledged) >= acknowledged:
                return None
            count = self._socket.recv_into(self.connection.receive_buffer())
            assert count, "the broker closed the connection"
            self.connection.received(count)
