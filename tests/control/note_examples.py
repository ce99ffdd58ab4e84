"""One note of each kind and command, with each payload that it can have: what docs/control-protocol.md shows."""

from collections.abc import Iterator
from typing import NamedTuple

from crescendo.control.agent_payloads import (
    AgentSource,
    EndedHandler,
    FetchedSource,
    HandlerNote,
    StartedHandler,
    UserCommand,
)
from crescendo.control.notes import (
    Command,
    Failure,
    FailureReport,
    Hello,
    Identity,
    Note,
    NoteKind,
    NotePayload,
    Start,
    Statistics,
)
from crescendo.control.replay_window import LAST_COUNTER
from crescendo.control.request_payloads import (
    About,
    FilePiece,
    FileRequest,
    GroupName,
    LogLines,
    PeerOffer,
    Ping,
    Pong,
    RoleAssignment,
    SetOptions,
    SetRequest,
    StartByHand,
)
from crescendo.control.topics import Topics
from crescendo.control.trust import Lab
from crescendo.inspectors.assignment import InspectorAssignment
from crescendo.model.peer_statistics import PeerStatistics

TOKEN, RUN_NAME = "0123456789abcdef" * 4, "00112233445566aa"
LAB_NAME = Lab(TOKEN).scope.name
TOPICS, LAB_TOPICS = Topics(RUN_NAME), Topics(LAB_NAME)
CONDUCTOR = Identity("conductor", "conductor", "a.example", 40, 7)
PEER = Identity("sender-0", "sender", "b.example", 41, 9)
STATISTICS = Statistics(
    5_000_000_000, {"queue://perf": 300}, 300, 100.0, 250_000, 0.25, PeerStatistics(second_response_p90_ns=200_000.0)
)

AT_PEER, TO_ALL, AT_STANDING = TOPICS.peer("sender-0"), TOPICS.peers, LAB_TOPICS.peer("sender-0")
REPLIES, LAB_REPLIES = TOPICS.replies, LAB_TOPICS.replies

_START, _BY_HAND = Start(5_000_000_000), StartByHand(RUN_NAME)
_ROLE = RoleAssignment(RUN_NAME, "sender-0")
_ASSIGNMENT = InspectorAssignment("rabbitmq", 1_000_000_000, {"management": "http://guest:guest@b.example:15672"})
_OPTIONS = SetOptions(broker="amqp://guest:guest@b.example:5672/queue/perf", duration=60.0, rate=500.0)
_OFFER = PeerOffer(
    "0.1.0", "boot-1 time:[1]", 1_699_999_995_000_000_000, "192.0.2.7", 40_001, 40_002, "", 8, ["north"], ["amqp10"]
)
_PONG = Pong(1_700_000_000, 250_000, 800, 5_000_000_000, 1_700_000_000_250_800_000, "running")
_STANDING_PONG = Pong(1_700_000_000, 250_000, 800, 5_000_000_000, 1_700_000_000_250_800_000, "free", "", _OFFER)
_ABOUT = About(2, "0.1.0", RUN_NAME, "running", {"rate": 500.0}, {"not authentic": 3})
_LEFT = About(0, "", LAB_NAME, "free", run=RUN_NAME, files=[("logs/sender-0.log", 3)])


class NoteExample(NamedTuple):
    """Where it is published, what it means, and its payload as we write it."""

    topic: str
    command: Command
    payload: NotePayload | None


REQUESTS = [
    NoteExample(AT_PEER, Command.START_RECEIVER, _START),
    NoteExample(AT_STANDING, Command.START_RECEIVER, _BY_HAND),
    NoteExample(AT_PEER, Command.STOP_RECEIVER, None),
    NoteExample(AT_PEER, Command.START_SENDER, _START),
    NoteExample(AT_STANDING, Command.START_SENDER, _BY_HAND),
    NoteExample(AT_PEER, Command.STOP_SENDER, None),
    NoteExample(AT_PEER, Command.START_INSPECTOR, _START),
    NoteExample(AT_STANDING, Command.START_INSPECTOR, StartByHand(RUN_NAME, "rabbitmq")),
    NoteExample(AT_PEER, Command.STOP_INSPECTOR, None),
    NoteExample(AT_PEER, Command.FLUSH, None),
    NoteExample(AT_PEER, Command.SET, SetRequest(assignment=_ASSIGNMENT.to_payload())),
    NoteExample(AT_PEER, Command.SET, SetRequest(options={"rate": 500.0}, from_ns=6_000_000_000)),
    NoteExample(AT_STANDING, Command.SET, SetRequest(options=dict(_OPTIONS.given))),
    NoteExample(TO_ALL, Command.STATS, None),
    NoteExample(AT_PEER, Command.HALT, None),
    NoteExample(TO_ALL, Command.PING, Ping(1_700_000_000, 250_000)),
    NoteExample(TO_ALL, Command.GET, None),
    NoteExample(AT_STANDING, Command.GET, FileRequest(RUN_NAME)),
    NoteExample(AT_STANDING, Command.GET, FileRequest(RUN_NAME, "logs/sender-0.log")),
    NoteExample(AT_PEER, Command.START_AGENT, _START),
    NoteExample(AT_STANDING, Command.START_AGENT, _BY_HAND),
    NoteExample(AT_PEER, Command.STOP_AGENT, None),
    NoteExample(AT_PEER, Command.AGENT_SOURCE, AgentSource("https://user:password@git.example/agent.git", "main")),
    NoteExample(AT_PEER, Command.USER_COMMAND_1, UserCommand("restart", {"router": "B"})),
    NoteExample(TO_ALL, Command.LOG, None),
    NoteExample(AT_PEER, Command.DRAIN, None),
    NoteExample(AT_PEER, Command.GROUP_JOIN, GroupName("north")),
    NoteExample(AT_PEER, Command.GROUP_LEAVE, GroupName("north")),
    NoteExample(AT_STANDING, Command.ROLE_ASSIGN, _ROLE),
    NoteExample(AT_STANDING, Command.ROLE_UNASSIGN, _ROLE),
]
RESPONSES = [
    NoteExample(REPLIES, Command.STATS, STATISTICS),
    NoteExample(REPLIES, Command.PING, _PONG),
    NoteExample(LAB_REPLIES, Command.PING, _STANDING_PONG),
    NoteExample(REPLIES, Command.OK, None),
    NoteExample(REPLIES, Command.OK, STATISTICS),
    NoteExample(REPLIES, Command.OK, FetchedSource("5" * 40, ["restart"])),
    NoteExample(REPLIES, Command.OK, StartedHandler("restart-1", 42, 5_000_000_000)),
    NoteExample(REPLIES, Command.PROTOCOL_ERROR, Failure("there is no such note: 99 is not a valid Command", "peer")),
    NoteExample(REPLIES, Command.INTERNAL_ERROR, Failure("no agent here", "config")),
    NoteExample(REPLIES, Command.GET, _ABOUT),
    NoteExample(LAB_REPLIES, Command.GET, _LEFT),
    NoteExample(LAB_REPLIES, Command.GET, FilePiece(b"ok\n", 3)),
    NoteExample(REPLIES, Command.LOG, LogLines(["1700000000.000 joined"])),
]
_ENDED = EndedHandler("restart-1", "restart", 0, "", "done\n", 6_000_000_000)
_FAILED = EndedHandler("restart-2", "restart", -9, "it ran for longer than 60 s", "", 7_000_000_000, 1)
NOTIFICATIONS = [
    NoteExample(TOPICS.notifications, command, payload)
    for command, payload in (
        (Command.STATS, STATISTICS),
        (Command.ABNORMAL_DISCONNECT, Failure("its control connection broke", "lost")),
        (Command.NOTIFY_FAIL, FailureReport(Failure("connection refused", "peer"), STATISTICS)),
        (Command.NOTIFY_FAIL, _FAILED),
        (Command.NOTIFY_SUCCESS, STATISTICS),
        (Command.NOTIFY_SUCCESS, _ENDED),
        (Command.NOTIFY_DRAIN_COMPLETE, STATISTICS),
        (Command.GROUP_JOIN, Hello(1_699_999_995_000_000_000, "0.1.0")),
        (Command.GROUP_LEAVE, Failure("left", "lost")),
        (Command.NOTIFY_TEST_STARTED, _START),
        (Command.LOG, HandlerNote("restart-1", ["router B is down"])),
    )
]
NESTED = {PeerOffer, SetOptions}
"""Payloads that occur inside of others only."""


def examples() -> Iterator[tuple[str, Note, int]]:
    """Topic, note, counter."""
    for counter, (topic, command, payload) in enumerate(REQUESTS, 1):
        to = 0 if topic == TO_ALL else PEER.session
        yield topic, _note(NoteKind.REQUEST, command, 1000 + counter, CONDUCTOR, payload, to), counter
    for counter, (topic, command, payload) in enumerate(RESPONSES, 1):
        note = _note(NoteKind.RESPONSE, command, 1000 + counter, PEER, payload, CONDUCTOR.session)
        yield topic, note, counter
    for counter, (topic, command, payload) in enumerate(NOTIFICATIONS, 20):
        number = LAST_COUNTER if command is Command.ABNORMAL_DISCONNECT else counter
        yield topic, _note(NoteKind.NOTIFICATION, command, 0, PEER, payload), number


def _note(
    kind: NoteKind, command: Command, correlation: int, sender: Identity, payload: NotePayload | None, to: int = 0
) -> Note:
    return Note(kind, command, correlation, sender, {} if payload is None else payload.to_payload(), to)
