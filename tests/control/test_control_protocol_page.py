"""docs/control-protocol.md: its examples are the bytes that we send, and it is enough to write another client.

The examples are written by `CRESCENDO_WRITE_DOCS=1 pytest tests/control/test_control_protocol_page.py`. They are read
here with msgpack and hmac, which share no code with ours; so is the client at the end.
"""

import hashlib
import hmac
import os
import secrets
import threading
import time
from pathlib import Path

import msgpack
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from crescendo.control import agent_payloads, notes, request_payloads
from crescendo.control.bus import Bus
from crescendo.control.notes import Command, Note, NoteKind, NotePayload
from crescendo.control.peer import Peer, identity_of_this_process
from crescendo.control.peer_answers import is_command_for_peers
from crescendo.control.trust import Lab
from crescendo.systems.instance import RunningInstance
from note_examples import NESTED, NOTIFICATIONS, REQUESTS, RESPONSES, STATISTICS, TOKEN, examples
from plain_control_client import PlainClient

PAGE = Path(__file__).parents[2] / "docs" / "control-protocol.md"
BEGIN, END = "<!-- examples: begin -->", "<!-- examples: end -->"
TIMEOUT_S = 30.0


def on_the_wire(topic: str, note: Note, counter: int) -> bytes:
    """As the bus sends it."""
    return Bus("mqtt://unused", Lab(TOKEN).scope_of, note.sender, ())._sign(topic, note, counter)


def shown() -> str:
    lines = []
    for topic, note, counter in examples():
        content = on_the_wire(topic, note, counter).hex()
        lines += [
            f"**{note.command.name}**, {note.kind.name.lower()}, on `{topic}`",
            "",
            "```",
            f"{note.payload}",
            *(content[at : at + 96] for at in range(0, len(content), 96)),
            "```",
            "",
        ]
    return "\n".join(lines)


@pytest.fixture(autouse=True)
def same_nonce(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "token_bytes", lambda count: bytes(range(count)))


def test_the_examples_are_the_bytes_that_we_send() -> None:
    before, begin, rest = PAGE.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin
    assert end
    page = f"{before}{BEGIN}\n\n{shown()}{END}{after}"
    if os.environ.get("CRESCENDO_WRITE_DOCS"):
        PAGE.write_text(page)
    assert PAGE.read_text() == page, "run it with CRESCENDO_WRITE_DOCS=1"


def test_every_command_has_a_row_and_an_example_of_each_kind() -> None:
    text = PAGE.read_text()
    for command in Command:
        assert f"| {command.name} | {command.value} |" in text
    assert {example.command for example in REQUESTS} == {
        command for command in Command if is_command_for_peers(command)
    }
    answers = {command for command in Command if not is_command_for_peers(command)} | notes.READING_COMMANDS
    shown = {example.command for example in (*RESPONSES, *NOTIFICATIONS)}
    assert answers <= shown
    assert {row.split()[0].strip("*,") for row in text.splitlines() if row.startswith("**")} == {
        c.name for c in Command
    }


def test_every_payload_has_an_example() -> None:
    modules = {module.__name__ for module in (notes, request_payloads, agent_payloads)}
    payloads = {payload for payload in NotePayload.__subclasses__() if payload.__module__ in modules}
    assert {type(example.payload) for example in (*REQUESTS, *RESPONSES, *NOTIFICATIONS) if example.payload} == (
        payloads - NESTED
    )


def key_of(scope: str) -> bytes:
    return hmac.new(TOKEN.encode(), b"crescendo scope " + scope.encode(), hashlib.sha256).digest()


def test_another_library_reads_every_example() -> None:
    for topic, note, counter in examples():
        content = on_the_wire(topic, note, counter)
        body, tag = content[:-32], content[-32:]
        scope = topic.split("/")[2]
        assert hmac.new(key_of(scope), topic.encode() + b"\0" + body, hashlib.sha256).digest() == tag
        version, kind, command, correlation, number, to, sender, payload = msgpack.unpackb(body, strict_map_key=False)
        assert (version, kind, command) == (2, note.kind, note.command)
        assert (correlation, number, to) == (note.correlation, counter, note.to)
        assert sender == [note.sender.id, note.sender.role, note.sender.host, note.sender.pid, note.sender.session]
        if note.kind is NoteKind.REQUEST and command in (7, 21, 30):
            (sealed,) = payload.values()
            cipher = AESGCM(hmac.new(key_of(scope), b"crescendo seal", hashlib.sha256).digest())
            payload = msgpack.unpackb(cipher.decrypt(sealed[:12], sealed[12:], scope.encode()), strict_map_key=False)
        assert payload == msgpack.unpackb(msgpack.packb(note.payload))


def test_a_plain_client_pings_peers_reads_statistics_and_halts_one(mosquitto: RunningInstance) -> None:
    run = Lab(TOKEN).scope_of("feedfacefeedface")
    peers = [Peer(mosquitto.url, run, identity_of_this_process(f"sender-{n}", "sender")) for n in range(2)]
    over = threading.Event()
    halted: list[str] = []

    def live(peer: Peer) -> None:
        peer.join(TIMEOUT_S)
        peer.report(STATISTICS)
        while not over.is_set():
            request = peer.next_request(0.05)
            if request is not None and request.command is Command.HALT:
                halted.append(peer.identity.id)
                peer.accept(request)
                break
        peer.close()

    client = PlainClient(mosquitto.url, TOKEN, "feedfacefeedface")
    threads = [threading.Thread(target=live, args=(peer,)) for peer in peers]
    for thread in threads:
        thread.start()
    try:
        deadline = time.monotonic() + TIMEOUT_S
        while sum(note[1:3] == [2, 8] for note in client.notes) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        pinged = client.answer(client.request("/mpt/feedfacefeedface/peer", 10, {"sec": 1, "usec": 2}, 0), count=2)
        assert {note[6][0] for note in pinged} == {"sender-0", "sender-1"}
        assert all(note[2] == 10 and note[7]["state"] == "joined" for note in pinged)
        reported = client.answer(client.request("/mpt/feedfacefeedface/peer", 8, {}, 0), count=2)
        assert [note[7]["messages"] for note in reported] == [300, 300]
        session = next(note[6][4] for note in pinged if note[6][0] == "sender-1")
        at = "/mpt/feedfacefeedface/peer/by-id/sender-1"
        (refused,) = client.answer(client.request(at, 9, {}, 0))
        assert refused[2] == 12, "a request that changes something is addressed to one process"
        (unknown,) = client.answer(client.request(at, 99, {}, session))
        assert unknown[2] == 12
        (malformed,) = client.answer(client.request(at, 10, {"sec": "noon"}, session))
        assert malformed[2] == 12
        (agent,) = client.answer(client.request(at, 18, {}, session))
        assert (agent[2], agent[7]["reason"]) == (13, "no agent here")
        assert halted == []
        (done,) = client.answer(client.request(at, 9, {}, session))
        assert done[2] == 11
        threads[1].join(TIMEOUT_S)
        assert halted == ["sender-1"]
        assert threads[0].is_alive()
    finally:
        over.set()
        for thread in threads:
            thread.join(TIMEOUT_S)
        client.close()
