"""A client of the control plane, written from docs/control-protocol.md alone: paho-mqtt, msgpack, hmac and AES-GCM."""

import contextlib
import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote, urlsplit

import msgpack
import paho.mqtt.client as mqtt
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from paho.mqtt.enums import CallbackAPIVersion

TIMEOUT_S = 60.0
PING, OK = 10, 11
REQUEST = 0
ENCRYPTED = (7, 21, 30)


def code(key: bytes, content: bytes) -> bytes:
    return hmac.new(key, content, hashlib.sha256).digest()


def lab_name(token: str) -> str:
    return "lab-" + code(token.encode(), b"crescendo lab").hex()[:12]


class PlainClient:
    """One connection to one scope."""

    def __init__(self, url: str, token: str, scope: str) -> None:
        parts = urlsplit(url)
        self.scope, self.counter = scope, 0
        self.key = code(token.encode(), b"crescendo scope " + scope.encode())
        self.me = ["by-hand", "control", "somewhere", 1, secrets.randbits(62) | 1]
        self.notes: list[list[Any]] = []
        subscribed = threading.Event()
        self.client = mqtt.Client(CallbackAPIVersion.VERSION2)
        self.client.username_pw_set(unquote(parts.username or ""), unquote(parts.password or ""))
        self.client.on_message = self._take
        self.client.on_subscribe = lambda *_: subscribed.set()
        self.client.connect(parts.hostname or "", parts.port or 1883)
        self.client.loop_start()
        self.client.subscribe([(f"/mpt/{scope}/maestro", 1), (f"/mpt/{scope}/notifications", 1)])
        assert subscribed.wait(TIMEOUT_S)

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()

    def _take(self, client: Any, userdata: Any, message: mqtt.MQTTMessage) -> None:
        body, tag = message.payload[:-32], message.payload[-32:]
        if not message.retain and hmac.compare_digest(tag, code(self.key, message.topic.encode() + b"\0" + body)):
            with contextlib.suppress(ValueError):  # not a note
                self.notes.append(msgpack.unpackb(body, strict_map_key=False))

    def request(self, topic: str, command: int, payload: dict[Any, Any], to: int) -> int:
        """Publish a request; its correlation."""
        content: bytes = msgpack.packb(payload)
        if command in ENCRYPTED:
            content = msgpack.packb({"sealed": self.encrypt(content)})
        return self.publish(topic, REQUEST, command, content, to)

    def encrypt(self, content: bytes) -> bytes:
        cipher, nonce = AESGCM(code(self.key, b"crescendo seal")), secrets.token_bytes(12)
        return nonce + cipher.encrypt(nonce, content, self.scope.encode())

    def publish(self, topic: str, kind: int, command: int, payload: bytes, to: int = 0) -> int:
        """Publish a note with these bytes as its payload; its correlation."""
        self.counter += 1
        fields = [2, kind, command, 5000 + self.counter, self.counter, to, self.me]
        body = b"\x98" + b"".join(msgpack.packb(field) for field in fields) + payload
        self.client.publish(topic, body + code(self.key, topic.encode() + b"\0" + body), qos=1)
        return 5000 + self.counter

    def answer(self, correlation: int, count: int = 1) -> list[list[Any]]:
        return self.wait(lambda note: note[1] == 1 and note[3] == correlation, count)

    def notification(self, command: int, peer: str) -> list[Any]:
        return self.wait(lambda note: note[1:3] == [2, command] and note[6][0] == peer)[0]

    def wait(self, wanted: Callable[[list[Any]], bool], count: int = 1) -> list[list[Any]]:
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            found = [note for note in list(self.notes) if wanted(note)]
            if len(found) >= count:
                return found
            time.sleep(0.01)
        raise AssertionError(f"not heard: {self.notes[-5:]}")

    def sessions(self, peers: set[str]) -> dict[str, int]:
        """The sessions of these peers, once all of them answer."""
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            asked = self.request(f"/mpt/{self.scope}/peer", PING, {"sec": 1, "usec": 2}, 0)
            time.sleep(0.2)
            found = {note[6][0]: note[6][4] for note in list(self.notes) if note[1] == 1 and note[3] == asked}
            if peers <= found.keys():
                return {peer: found[peer] for peer in peers}
        raise AssertionError(f"not all of {peers} answer")

    def ask(self, peer: str, session: int, command: int, payload: dict[Any, Any] | None = None) -> tuple[int, Any]:
        """Command and payload of the answer of one process."""
        topic = f"/mpt/{self.scope}/peer/by-id/{peer}"
        (note,) = self.answer(self.request(topic, command, payload or {}, session))
        return note[2], note[7]
