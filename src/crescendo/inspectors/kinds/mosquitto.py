"""What does Mosquitto report about itself?

It publishes its own state under $SYS at an interval. The inspector subscribes on a connection of its own, and an
inspection is the latest state. When the broker has stopped publishing, the inspection fails.
"""

import contextlib
import math
import re
import threading
import time
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from crescendo.inspectors.base import TIMEOUT_S, Inspection, InspectionTarget, Reading
from crescendo.inspectors.targets import MANAGEMENT, MQTT, url_of
from crescendo.model import protocols
from crescendo.model.errors import PeerError
from crescendo.model.urls import parse_url

BROKER = "broker"
_DEFAULT_PORT = protocols.MQTT.port
_PREFIX = "$SYS/broker/"
_UPTIME = "$SYS/broker/uptime"  # published at every interval, even when nothing has changed
_INTERVAL_S = 10.0  # the default of the broker; the actual one is measured
_MAX_SILENT_INTERVALS = 3  # intervals that may pass without a publication
_KEEP_ALIVE_S = 5
_MAX_TOPICS = 10_000
_MAX_PAYLOAD_BYTES = 4096
_NUMBER = re.compile(r"^(-?\d+(?:\.\d+)?)(?: seconds)?$")


class MosquittoInspector:
    """Inspects one broker."""

    def __init__(self, target: InspectionTarget, timeout_s: float = TIMEOUT_S) -> None:
        self._url = parse_url(url_of(target, "mosquitto", (MQTT, MANAGEMENT), (protocols.MQTT.scheme,)))
        self._address = f"{self._url.host}:{self._url.port or _DEFAULT_PORT}"
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
            raise PeerError(f"{self._address} {err}") from err

    def close(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.close()

    def _subscribe(self) -> "_Subscription":
        try:
            return _Subscription(
                self._url.host or "127.0.0.1",
                self._url.port or _DEFAULT_PORT,
                self._url.user,
                self._url.password,
                self._timeout_s,
            )
        except (OSError, ValueError) as err:
            raise PeerError(f"{self._address} cannot be reached: {err}") from err


class _Subscription:
    """One connection and the last payload of every topic."""

    def __init__(self, host: str, port: int, user: str | None, password: str | None, timeout_s: float) -> None:
        self._changed = threading.Condition()
        self._last_payloads: dict[str, bytes] = {}
        self._last_uptime_s: float | None = None  # when the broker last reported its uptime
        self._last_published_uptime_s: float | None = None  # the uptime itself, without retained messages
        self._interval_s: float | None = None  # the shortest between two publications, by the broker's own clock
        self._fault = ""
        self._last_request: int | None = None
        self._complete = False
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2)
        self._client.connect_timeout = timeout_s
        if user is not None:
            self._client.username_pw_set(user, password)
        self._client.on_connect = self._on_connect
        self._client.on_disconnect = self._on_disconnect
        self._client.on_subscribe = self._on_subscribe
        self._client.on_message = self._on_message
        self._client.connect(host, port, keepalive=_KEEP_ALIVE_S)
        self._client.loop_start()

    def inspect(self, deadline_s: float) -> Inspection:
        """The latest state; the first time, wait until every topic has arrived once."""
        with self._changed:
            while not (self._fault or (self._complete and self._last_uptime_s is not None)):
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    raise PeerError(
                        "publishes nothing under $SYS; is sys_interval 0, or is this user not allowed to read it?"
                    )
                self._changed.wait(left_s)
            if self._fault:
                raise PeerError(self._fault)
            silent_s = time.monotonic() - (self._last_uptime_s or 0.0)
            if silent_s > _MAX_SILENT_INTERVALS * (self._interval_s or _INTERVAL_S) + 1:
                raise PeerError(f"has published nothing under $SYS for {silent_s:.1f} s")
            return _inspection_of(dict(self._last_payloads))

    def close(self) -> None:
        self._client.on_disconnect = None
        with contextlib.suppress(OSError, ValueError):
            self._client.disconnect()
        self._client.loop_stop()

    def _on_connect(
        self, client: mqtt.Client, _data: Any, _flags: Any, reason: ReasonCode, _properties: Properties | None
    ) -> None:
        if reason.is_failure:
            self._fail(f"denies access: {reason}")
        else:
            client.subscribe("$SYS/#", qos=0)
            # Retained messages arrive before the next SUBACK, so that SUBACK means: these were all.
            self._last_request = client.subscribe(_UPTIME, qos=0)[1]

    def _on_subscribe(
        self, _client: mqtt.Client, _data: Any, request: int, _reasons: list[ReasonCode], _properties: Properties | None
    ) -> None:
        with self._changed:
            self._complete = self._complete or request == self._last_request
            self._changed.notify_all()

    def _on_disconnect(
        self, _client: mqtt.Client, _data: Any, _flags: Any, reason: ReasonCode, _properties: Properties | None
    ) -> None:
        self._fail(f"ended the connection: {reason}")

    def _fail(self, fault: str) -> None:
        with self._changed:
            self._fault = self._fault or fault  # the first one is the cause
            self._changed.notify_all()

    def _on_message(self, _client: mqtt.Client, _data: Any, message: mqtt.MQTTMessage) -> None:
        now_s = time.monotonic()
        with self._changed:
            if message.topic in self._last_payloads or len(self._last_payloads) < _MAX_TOPICS:
                self._last_payloads[message.topic] = bytes(message.payload[:_MAX_PAYLOAD_BYTES])
            if message.topic == _UPTIME:
                self._last_uptime_s = now_s
                if not message.retain:
                    self._measure_interval(bytes(message.payload))
                self._changed.notify_all()

    def _measure_interval(self, uptime: bytes) -> None:
        # Not by our clock: publications that were read late, or together, say nothing about the interval.
        number = _NUMBER.match(uptime.decode("utf-8", errors="replace"))
        if number is None:
            return
        uptime_s, last_s = float(number[1]), self._last_published_uptime_s
        self._last_published_uptime_s = uptime_s
        if last_s is not None and uptime_s > last_s:
            self._interval_s = min(self._interval_s or math.inf, uptime_s - last_s)


def _inspection_of(payloads: dict[str, bytes]) -> Inspection:
    inspection = Inspection()
    for topic, payload in payloads.items():
        text = payload.decode("utf-8", errors="replace")
        metric = topic.removeprefix(_PREFIX)
        number = _NUMBER.match(text)
        if number is not None:
            inspection.readings.append(Reading(BROKER, metric, float(number[1])))
        else:
            inspection.texts[BROKER, metric] = text
    return inspection
