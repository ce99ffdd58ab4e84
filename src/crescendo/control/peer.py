"""How does a sender or receiver process take part in a run?

It joins, receives requests, answers each of them once, and reports. What every peer answers alike is answered here.
There is deliberately no heartbeat thread: reports come from the main loop, so a hanging main loop loses its lease. A
peer that has lost its control connection, or its conductor, is orphaned and must stop by itself. Decides nothing; knows
neither load nor recording.
"""

import os
import secrets
import socket
import time
from collections import deque
from typing import Any, get_args

from crescendo import __version__
from crescendo.control.agent_payloads import AGENT, EndedHandler, HandlerNote
from crescendo.control.bus import Bus
from crescendo.control.notes import (
    AGENT_COMMANDS,
    EVERYBODY,
    READING_COMMANDS,
    Command,
    Failure,
    FailureReport,
    Hello,
    Identity,
    Note,
    NoteKind,
    NotePayload,
    NotUnderstoodError,
    Statistics,
)
from crescendo.control.peer_answers import PeerFacts, answer_to, is_command_for_peers
from crescendo.control.request_payloads import GroupName, LogLevel, PeerOffer
from crescendo.control.topics import Topics
from crescendo.control.trust import NoteScope
from crescendo.model.errors import CrescendoError

CONDUCTOR = "conductor"
"""The id and the role of a run's conductor."""

HEARTBEAT_NS = 1_200_000_000
"""Slightly more than a second, so that a main loop that reports every second needs no extra heartbeat."""

_REMEMBERED_REQUESTS = 4096
_REMEMBERED_WILLS = 256
_LOG_LINES = 100
_MAX_GROUPS = 16


def identity_of_this_process(peer_id: str, role: str) -> Identity:
    return Identity(peer_id, role, socket.gethostname(), os.getpid(), secrets.randbits(63) | 1)


class Peer:
    """One process with one role on the control plane. Used from one thread."""

    def __init__(self, control_url: str, scope: NoteScope, identity: Identity) -> None:
        self.identity = identity
        self.scope = scope
        self.state = "joined"  # what PING and GET say
        self.run = ""
        self.offer: PeerOffer | None = None  # of a standing peer
        self.options: dict[str, Any] = {}
        self.log_level: LogLevel = "info"
        self.conductor_lost = False
        self.lost_sessions: deque[int] = deque(maxlen=_REMEMBERED_WILLS)  # of other processes, by their last wills
        self._topics = Topics(scope.name)
        will = self._note(
            NoteKind.NOTIFICATION, Command.ABNORMAL_DISCONNECT, Failure("its control connection broke", "lost")
        )
        self._bus = Bus(
            control_url,
            scope,
            identity,
            (self._topics.peer(identity.id), self._topics.role(identity.role), self._topics.peers),
            will=(self._topics.notifications, will),
        )
        self._handled: deque[tuple[int, int]] = deque(maxlen=_REMEMBERED_REQUESTS)
        self._lines: deque[str] = deque(maxlen=_LOG_LINES)
        self._groups: set[str] = set()
        self._statistics: Statistics | None = None
        self._reported_ns = 0
        self._joined = False

    @property
    def orphaned(self) -> bool:
        """Whether nobody can ask this peer to stop any more, so that it must stop by itself."""
        return self._joined and (self.conductor_lost or not self._bus.connected)

    def join(self, timeout_s: float = 10.0) -> None:
        self._bus.connect(timeout_s)
        self._joined = True
        self._reported_ns = time.monotonic_ns()
        self.log("joined")
        self._notify(Command.GROUP_JOIN, Hello(time.time_ns() - time.monotonic_ns(), __version__))

    def next_request(self, timeout_s: float = 0.0) -> Note | None:
        """The next request for the role, each one only once. Renews the lease while it waits.

        Returns early when orphaned.
        """
        deadline_ns = time.monotonic_ns() + int(timeout_s * 1e9)
        while True:
            now_ns = time.monotonic_ns()
            if now_ns - self._reported_ns >= HEARTBEAT_NS:
                self.report(self._statistics or Statistics(t_ns=now_ns))
            until_ns = min(deadline_ns, self._reported_ns + HEARTBEAT_NS)
            note = self._bus.next(max(until_ns - now_ns, 0) / 1e9)
            if note is not None and (request := self._request_for_role(note)) is not None:
                return request
            if self.orphaned or (note is None and time.monotonic_ns() >= deadline_ns):
                return None

    def accept(self, request: Note, payload: NotePayload | None = None) -> None:
        """Answer OK: the request has been carried out."""
        self.reply(request, Command.OK, payload)

    def refuse(self, request: Note, failure: Failure) -> None:
        """Answer that the request cannot be carried out, and whose fault that is."""
        command = Command.INTERNAL_ERROR if failure.fault == "lost" else Command.PROTOCOL_ERROR
        self.reply(request, command, failure)

    def reply(self, request: Note | NotUnderstoodError, command: Command, payload: NotePayload | None) -> None:
        note = self._note(NoteKind.RESPONSE, command, payload, request.correlation, request.sender.session)
        self._bus.publish(self._topics.replies, note, qos=1)

    def report(self, statistics: Statistics) -> None:
        """Report progress. This is also the heartbeat that renews the lease."""
        self._statistics = statistics
        self._reported_ns = time.monotonic_ns()
        # QoS 0: the next report replaces this one, and repeating an old one would be useless.
        self._notify(Command.STATS, statistics, qos=0)

    def started(self, payload: NotePayload) -> None:
        """Announce that this peer has been given its start time."""
        self._notify(Command.NOTIFY_TEST_STARTED, payload)

    def finish(self, statistics: Statistics) -> None:
        """Announce that this peer's part of the run is done. The peer stays connected until it is halted."""
        self._statistics = statistics
        self.state = "finished"
        self.log("finished")
        self._notify(Command.NOTIFY_SUCCESS, statistics)

    def fail(self, failure: Failure, statistics: Statistics) -> None:
        """Announce that this peer's part of the run has failed. No further work is expected from this peer."""
        self._statistics = statistics
        self.log(f"failed: {failure.reason}", "error")
        self._notify(Command.NOTIFY_FAIL, FailureReport(failure, statistics))

    def drained(self, statistics: Statistics) -> None:
        """Announce that nothing arrives any more since sending is over."""
        self.log("drained")
        self._notify(Command.NOTIFY_DRAIN_COMPLETE, statistics)

    def ended_handler(self, ended: EndedHandler, *, is_good: bool) -> None:
        """Announce how a handler of an agent ended."""
        self._notify(Command.NOTIFY_SUCCESS if is_good else Command.NOTIFY_FAIL, ended)

    def tell(self, note: HandlerNote) -> None:
        """Pass on what a handler says."""
        self._notify(Command.LOG, note)

    def log(self, line: str, level: LogLevel = "info") -> None:
        """Keep a line for LOG, unless the log level leaves it out."""
        levels = get_args(LogLevel)
        if levels.index(level) <= levels.index(self.log_level):
            self._lines.append(f"{time.time():.3f} {line[:500]}")

    def close(self, *, leaving: bool = True) -> None:
        """Say that this process leaves, flush pending notes and disconnect cleanly: no last will is published."""
        if leaving and self._joined and self._bus.connected:
            self._notify(Command.GROUP_LEAVE, Failure("left", "lost"))
        self._joined = False
        self._bus.close()

    def _request_for_role(self, note: Note | NotUnderstoodError) -> Note | None:
        """The note, if the role must act on it. Everything else is answered or ignored here."""
        if isinstance(note, NotUnderstoodError):
            if note.is_request:
                self.reply(note, Command.PROTOCOL_ERROR, Failure(str(note), "peer"))
            return None
        if note.kind is not NoteKind.REQUEST:
            if note.command is Command.ABNORMAL_DISCONNECT:
                self.lost_sessions.append(note.sender.session)
                self.conductor_lost = self.conductor_lost or note.sender.role == CONDUCTOR
            return None
        key = (note.sender.session, note.correlation)
        if key in self._handled:
            return None
        self._handled.append(key)
        self.log(f"{note.command.name} from {note.sender.id}", "debug")
        if note.to == EVERYBODY and note.command not in READING_COMMANDS:
            reason = f"{note.command.name} must be addressed to the session of one process"
            self.reply(note, Command.PROTOCOL_ERROR, Failure(reason, "peer"))
            return None
        if not is_command_for_peers(note.command):
            self.reply(note, Command.PROTOCOL_ERROR, Failure(f"{note.command.name} is not a request", "peer"))
            return None
        if note.command in {Command.GROUP_JOIN, Command.GROUP_LEAVE}:
            self._change_group(note)
            return None
        if note.command is Command.GET and note.payload:
            return note
        if note.command in AGENT_COMMANDS and self.identity.role == AGENT:
            return note
        answer = answer_to(note, self._facts())
        if answer is None:
            return note
        self.reply(note, *answer)
        return None

    def _change_group(self, note: Note) -> None:
        try:
            name = GroupName.from_payload(note.payload).group
            topic = self._topics.group(name)
        except CrescendoError as err:
            self.refuse(note, Failure(str(err), "peer"))
            return
        if note.command is Command.GROUP_LEAVE:
            self._bus.unsubscribe(topic)
            self._groups.discard(name)
        elif len(self._groups) >= _MAX_GROUPS:
            self.refuse(note, Failure(f"a peer is in at most {_MAX_GROUPS} groups", "config"))
            return
        else:
            self._groups.add(name)
            self._bus.subscribe(topic)
        self.accept(note)

    def _facts(self) -> PeerFacts:
        return PeerFacts(
            self.scope.name,
            self.state,
            time.monotonic_ns(),
            time.time_ns(),
            self._statistics,
            self.options,
            dict(self._bus.dropped),
            tuple(self._lines),
            self.run,
            self.offer,
        )

    def _notify(self, command: Command, payload: NotePayload, qos: int = 1) -> None:
        self._bus.publish(self._topics.notifications, self._note(NoteKind.NOTIFICATION, command, payload), qos)

    def _note(
        self,
        kind: NoteKind,
        command: Command,
        payload: NotePayload | None,
        correlation: int = 0,
        to: int = EVERYBODY,
    ) -> Note:
        return Note(kind, command, correlation, self.identity, {} if payload is None else payload.to_payload(), to)
