"""How do notes travel?

A thin MQTT 3.1.1 client: a background thread owns the connection, `publish` sends notes and a queue holds the incoming
ones. A lost connection stays lost: a client that was cut off cannot know what it missed, so the bus never reconnects
by itself. Decodes notes, but does not interpret them.
"""

import contextlib
import queue
import socket
import threading
import time
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.reasoncodes import ReasonCode

from crescendo.control.notes import Note, decode_note, encode_note
from crescendo.model.errors import ConfigError, PeerError
from crescendo.model.protocols import MQTT
from crescendo.model.urls import parse_url, redact_url_text

KEEPALIVE_S = 3
"""The broker publishes the last will at once when the socket closes, or after 1.5 times this without traffic."""

FLUSH_TIMEOUT_S = 2.0


class Bus:
    """One connection to the control broker. `publish` and `next` may be called from any thread."""

    def __init__(
        self, url: str, client_id: str, subscriptions: tuple[str, ...], will: tuple[str, bytes] | None = None
    ) -> None:
        self._shown_url = redact_url_text(url)
        self._host, self._port, user, password = _parse_url(url)
        self._subscriptions = subscriptions
        self._notes: queue.SimpleQueue[Note | None] = queue.SimpleQueue()
        self._pending: list[mqtt.MQTTMessageInfo] = []
        self._pending_lock = threading.Lock()
        self._ready = threading.Event()
        self._disconnected = threading.Event()
        self._refusal = ""
        self.rejected = 0  # messages that could not be decoded as notes
        self._client = mqtt.Client(
            CallbackAPIVersion.VERSION2, client_id, protocol=mqtt.MQTTv311, reconnect_on_failure=False
        )
        if user is not None:
            self._client.username_pw_set(user, password)
        if will is not None:
            self._client.will_set(will[0], will[1], qos=1)
        self._client.on_socket_open = _disable_nagle
        self._client.on_connect = self._on_connect
        self._client.on_subscribe = self._on_subscribe
        self._client.on_message = self._on_message
        self._client.on_disconnect = self._on_disconnect

    @property
    def connected(self) -> bool:
        return self._ready.is_set() and not self._disconnected.is_set() and not self._refusal

    def connect(self, timeout_s: float = 5.0) -> None:
        """Return when every subscription is active; raise with the reason otherwise."""
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
            raise ConfigError(f"the control broker {self._shown_url} refused the connection: {self._refusal}")
        raise PeerError(f"{self._shown_url} does not answer as an MQTT broker")

    def publish(self, topic: str, note: Note, qos: int) -> None:
        """Pass a note to the network thread. Does nothing once the connection is lost; see `connected`."""
        content = encode_note(note)
        if not self.connected:
            return
        info = self._client.publish(topic, content, qos)
        with self._pending_lock:
            self._pending = [one for one in (*self._pending, info) if not _is_settled(one)]

    def next(self, timeout_s: float = 0.0) -> Note | None:
        """The next note, or None on a timeout or when the connection breaks."""
        try:
            return self._notes.get(timeout=timeout_s) if timeout_s > 0 else self._notes.get_nowait()
        except queue.Empty:
            return None

    def close(self) -> None:
        """Flush pending notes, then disconnect cleanly, so that no last will is published."""
        deadline = time.monotonic() + FLUSH_TIMEOUT_S
        with self._pending_lock:
            pending, self._pending = self._pending, []
        for info in pending:
            while self.connected and not _is_settled(info) and time.monotonic() < deadline:
                with contextlib.suppress(RuntimeError):
                    info.wait_for_publish(0.1)
        self._client.disconnect()
        # paho drops the reference to its thread when the thread ends; in that race there is nothing left to join.
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
        self._notes.put(None)  # wakes a caller blocked in next()

    def _refuse(self, reason: str) -> None:
        self._refusal = reason
        self._ready.set()


def _disable_nagle(client: mqtt.Client, userdata: Any, sock: Any) -> None:
    # A note and the acknowledgement before it are two small writes: Nagle would delay the second by 40 ms.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _is_settled(info: mqtt.MQTTMessageInfo) -> bool:
    """Whether its fate is final: it was delivered, or it never will be."""
    try:
        return info.is_published()
    except (RuntimeError, ValueError):
        return True


def _parse_url(url: str) -> tuple[str, int, str | None, str | None]:
    wanted = "mqtt://[user:password@]host[:port]"
    try:
        parts = parse_url(url)
    except ValueError as err:
        raise ConfigError(f"control URL {redact_url_text(url)!r}: {err}; expected {wanted}") from err
    if parts.scheme != MQTT.scheme or not parts.host or parts.path.strip("/") or parts.options or parts.port == 0:
        raise ConfigError(f"control URL {redact_url_text(url)!r} should read {wanted}")
    return parts.host, parts.port or MQTT.port, parts.user, parts.password
