"""Can somebody who is not part of a run read, forge, replay or retain its notes? On real brokers."""

import json
import os
import secrets
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest

from crescendo.control.bus import Bus
from crescendo.control.embedded_broker import BrokerCertificate, EmbeddedBroker
from crescendo.control.notes import Command, Failure, Identity, Note, NoteKind, Start, Statistics, encode_note
from crescendo.control.peer import CONDUCTOR, Peer, identity_of_this_process
from crescendo.control.topics import Topics
from crescendo.control.trust import NoteScope, new_lab, new_run_name
from crescendo.model.errors import ConfigError
from crescendo.model.urls import parse_url
from crescendo.systems.certificates import Authority
from crescendo.systems.instance import RunningInstance
from mqtt_stranger import TIMEOUT_S, Stranger
from note_examples import NOTIFICATIONS, REQUESTS, RESPONSES

SECRET = "s3cr3t"
SECRETS: list[tuple[Command, dict[str, Any]]] = [
    (Command.SET, {"assignment": {"urls": {"amqp10": f"amqp://ada:{SECRET}@h"}}}),
    (Command.AGENT_SOURCE, {"source": f"https://ada:{SECRET}@git.example/handlers"}),
    (Command.USER_COMMAND_1, {"command": "restart", "parameters": {"password": SECRET}}),
]
SAID = [*SECRETS, *((one.command, {} if one.payload is None else one.payload.to_payload()) for one in REQUESTS)]
NOTES = 2 * len(SAID) + len(RESPONSES) + len(NOTIFICATIONS)  # each request is answered
STRANGER = 4242


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
    """A conductor and a peer that have said everything once: every note of docs/control-protocol.md."""
    topics = Topics(run.name)
    conductor = identity_of_this_process(CONDUCTOR, CONDUCTOR)
    bus = Bus(url, run, conductor, (topics.replies, topics.notifications))
    bus.connect(TIMEOUT_S)
    peer = Peer(url, run, identity_of_this_process("sender-0", "sender"))
    peer.join(TIMEOUT_S)
    for correlation, (command, payload) in enumerate(SAID):
        note = Note(NoteKind.REQUEST, command, correlation, conductor, payload, peer.identity.session)
        bus.publish(topics.peer("sender-0"), note, qos=1)
    answered: set[int] = set()
    while len(answered) < len(SAID):
        request = peer.next_request(0.01)
        if request is not None:
            assert (request.command, request.payload) == SAID[request.correlation]
            peer.accept(request)
        while isinstance(answer := bus.next(), Note):
            answered |= {answer.correlation} if answer.kind is NoteKind.RESPONSE else set()
    for example in (*RESPONSES, *NOTIFICATIONS):
        kind = NoteKind.RESPONSE if example in RESPONSES else NoteKind.NOTIFICATION
        topic = topics.replies if kind is NoteKind.RESPONSE else topics.notifications
        payload = {} if example.payload is None else example.payload.to_payload()
        peer._bus.publish(topic, Note(kind, example.command, 999, peer.identity, payload), qos=1)
    last = (NoteKind.NOTIFICATION, NOTIFICATIONS[-1].command)
    while not (isinstance(said := bus.next(TIMEOUT_S), Note) and (said.kind, said.command) == last):
        assert said is not None
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


def attack(
    run: NoteScope, heard: list[tuple[str, bytes]], conductor: Identity, peer: Identity
) -> Iterator[tuple[str, bytes, bool]]:
    """Topic, content and whether to retain it: every note repeated, retained, changed and moved; and forgeries."""
    topics = {topic for topic, _ in heard}
    for topic, content in heard:
        yield topic, content, False
        yield topic, content, True
        yield topic, bytes([content[0] ^ 1, *content[1:]]), False
        yield from ((other, content, False) for other in topics - {topic})
    yield from ((topic, content, False) for topic, content in forgeries(run, conductor, peer))


def test_a_stranger_reads_no_password_and_changes_nothing(mosquitto: RunningInstance, stranger: Stranger) -> None:
    run = new_run()
    bus, conductor, peer = conversation(mosquitto.url, run)
    until(lambda: len(stranger.of(run)) >= NOTES)
    heard = stranger.of(run)
    assert all(SECRET.encode() not in content for _, content in heard)
    said = {Command(msgpack.unpackb(content[:-32], strict_map_key=False)[2]) for _, content in heard}
    assert said == set(Command), "every kind of note was there to be repeated"
    for topic, content, retain in attack(run, heard, conductor, peer.identity):
        stranger.publish(topic, content, retain=retain)
    end = Note(NoteKind.REQUEST, Command.PING, 1234, conductor, {"sec": 0, "usec": 0})
    stranger.client.publish("/mpt/end/of/attack", b"", 1).wait_for_publish(TIMEOUT_S)  # everything before was routed
    bus.publish(Topics(run.name).peers, end, qos=1)
    while (note := bus.next(0.2)) is None or (isinstance(note, Note) and note.command is Command.STATS):
        assert peer.next_request(0.05) is None, "nothing that a stranger sends is a request"
    assert isinstance(note, Note)
    assert (note.command, note.correlation) == (Command.PING, 1234), "the first thing that counts is our own"
    assert not peer.orphaned
    left = [note for note in iter(lambda: bus.next(0.2), None) if isinstance(note, Note)]
    assert {note.command for note in left} <= {Command.STATS}, "heartbeats"
    assert bus.dropped["repeated"] >= len(SAID)
    assert bus.dropped["not authentic"] >= 2 * len(SAID)
    late = Peer(mosquitto.url, run, identity_of_this_process("sender-0", "sender"))
    late.join(TIMEOUT_S)
    assert late.next_request(0.5) is None, "retained requests are none"
    until(lambda: late.next_request(0.0) is None and late._bus.dropped["retained"])
    for one in (peer, late):
        one.close()
    bus.close()


def test_the_notes_of_one_run_are_worth_nothing_in_another(mosquitto: RunningInstance, stranger: Stranger) -> None:
    run, other = new_run(), new_run()
    bus, _, peer = conversation(mosquitto.url, run)
    until(lambda: len(stranger.of(run)) >= NOTES)
    attacked, _, victim = conversation(mosquitto.url, other)
    heard = stranger.of(run)
    for topic, content in heard:
        stranger.publish(topic.replace(run.name, other.name), content)
    until(lambda: attacked.dropped["not authentic"] + victim._bus.dropped["not authentic"] >= len(heard))
    assert victim.next_request(0.0) is None
    assert not victim.orphaned
    assert attacked.next(0.2) is None
    for one in (peer, victim, bus, attacked):
        one.close()


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
