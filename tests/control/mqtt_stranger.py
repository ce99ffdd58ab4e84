"""Somebody whom the control broker lets in, but who holds no key of a run."""

import threading
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from crescendo.control.trust import NoteScope
from crescendo.model.urls import parse_url

TIMEOUT_S = 30.0
BATCH = 200  # a broker keeps some hundred messages for one client, not more


class Stranger:
    """A plain client that the broker lets in. It keeps what it can read."""

    def __init__(self, url: str) -> None:
        parts = parse_url(url)
        self.read: list[tuple[str, bytes]] = []
        self.client = mqtt.Client(CallbackAPIVersion.VERSION2)
        self.client.username_pw_set(parts.user or "", parts.password or "")
        self.client.on_message = self._on_message
        subscribed = threading.Event()
        self.client.on_subscribe = lambda *_: subscribed.set()
        self.client.connect(parts.host or "", parts.port or 1883)
        self.client.loop_start()
        self.client.subscribe("/mpt/#", 1)
        assert subscribed.wait(TIMEOUT_S)
        self._retained: set[str] = set()
        self._published = 0

    def of(self, run: NoteScope) -> list[tuple[str, bytes]]:
        return [(topic, content) for topic, content in self.read if f"/{run.name}/" in topic]

    def publish(self, topic: str, content: bytes, *, retain: bool = False) -> None:
        if retain:
            self._retained.add(topic)
        done = self.client.publish(topic, content, 1, retain)
        self._published += 1
        if self._published % BATCH == 0:
            done.wait_for_publish(TIMEOUT_S)

    def close(self) -> None:
        for topic in self._retained:
            self.client.publish(topic, b"", 1, retain=True).wait_for_publish(TIMEOUT_S)
        self.client.disconnect()
        self.client.loop_stop()

    def _on_message(self, client: mqtt.Client, userdata: Any, message: mqtt.MQTTMessage) -> None:
        self.read.append((message.topic, bytes(message.payload)))
