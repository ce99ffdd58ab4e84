"""What does Mosquitto say about itself?

It publishes its own state under $SYS at an interval. The inspector subscribes with a connection of its own, and a look
is what was said last. A broker that has stopped saying anything is not looked at: that look has failed.
"""

import contextlib
import re
import threading
import time
from typing import Any
from urllib.parse import unquote, urlsplit

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from crescendo.inspectors.base import TIMEOUT_S, Inspection, InspectionTarget, Reading
from crescendo.inspectors.targets import MANAGEMENT, MQTT, url_of
from crescendo.model.address import PORTS
from crescendo.model.errors import PeerError

BROKER = "broker"
_DEFAULT_PORT = PORTS["mqtt"]
_PREFIX = "$SYS/broker/"
_PULSE = "$SYS/broker/uptime"  # published anew at every interval, whether anything happened or not
_INTERVAL_S = 10.0  # what the broker does unless it is told otherwise; the real one is learnt
_PATIENCE = 3  # so many intervals may pass in silence
_KEEP_ALIVE_S = 5
_MAX_TOPICS = 10_000
_MAX_PAYLOAD_BYTES = 4096
_NUMBER = re.compile(r"^(-?\d+(?:\.\d+)?)(?: seconds)?$")


class MosquittoInspector:
    """Looks at one broker."""

    def __init__(self, target: InspectionTarget, timeout_s: float = TIMEOUT_S) -> None:
        self._url = urlsplit(url_of(target, "mosquitto", (MQTT, MANAGEMENT), ("mqtt",)))
        self._where = f"{self._url.hostname}:{self._url.port or _DEFAULT_PORT}"
        self._timeout_s = timeout_s
        self._subscription: _Subscription | None = None

    def inspect(self) -> Inspection:
        deadline_s = time.monotonic() + self._timeout_s
        if self._subscription is None:
            self._subscription = self._subscribe()
        try:
            return self._subscription.inspect(deadline_s)
        except PeerError as err:
            self.close()
            raise PeerError(f"{self._where} {err}") from err

    def close(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.close()

    def _subscribe(self) -> "_Subscription":
        try:
            return _Subscription(
                self._url.hostname or "127.0.0.1",
                self._url.port or _DEFAULT_PORT,
                None if self._url.username is None else unquote(self._url.username),
                None if self._url.password is None else unquote(self._url.password),
                self._timeout_s,
            )
        except (OSError, ValueError) as err:
            raise PeerError(f"{self._where} cannot be reached: {err}") from err


class _Subscription:
    """One connection and the last words on every topic."""

    def __init__(self, host: str, port: int, user: str | None, password: str | None, timeout_s: float) -> None:
        self._changed = threading.Condition()
        self._words: dict[str, bytes] = {}
        self._pulse_s: float | None = None  # when the broker last showed that it lives
        self._beat_s: float | None = None  # when it last did so by itself, not because we subscribed
        self._interval_s = _INTERVAL_S
        self._fault = ""
        self._last_request: int | None = None
        self._complete = False
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2)
        self._client.connect_timeout = timeout_s
        if user is not None:
            self._client.username_pw_set(user, password)
        self._client.on_connect = self._connected
        self._client.on_disconnect = self._disconnected
        self._client.on_subscribe = self._answered
        self._client.on_message = self._heard
        self._client.connect(host, port, keepalive=_KEEP_ALIVE_S)
        self._client.loop_start()

    def inspect(self, deadline_s: float) -> Inspection:
        """What was said last; the first time, wait until the broker has said everything once."""
        with self._changed:
            while not (self._fault or (self._complete and self._pulse_s is not None)):
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    raise PeerError(
                        "says nothing under $SYS; is sys_interval 0, or is this user not allowed to read it?"
                    )
                self._changed.wait(left_s)
            if self._fault:
                raise PeerError(self._fault)
            silent_s = time.monotonic() - (self._pulse_s or 0.0)
            if silent_s > _PATIENCE * self._interval_s + 1:
                raise PeerError(f"has said nothing under $SYS for {silent_s:.1f} s")
            return _look_of(dict(self._words))

    def close(self) -> None:
        self._client.on_disconnect = None
        with contextlib.suppress(OSError, ValueError):
            self._client.disconnect()
        self._client.loop_stop()

    def _connected(
        self, client: mqtt.Client, _data: Any, _flags: Any, reason: ReasonCode, _properties: Properties | None
    ) -> None:
        if reason.is_failure:
            self._fail(f"does not let us in: {reason}")
        else:
            client.subscribe("$SYS/#", qos=0)
            # What is retained comes before the answer to the next request, so that answer means: this was all.
            self._last_request = client.subscribe(_PULSE, qos=0)[1]

    def _answered(
        self, _client: mqtt.Client, _data: Any, request: int, _reasons: list[ReasonCode], _properties: Properties | None
    ) -> None:
        with self._changed:
            self._complete = self._complete or request == self._last_request
            self._changed.notify_all()

    def _disconnected(
        self, _client: mqtt.Client, _data: Any, _flags: Any, reason: ReasonCode, _properties: Properties | None
    ) -> None:
        self._fail(f"ended the connection: {reason}")

    def _fail(self, fault: str) -> None:
        with self._changed:
            self._fault = self._fault or fault  # the first one is the cause
            self._changed.notify_all()

    def _heard(self, _client: mqtt.Client, _data: Any, message: mqtt.MQTTMessage) -> None:
        now_s = time.monotonic()
        with self._changed:
            if message.topic in self._words or len(self._words) < _MAX_TOPICS:
                self._words[message.topic] = bytes(message.payload[:_MAX_PAYLOAD_BYTES])
            if message.topic == _PULSE:
                self._pulse_s = now_s
                if not message.retain:
                    if self._beat_s is not None:
                        self._interval_s = now_s - self._beat_s
                    self._beat_s = now_s
                self._changed.notify_all()


def _look_of(words: dict[str, bytes]) -> Inspection:
    look = Inspection()
    for topic, payload in words.items():
        text = payload.decode("utf-8", errors="replace")
        metric = topic.removeprefix(_PREFIX)
        number = _NUMBER.match(text)
        if number is not None:
            look.readings.append(Reading(BROKER, metric, float(number[1])))
        else:
            look.texts[BROKER, metric] = text
    return look
