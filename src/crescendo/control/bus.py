"""How do notes travel?

A thin MQTT 3.1.1 client: a background thread owns the connection, `publish` signs and sends notes, and a bounded queue
holds the incoming ones. A message reaches that queue only if it is authentic, new, not retained and meant for this
process; everything else is dropped and counted. A lost connection stays lost: a client that was cut off cannot know
what it missed, so the bus never reconnects by itself. Decodes notes, but does not interpret them.
"""

import contextlib
import secrets
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.reasoncodes import ReasonCode

from crescendo.control.note_queue import MAX_WAITING, NoteQueue
from crescendo.control.notes import (
    EVERYBODY,
    MAX_NOTE_BYTES,
    SECRET_COMMANDS,
    Command,
    Identity,
    Note,
    NoteKind,
    NotUnderstoodError,
    decode_note,
    decode_payload,
    encode_note,
)
from crescendo.control.replay_window import LAST_COUNTER, ReplayWindows
from crescendo.control.topics import scope_of_topic
from crescendo.control.trust import TAG_BYTES, NoteScope
from crescendo.model.errors import ConfigError, PeerError
from crescendo.model.protocols import MQTT, TLS_OPTIONS, default_port
from crescendo.model.urls import Url, parse_url, redact_url_text
from crescendo.net.tls import client_context, tls_error_text, tls_from

KEEPALIVE_S = 3
"""The broker publishes the last will at once when the socket closes, or after 1.5 times this without traffic."""

FLUSH_TIMEOUT_S = 2.0
SEALED = "sealed"
"""The only key of an encrypted payload."""

ScopeOf = Callable[[str], NoteScope | None]
"""The scope of a name, or None if its notes are none of our business."""


class Bus:
    """One connection to the control broker. `publish` and `next` may be called from any thread."""

    def __init__(
        self,
        url: str,
        scopes: NoteScope | ScopeOf,
        identity: Identity,
        subscriptions: tuple[str, ...],
        will: tuple[str, Note] | None = None,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        self._shown_url = redact_url_text(url)
        parts = parse_control_url(url)
        self._host, self._port = parts.host or "", parts.port or default_port(parts.scheme)
        self._scope_of = _only(scopes) if isinstance(scopes, NoteScope) else scopes
        self._identity = identity
        self._subscriptions = subscriptions
        self._notes: NoteQueue[Note | NotUnderstoodError] = NoteQueue(max_waiting)
        self._windows = ReplayWindows()
        self._pending: list[mqtt.MQTTMessageInfo] = []
        self._lock = threading.Lock()  # of the counter and the notes under way
        self._counter = 0
        self._ready = threading.Event()
        self._disconnected = threading.Event()
        self._refusal = ""
        self.dropped: Counter[str] = Counter()  # why -> how many messages were not delivered to this process
        self._client = mqtt.Client(
            CallbackAPIVersion.VERSION2,
            # Not to be guessed: a broker disconnects the older of two clients with the same id.
            f"{identity.id[:40]}-{secrets.token_hex(8)}",
            protocol=mqtt.MQTTv311,
            reconnect_on_failure=False,
        )
        if parts.user is not None:
            self._client.username_pw_set(parts.user, parts.password)
        self._tls = _tls_context(parts)
        if self._tls is not None:
            self._client.tls_set_context(self._tls)
        if will is not None:
            self._client.will_set(will[0], self._sign(*will, LAST_COUNTER), qos=1)
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
            if self._tls is not None:
                _check_tls(self._tls, self._host, self._port, timeout_s)
            self._client.connect(self._host, self._port, KEEPALIVE_S)
        except ssl.SSLError as err:
            raise ConfigError(f"the control broker {self._shown_url}: {tls_error_text(err)}") from err
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
        """Sign a note and pass it to the network thread. Does nothing once the connection is lost; see `connected`."""
        with self._lock:  # counters leave in their order
            self._counter += 1
            content = self._sign(topic, note, self._counter)
            if not self.connected:
                return
            info = self._client.publish(topic, content, qos)
            self._pending = [one for one in (*self._pending, info) if not _is_settled(one)]

    def next(self, timeout_s: float = 0.0) -> Note | NotUnderstoodError | None:
        """The next note, or None on a timeout or when the connection breaks."""
        return self._notes.get(timeout_s)

    @property
    def waiting(self) -> int:
        """How many notes wait to be taken."""
        return len(self._notes)

    def subscribe(self, topic: str) -> None:
        self._client.subscribe(topic, 1)

    def unsubscribe(self, topic: str) -> None:
        self._client.unsubscribe(topic)

    def close(self) -> None:
        """Flush pending notes, then disconnect cleanly, so that no last will is published."""
        deadline = time.monotonic() + FLUSH_TIMEOUT_S
        with self._lock:
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
        if any(reason.is_failure for reason in reasons) and not self._ready.is_set():
            self._refuse(f"subscribing to {', '.join(self._subscriptions)} is not allowed")
        self._ready.set()

    def _on_message(self, client: mqtt.Client, userdata: Any, message: mqtt.MQTTMessage) -> None:
        reason = self._take(message.topic, bytes(message.payload), retained=message.retain)
        if reason:
            self.dropped[reason] += 1

    def _take(self, topic: str, content: bytes, *, retained: bool) -> str:
        """Put a message into the queue if it is a note for us; otherwise say why not. Cheap checks come first."""
        if retained:
            return "retained"
        if len(content) > MAX_NOTE_BYTES + TAG_BYTES:
            return "too large"
        scope = self._scope_of(scope_of_topic(topic))
        if scope is None:
            return "of another run"
        body, tag = content[:-TAG_BYTES], content[-TAG_BYTES:]
        if not scope.is_authentic(topic, body, tag):
            return "not authentic"
        note: Note | NotUnderstoodError
        try:
            note, counter = decode_note(body)
        except NotUnderstoodError as err:
            note, counter = err, err.counter
        except PeerError:
            return "malformed"
        if not self._windows.is_new(scope.name, note.sender.id, note.sender.session, counter):
            return "repeated"
        if note.to not in {EVERYBODY, self._identity.session}:
            return ""  # not a fault: somebody else was asked, or is answered
        if isinstance(note, Note) and SEALED in note.payload:
            try:
                note = _unsealed(note, scope)
            except PeerError as err:
                note = NotUnderstoodError(str(err), note, counter)
        if isinstance(note, Note):
            note = msgspec.structs.replace(note, scope=scope.name)
        is_report = isinstance(note, Note) and (note.kind, note.command) == (NoteKind.NOTIFICATION, Command.STATS)
        replaces = (scope.name, note.sender.id, note.sender.session) if is_report else None
        return "" if self._notes.put(note, replaces) else "no room in the queue"

    def _sign(self, topic: str, note: Note, counter: int) -> bytes:
        scope = self._scope_of(scope_of_topic(topic))
        if scope is None:
            raise ConfigError(f"{topic} belongs to a run whose key is not known here")
        if note.kind is NoteKind.REQUEST and note.command in SECRET_COMMANDS:
            sealed = scope.encrypt(msgspec.msgpack.encode(note.payload))
            note = msgspec.structs.replace(note, payload={SEALED: sealed})
        body = encode_note(note, counter)
        return body + scope.tag(topic, body)

    def _on_disconnect(
        self, client: mqtt.Client, userdata: Any, flags: Any, reason: ReasonCode, properties: Any
    ) -> None:
        self._disconnected.set()
        self._notes.wake()

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


def _only(scope: NoteScope) -> ScopeOf:
    return lambda name: scope if name == scope.name else None


def _unsealed(note: Note, scope: NoteScope) -> Note:
    sealed = note.payload[SEALED]
    if not isinstance(sealed, bytes):
        raise PeerError("an encrypted payload is a string of bytes")
    return msgspec.structs.replace(note, payload=decode_payload(scope.decrypt(sealed)))


def _check_tls(context: ssl.SSLContext, host: str, port: int, timeout_s: float) -> None:
    """A handshake of our own first: paho does not close a socket whose handshake failed."""
    with (
        socket.create_connection((host, port), timeout_s) as plain,
        context.wrap_socket(plain, server_hostname=host),
    ):
        pass


def _tls_context(parts: Url) -> ssl.SSLContext | None:
    tls = tls_from(parts.scheme, parts.options)
    if tls is None:
        return None
    if tls.server_name is not None:
        raise ConfigError("server_name: the control broker must present a certificate for the host of its URL")
    return client_context(tls)


def parse_control_url(url: str) -> Url:
    """The parts of the URL of a control broker. Raises ConfigError if it is not one."""
    wanted = "mqtt://[user:password@]host[:port] or mqtts://…?ca=FILE"
    try:
        parts = parse_url(url)
    except ValueError as err:
        raise ConfigError(f"control URL {redact_url_text(url)!r}: {err}; expected {wanted}") from err
    is_mqtt = parts.scheme in MQTT.schemes
    unknown = set(parts.options) - set(TLS_OPTIONS)
    if not is_mqtt or not parts.host or parts.path.strip("/") or unknown or parts.port == 0:
        raise ConfigError(f"control URL {redact_url_text(url)!r} should read {wanted}")
    return parts
