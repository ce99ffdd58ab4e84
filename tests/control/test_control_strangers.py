"""Can somebody who is not part of a run read, forge, replay, retain or flood its notes? On real brokers."""

import json
import os
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from crescendo.control.bus import Bus
from crescendo.control.conductor.commands import RunEnding
from crescendo.control.conductor.plan import SECOND_NS, PeerPlan, RunPlan
from crescendo.control.embedded_broker import BrokerCertificate, EmbeddedBroker
from crescendo.control.notes import Command, Failure, Identity, Note, NoteKind, Start, Statistics, encode_note
from crescendo.control.peer import CONDUCTOR, Peer, identity_of_this_process
from crescendo.control.topics import Topics
from crescendo.control.trust import NoteScope, new_lab, new_run_name
from crescendo.model.errors import ConfigError
from crescendo.model.urls import parse_url
from crescendo.run.conductor_loop import ConductorLoop
from crescendo.systems.certificates import Authority
from crescendo.systems.instance import RunningInstance

SECRET = "s3cr3t"
STRANGER = 4242
TIMEOUT_S = 30.0


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

    def of(self, run: NoteScope) -> list[tuple[str, bytes]]:
        return [(topic, content) for topic, content in self.read if f"/{run.name}/" in topic]

    def publish(self, topic: str, content: bytes, *, retain: bool = False) -> None:
        if retain:
            self._retained.add(topic)
        self.client.publish(topic, content, 1, retain)

    def close(self) -> None:
        for topic in self._retained:
            self.client.publish(topic, b"", 1, retain=True).wait_for_publish(TIMEOUT_S)
        self.client.disconnect()
        self.client.loop_stop()

    def _on_message(self, client: mqtt.Client, userdata: Any, message: mqtt.MQTTMessage) -> None:
        self.read.append((message.topic, bytes(message.payload)))


@pytest.fixture
def stranger(mosquitto: RunningInstance) -> Iterator[Stranger]:
    stranger = Stranger(mosquitto.url)
    yield stranger
    stranger.close()


def new_run() -> NoteScope:
    return new_lab().scope_of(new_run_name())


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def conversation(url: str, run: NoteScope) -> tuple[Bus, Identity, Peer]:
    """A conductor and a peer that have said everything once."""
    topics = Topics(run.name)
    conductor = identity_of_this_process(CONDUCTOR, CONDUCTOR)
    bus = Bus(url, run, conductor, (topics.replies, topics.notifications))
    bus.connect(TIMEOUT_S)
    peer = Peer(url, run, identity_of_this_process("sender-0", "sender"))
    peer.join(TIMEOUT_S)
    assignment = {"assignment": {"urls": {"amqp10": f"amqp://ada:{SECRET}@h"}}}
    for correlation, (command, payload) in enumerate(
        [(Command.SET, assignment), (Command.START_SENDER, Start(1).to_payload()), (Command.STOP_SENDER, {}),
         (Command.HALT, {}), (Command.DRAIN, {}), (Command.FLUSH, {}), (Command.ROLE_ASSIGN, {})]
    ):  # fmt: skip
        note = Note(NoteKind.REQUEST, command, correlation, conductor, payload, peer.identity.session)
        bus.publish(topics.peer("sender-0"), note, qos=1)
        request = peer.next_request(TIMEOUT_S)
        assert request is not None
        assert (request.command, request.payload) == (command, payload)
        peer.accept(request)
    peer.report(Statistics(1))
    peer.started(Start(1))
    peer.finish(Statistics(2))
    peer.fail(Failure("x", "peer"), Statistics(3))
    seen: set[Command] = set()
    while Command.NOTIFY_FAIL not in seen:
        note = bus.next(TIMEOUT_S)
        assert isinstance(note, Note)
        seen.add(note.command)
    return bus, conductor, peer


def forgeries(run: NoteScope, conductor: Identity, peer: Identity) -> Iterator[tuple[str, bytes]]:
    """Every kind of note with every command, from the right process to the right one, without the key."""
    topics = Topics(run.name)
    foreign = NoteScope(run.name, secrets.token_bytes(32))
    lost = Failure("forged", "lost").to_payload()
    for kind in NoteKind:
        for command in Command:
            is_request = kind is NoteKind.REQUEST
            topic = topics.peer(peer.id) if is_request else topics.notifications
            sender, to = (conductor, peer.session) if is_request else (peer, 0)
            payload = {**Start(1).to_payload(), **lost, **Statistics(9).to_payload()}
            body = encode_note(Note(kind, command, 99, sender, payload, to), 10_000 + command)
            yield topic, body + foreign.tag(topic, body)
            yield topic, body + bytes(32)
            yield topic, body


def test_a_stranger_reads_no_password_and_changes_nothing(mosquitto: RunningInstance, stranger: Stranger) -> None:
    run = new_run()
    bus, conductor, peer = conversation(mosquitto.url, run)
    until(lambda: len(stranger.of(run)) >= 7 + 7 + 5)
    heard = stranger.of(run)
    assert all(SECRET.encode() not in content for _, content in heard)
    topics = {topic for topic, _ in heard}
    for topic, content in heard:
        stranger.publish(topic, content)  # replayed
        stranger.publish(topic, content, retain=True)
        stranger.publish(topic, bytes([content[0] ^ 1, *content[1:]]))
        for other in topics - {topic}:
            stranger.publish(other, content)
    for topic, content in forgeries(run, conductor, peer.identity):
        stranger.publish(topic, content)
    end = Note(NoteKind.REQUEST, Command.PING, 1234, conductor, {"sec": 0, "usec": 0})
    stranger.client.publish("/mpt/end/of/attack", b"", 1).wait_for_publish(TIMEOUT_S)  # everything before was routed
    bus.publish(Topics(run.name).peers, end, qos=1)
    while (note := bus.next(0.2)) is None or (isinstance(note, Note) and note.command is Command.STATS):
        assert peer.next_request(0.05) is None, "nothing that a stranger sends is a request"
    assert isinstance(note, Note)
    assert (note.command, note.correlation) == (Command.PING, 1234), "the first thing that counts is our own"
    assert not peer.orphaned
    assert bus.next(0.2) is None
    assert bus.dropped["repeated"] >= 10
    assert bus.dropped["not authentic"] >= 60
    late = Peer(mosquitto.url, run, identity_of_this_process("sender-0", "sender"))
    late.join(TIMEOUT_S)
    assert late.next_request(0.5) is None, "retained requests are none"
    until(lambda: late.next_request(0.0) is None and late._bus.dropped["retained"])
    for one in (peer, late):
        one.close()
    bus.close()


def test_a_request_to_an_earlier_process_is_not_carried_out_by_its_successor(mosquitto: RunningInstance) -> None:
    run = new_run()
    bus, conductor, peer = conversation(mosquitto.url, run)
    successor = Peer(mosquitto.url, run, identity_of_this_process("sender-0", "sender"))
    successor.join(TIMEOUT_S)
    for to in (peer.identity.session, 0):
        note = Note(NoteKind.REQUEST, Command.HALT, 50 + to % 7, conductor, {}, to)
        bus.publish(Topics(run.name).peer("sender-0"), note, qos=1)
    asked = peer.next_request(TIMEOUT_S)
    assert asked is not None
    assert asked.command is Command.HALT
    assert successor.next_request(1.0) is None
    for one in (peer, successor):
        one.close()
    bus.close()


@pytest.mark.parametrize("flooding", ["a stranger", "a member of the run"])
def test_a_flood_delays_neither_ctrl_c_nor_a_deadline(
    mosquitto: RunningInstance, stranger: Stranger, flooding: str
) -> None:
    run = new_run()
    topics = Topics(run.name)
    outsider = run if flooding == "a member of the run" else NoteScope(run.name, secrets.token_bytes(32))
    over = threading.Event()
    sent = [0]

    def flood() -> None:
        sender = Identity("sender-7", "sender", "h", 7, 7)
        while not over.wait(0.02):
            for _ in range(30):  # 1,500 per second, if the machine lets us
                sent[0] += 1
                body = encode_note(Note(NoteKind.NOTIFICATION, Command.NOTIFY_SUCCESS, 0, sender, {}), sent[0])
                stranger.client.publish(topics.notifications, body + outsider.tag(topics.notifications, body))

    plan = RunPlan((PeerPlan("sender-0", "sender", {}),), 0, SECOND_NS, 0, {}, gather_ns=SECOND_NS)
    flooder = threading.Thread(target=flood)
    flooder.start()
    try:
        ended, took_s = run_conductor(mosquitto.url, run, plan, interrupt_s=None)
        assert ended.reason == "sender-0 did not join within 1 s"
        assert took_s < 1 + 1
        longer = RunPlan(plan.peers, 0, SECOND_NS, 0, {})
        ended, took_s = run_conductor(mosquitto.url, run, longer, interrupt_s=0.5)
        assert ended.state == "interrupted"
        assert took_s < 0.5 + 1
    finally:
        over.set()
        flooder.join()
    assert sent[0] > 500, "it was a flood"


def run_conductor(url: str, run: NoteScope, plan: RunPlan, interrupt_s: float | None) -> tuple[RunEnding, float]:
    loop = ConductorLoop(url, run, plan, lambda: None)
    loop.connect()
    begun = time.monotonic()
    ending = loop.run(
        [],
        interrupted=lambda: interrupt_s is not None and time.monotonic() - begun > interrupt_s,
        watch=lambda _: None,
        on_event=lambda _: None,
    )
    took_s = time.monotonic() - begun
    loop.close()
    return ending, took_s


CONNECT = """
import json, socket, struct, sys

def field(text):
    return struct.pack(">H", len(text)) + text.encode()

def connack(port, user, password):
    flags = 2 | (0xC0 if user else 0)
    body = field("MQTT") + bytes([4, flags, 0, 9]) + field("nobody") + (field(user) + field(password) if user else b"")
    with socket.create_connection(("127.0.0.1", port), 20) as connection:
        connection.sendall(bytes([0x10, len(body)]) + body)
        return list(connection.recv(4))

print(json.dumps([connack(int(sys.argv[1]), *pair) for pair in [("", ""), ("crescendo", "guess"), ("crescendo", "")]]))
"""


def test_the_embedded_broker_admits_nobody_without_its_account() -> None:
    account: dict[str, Any] = {"user": STRANGER, "group": STRANGER, "extra_groups": []} if os.geteuid() == 0 else {}
    with EmbeddedBroker() as broker:
        port = str(parse_url(broker.url).port)
        tried = subprocess.run(
            ["/usr/bin/python3", "-I", "-c", CONNECT, port],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            **account,
        )
        for answer in json.loads(tried.stdout):
            assert answer == [] or answer[3] != 0, "refused, or cut off"
        arguments = Path(f"/proc/{broker.pid}/cmdline").read_text()
        assert (parse_url(broker.url).password or "?") not in arguments
        bus = Bus(broker.url, new_run(), identity_of_this_process("a", "b"), ())
        bus.connect(TIMEOUT_S)
        bus.close()


def test_beyond_the_loopback_interface_the_embedded_broker_speaks_tls_only(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="without TLS"):
        EmbeddedBroker(host="0.0.0.0")  # noqa: S104
    authority, other = Authority(), Authority()
    (tmp_path / "ca.pem").write_bytes(authority.certificate)
    (tmp_path / "other.pem").write_bytes(other.certificate)
    pair = authority.server("127.0.0.1", "localhost")
    with EmbeddedBroker(certificate=BrokerCertificate(pair.certificate, pair.key, tmp_path / "ca.pem")) as broker:
        assert broker.url.startswith("mqtts://")
        run = new_run()
        bus, _, peer = conversation(broker.url, run)
        peer.close()
        bus.close()
        for url in (broker.url.replace("ca.pem", "other.pem"), broker.url.partition("?")[0]):
            with pytest.raises(ConfigError, match="certificate verify failed"):
                Bus(url, run, identity_of_this_process("a", "b"), ()).connect(TIMEOUT_S)
        with socket.create_connection(("127.0.0.1", parse_url(broker.url).port or 0), TIMEOUT_S) as plain:
            plain.sendall(b"\x10\x0e\x00\x04MQTT\x04\x02\x00\x09\x00\x02me")
            assert not plain.recv(4).startswith(b"\x20"), "no MQTT without TLS"
