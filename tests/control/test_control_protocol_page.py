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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from crescendo.control.agent_payloads import AgentSource, UserCommand
from crescendo.control.bus import Bus
from crescendo.control.notes import (
    Command,
    Failure,
    FailureReport,
    Hello,
    Identity,
    Note,
    NoteKind,
    Start,
    Statistics,
)
from crescendo.control.peer import Peer, identity_of_this_process
from crescendo.control.replay_window import LAST_COUNTER
from crescendo.control.request_payloads import (
    About,
    GroupName,
    LogLines,
    Ping,
    Pong,
    RoleAssignment,
    SetRequest,
)
from crescendo.control.topics import Topics
from crescendo.control.trust import Lab
from crescendo.systems.instance import RunningInstance
from plain_control_client import PlainClient

PAGE = Path(__file__).parents[2] / "docs" / "control-protocol.md"
BEGIN, END = "<!-- examples: begin -->", "<!-- examples: end -->"
TOKEN, RUN_NAME = "0123456789abcdef" * 4, "00112233445566aa"
RUN = Lab(TOKEN).scope_of(RUN_NAME)
TOPICS = Topics(RUN_NAME)
CONDUCTOR = Identity("conductor", "conductor", "a.example", 40, 7)
PEER = Identity("sender-0", "sender", "b.example", 41, 9)
STATISTICS = Statistics(5_000_000_000, {"queue://perf": 300}, 300, 100.0, 250_000, 0.25)
TIMEOUT_S = 30.0

AT, TO_ALL, TO_LAB = TOPICS.peer("sender-0"), TOPICS.peers, Topics(Lab(TOKEN).scope.name).peer("sender-0")


def requests() -> dict[Command, tuple[str, dict[str, Any]]]:
    start, group = Start(5_000_000_000).to_payload(), GroupName("north").to_payload()
    role = RoleAssignment(RUN_NAME, "sender-0").to_payload()
    return {
        Command.START_RECEIVER: (AT, start),
        Command.STOP_RECEIVER: (AT, {}),
        Command.START_SENDER: (AT, start),
        Command.STOP_SENDER: (AT, {}),
        Command.START_INSPECTOR: (AT, start),
        Command.STOP_INSPECTOR: (AT, {}),
        Command.FLUSH: (AT, {}),
        Command.SET: (AT, SetRequest(options={"rate": 500.0}, from_ns=6_000_000_000).to_payload()),
        Command.STATS: (TO_ALL, {}),
        Command.HALT: (AT, {}),
        Command.PING: (TO_ALL, Ping(1_700_000_000, 250_000).to_payload()),
        Command.GET: (TO_ALL, {}),
        Command.START_AGENT: (AT, start),
        Command.STOP_AGENT: (AT, {}),
        Command.AGENT_SOURCE: (AT, AgentSource("https://git.example/agent.git", "main").to_payload()),
        Command.USER_COMMAND_1: (AT, UserCommand("restart", {"router": "B"}).to_payload()),
        Command.LOG: (TO_ALL, {}),
        Command.DRAIN: (AT, {}),
        Command.GROUP_JOIN: (AT, group),
        Command.GROUP_LEAVE: (AT, group),
        Command.ROLE_ASSIGN: (TO_LAB, role),
        Command.ROLE_UNASSIGN: (TO_LAB, role),
    }


def responses() -> dict[Command, dict[str, Any]]:
    return {
        Command.STATS: STATISTICS.to_payload(),
        Command.PING: Pong(
            1_700_000_000, 250_000, 800, 5_000_000_000, 1_700_000_000_250_800_000, "running"
        ).to_payload(),
        Command.OK: {},
        Command.PROTOCOL_ERROR: Failure("there is no such note: 99 is not a valid Command", "peer").to_payload(),
        Command.INTERNAL_ERROR: Failure("no agent here", "config").to_payload(),
        Command.GET: About(2, "0.1.0", RUN_NAME, "running", {"rate": 500.0}, {"not authentic": 3}).to_payload(),
        Command.LOG: LogLines(["1700000000.000 joined"]).to_payload(),
    }


def notifications() -> dict[Command, dict[str, Any]]:
    return {
        Command.STATS: STATISTICS.to_payload(),
        Command.ABNORMAL_DISCONNECT: Failure("its control connection broke", "lost").to_payload(),
        Command.NOTIFY_FAIL: FailureReport(Failure("connection refused", "peer"), STATISTICS).to_payload(),
        Command.NOTIFY_SUCCESS: STATISTICS.to_payload(),
        Command.NOTIFY_DRAIN_COMPLETE: STATISTICS.to_payload(),
        Command.GROUP_JOIN: Hello(1_699_999_995_000_000_000, "0.1.0").to_payload(),
        Command.GROUP_LEAVE: Failure("left", "lost").to_payload(),
        Command.NOTIFY_TEST_STARTED: Start(5_000_000_000).to_payload(),
    }


def examples() -> Iterator[tuple[str, Note, int]]:
    """Topic, note, counter: one of each request, response and notification."""
    for counter, (command, (topic, payload)) in enumerate(requests().items(), 1):
        to = 0 if topic == TO_ALL else PEER.session
        yield topic, Note(NoteKind.REQUEST, command, 1000 + counter, CONDUCTOR, payload, to), counter
    for counter, (command, payload) in enumerate(responses().items(), 1):
        yield (
            TOPICS.replies,
            Note(NoteKind.RESPONSE, command, 1000 + counter, PEER, payload, CONDUCTOR.session),
            counter,
        )
    for counter, (command, payload) in enumerate(notifications().items(), 20):
        number = LAST_COUNTER if command is Command.ABNORMAL_DISCONNECT else counter
        yield TOPICS.notifications, Note(NoteKind.NOTIFICATION, command, 0, PEER, payload), number


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


def test_every_command_has_an_example_and_a_row() -> None:
    used = {note.command for _, note, _ in examples()}
    assert used == set(Command)
    text = PAGE.read_text()
    for command in Command:
        assert f"| {command.name} | {command.value} |" in text


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
        if note.command is Command.SET:
            sealed = payload.pop("sealed")
            cipher = AESGCM(hmac.new(key_of(scope), b"crescendo seal", hashlib.sha256).digest())
            payload = msgpack.unpackb(cipher.decrypt(sealed[:12], sealed[12:], scope.encode()), strict_map_key=False)
        assert payload == note.payload


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
