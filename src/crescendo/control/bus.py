"""How do notes travel?

A thin MQTT 3.1.1 client: a background thread keeps the connection, notes go out by `publish` and come in through a
queue. A lost connection stays lost: whoever was cut off cannot know what was missed, so there is no reconnecting
behind the owner's back. Understands notes, but not what they mean.
"""

import contextlib
import queue
import socket
import threading
import time
from typing import Any
from urllib.parse import unquote, urlsplit

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.reasoncodes import ReasonCode

from crescendo.control.notes import Note, decode_note, encode_note
from crescendo.model.address import PORTS
from crescendo.model.errors import ConfigError, PeerError
from crescendo.model.experiment import redact_url_text

KEEPALIVE_S = 3
"""A broker publishes the last will at once when the socket closes, and after 1.5 times this when it falls silent."""

FLUSH_TIMEOUT_S = 2.0
_DEFAULT_PORT = PORTS["mqtt"]


class Bus:
    """One connection to the control broker. `publish` and `next` may be called from any thread."""

    def __init__(
        self, url: str, client_id: str, subscriptions: tuple[str, ...], will: tuple[str, bytes] | None = None
    ) -> None:
        self._shown_url = redact_url_text(url)
        self._host, self._port, user, password = _parts_of(url)
        self._subscriptions = subscriptions
        self._notes: queue.SimpleQueue[Note | None] = queue.SimpleQueue()
        self._pending: list[mqtt.MQTTMessageInfo] = []
        self._pending_lock = threading.Lock()
        self._ready = threading.Event()
        self._disconnected = threading.Event()
        self._refusal = ""
        self.rejected = 0  # arrivals that were no notes
        self._client = mqtt.Client(
            CallbackAPIVersion.VERSION2, client_id, protocol=mqtt.MQTTv311, reconnect_on_failure=False
        )
        if user is not None:
            self._client.username_pw_set(user, password)
        if will is not None:
            self._client.will_set(will[0], will[1], qos=1)
        self._client.on_socket_open = _send_at_once
        self._client.on_connect = self._on_connect
        self._client.on_subscribe = self._on_subscribe
        self._client.on_message = self._on_message
        self._client.on_disconnect = self._on_disconnect

    @property
    def connected(self) -> bool:
        return self._ready.is_set() and not self._disconnected.is_set() and not self._refusal

    def connect(self, timeout_s: float = 5.0) -> None:
        """Return when every subscription is in force; otherwise say in one sentence why not."""
        deadline = time.monotonic() + timeout_s
        self._client.connect_timeout = timeout_s
        try:
            self._client.connect(self._host, self._port, KEEPALIVE_S)
        except OSError as err:
            raise ConfigError(f"the control broker {self._shown_url} cannot be reached: {err.strerror or err}") from err
        self._client.loop_start()
        while not self._ready.wait(0.05):
            if self._disconnected.is_set() or time.monotonic() > deadline:
                break
        if self.connected:
            return
        self.close()
        if self._refusal:
            raise ConfigError(f"the control broker {self._shown_url} refused us: {self._refusal}")
        raise PeerError(f"{self._shown_url} does not answer as an MQTT broker")

    def publish(self, topic: str, note: Note, qos: int) -> None:
        """Hand a note to the network thread. After the connection was lost this does nothing; see `connected`."""
        content = encode_note(note)
        if not self.connected:
            return
        info = self._client.publish(topic, content, qos)
        with self._pending_lock:
            self._pending = [one for one in (*self._pending, info) if not _is_settled(one)]

    def next(self, timeout_s: float = 0.0) -> Note | None:
        """The next note, or None when none came in time or the connection broke meanwhile."""
        try:
            return self._notes.get(timeout=timeout_s) if timeout_s > 0 else self._notes.get_nowait()
        except queue.Empty:
            return None

    def close(self) -> None:
        """Send what is still to be sent, then disconnect properly: no last will."""
        deadline = time.monotonic() + FLUSH_TIMEOUT_S
        with self._pending_lock:
            pending, self._pending = self._pending, []
        for info in pending:
            while self.connected and not _is_settled(info) and time.monotonic() < deadline:
                with contextlib.suppress(RuntimeError):
                    info.wait_for_publish(0.1)
        self._client.disconnect()
        # paho forgets its thread when that ends; where both happen at once there is nothing left to join.
        with contextlib.suppress(AttributeError):
            self._client.loop_stop()
        self._disconnected.set()

    def _on_connect(self, client: mqtt.Client, userdata: Any, flags: Any, reason: ReasonCode, properties: Any) -> None:
        if reason.is_failure:
            self._refuse(str(reason).lower())
        elif self._subscriptions:
            client.subscribe([(topic, 1) for topic in self._subscriptions])
        else:
            self._ready.set()

    def _on_subscribe(
        self, client: mqtt.Client, userdata: Any, mid: int, reasons: list[ReasonCode], properties: Any
    ) -> None:
        if any(reason.is_failure for reason in reasons):
            self._refuse(f"subscribing to {', '.join(self._subscriptions)} is not allowed")
        self._ready.set()

    def _on_message(self, client: mqtt.Client, userdata: Any, message: mqtt.MQTTMessage) -> None:
        try:
            self._notes.put(decode_note(bytes(message.payload)))
        except PeerError:
            self.rejected += 1

    def _on_disconnect(
        self, client: mqtt.Client, userdata: Any, flags: Any, reason: ReasonCode, properties: Any
    ) -> None:
        self._disconnected.set()
        self._notes.put(None)  # wakes whoever waits in next()

    def _refuse(self, reason: str) -> None:
        self._refusal = reason
        self._ready.set()


def _send_at_once(client: mqtt.Client, userdata: Any, sock: Any) -> None:
    # A note and the acknowledgement before it are two small writes: Nagle would hold the second back for 40 ms.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _is_settled(info: mqtt.MQTTMessageInfo) -> bool:
    """Whether nothing more will become of it: it was delivered, or it never will be."""
    try:
        return info.is_published()
    except (RuntimeError, ValueError):
        return True


def _parts_of(url: str) -> tuple[str, int, str | None, str | None]:
    wanted = "mqtt://[user:password@]host[:port]"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as err:
        raise ConfigError(f"control URL {redact_url_text(url)!r}: {err}; expected {wanted}") from err
    if parts.scheme != "mqtt" or not parts.hostname or parts.path.strip("/") or parts.query or port == 0:
        raise ConfigError(f"control URL {redact_url_text(url)!r} should read {wanted}")
    user = None if parts.username is None else unquote(parts.username)
    password = None if parts.password is None else unquote(parts.password)
    return parts.hostname, port or _DEFAULT_PORT, user, password
