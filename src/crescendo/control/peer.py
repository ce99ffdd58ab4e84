"""How does a sender or receiver process take part in a run?

It joins, receives requests, answers each of them once, and reports. There is deliberately no heartbeat thread: reports
come from the main loop, so a hanging main loop loses its lease. A peer that has lost its control connection is
orphaned and must stop by itself. Decides nothing; knows neither load nor recording.
"""

import os
import socket
import time

from crescendo import __version__
from crescendo.control import topics
from crescendo.control.bus import Bus
from crescendo.control.notes import (
    Command,
    Failure,
    FailureReport,
    Hello,
    Identity,
    Note,
    NoteKind,
    NotePayload,
    Statistics,
    encode_note,
)

HEARTBEAT_NS = 1_200_000_000
"""Slightly more than a second, so that a main loop that reports every second needs no extra heartbeat."""


def identity_of_this_process(peer_id: str, role: str) -> Identity:
    return Identity(peer_id, role, socket.gethostname(), os.getpid())


class Peer:
    """One process with one role on the control plane. Used from one thread."""

    def __init__(self, control_url: str, identity: Identity) -> None:
        self.identity = identity
        will = self._note(
            NoteKind.NOTIFICATION, Command.ABNORMAL_DISCONNECT, Failure("its control connection broke", "lost")
        )
        self._bus = Bus(
            control_url,
            # The pid makes it unique: a broker disconnects the older of two clients with the same id.
            client_id=f"{identity.id}-{identity.pid}",
            subscriptions=(topics.peer(identity.id), topics.PEERS),
            will=(topics.NOTIFICATIONS, encode_note(will)),
        )
        self._handled: set[tuple[str, int, int]] = set()
        self._statistics: Statistics | None = None
        self._reported_ns = 0
        self._joined = False

    @property
    def orphaned(self) -> bool:
        """Whether the control connection was lost. No stop request can arrive any more, so the peer must stop."""
        return self._joined and not self._bus.connected

    def join(self, timeout_s: float = 10.0) -> None:
        self._bus.connect(timeout_s)
        self._joined = True
        self._reported_ns = time.monotonic_ns()
        self._notify(Command.GROUP_JOIN, Hello(time.time_ns() - time.monotonic_ns(), __version__))

    def next_request(self, timeout_s: float = 0.0) -> Note | None:
        """The next request, each one only once. Renews the lease while it waits; returns early when orphaned."""
        deadline_ns = time.monotonic_ns() + int(timeout_s * 1e9)
        while True:
            now_ns = time.monotonic_ns()
            if now_ns - self._reported_ns >= HEARTBEAT_NS:
                self.report(self._statistics or Statistics(t_ns=now_ns))
            until_ns = min(deadline_ns, self._reported_ns + HEARTBEAT_NS)
            note = self._bus.next(max(until_ns - now_ns, 0) / 1e9)
            if note is not None and self._is_new_request(note):
                return note
            if self.orphaned or (note is None and time.monotonic_ns() >= deadline_ns):
                return None

    def accept(self, request: Note, statistics: Statistics | None = None) -> None:
        """Answer OK: the request has been carried out."""
        self._reply(request, Command.OK, statistics)

    def refuse(self, request: Note, failure: Failure) -> None:
        """Answer that the request cannot be carried out, and whose fault that is."""
        command = Command.INTERNAL_ERROR if failure.fault == "lost" else Command.PROTOCOL_ERROR
        self._reply(request, command, failure)

    def report(self, statistics: Statistics) -> None:
        """Report progress. This is also the heartbeat that renews the lease."""
        self._statistics = statistics
        self._reported_ns = time.monotonic_ns()
        # QoS 0: the next report replaces this one, and repeating an old one would be useless.
        self._notify(Command.STATS, statistics, qos=0)

    def finish(self, statistics: Statistics) -> None:
        """Announce that this peer's part of the run is done. The peer stays connected until it is halted."""
        self._statistics = statistics
        self._notify(Command.NOTIFY_SUCCESS, statistics)

    def fail(self, failure: Failure, statistics: Statistics) -> None:
        """Announce that this peer's part of the run has failed. No further work is expected from this peer."""
        self._statistics = statistics
        self._notify(Command.NOTIFY_FAIL, FailureReport(failure, statistics))

    def close(self) -> None:
        """Flush pending notes and disconnect cleanly, so that no last will is published."""
        self._joined = False
        self._bus.close()

    def _is_new_request(self, note: Note) -> bool:
        key = (note.sender.id, note.sender.pid, note.correlation)
        if note.kind is not NoteKind.REQUEST or key in self._handled:
            return False
        self._handled.add(key)
        return True

    def _reply(self, request: Note, command: Command, payload: NotePayload | None) -> None:
        self._bus.publish(topics.REPLIES, self._note(NoteKind.RESPONSE, command, payload, request.correlation), qos=1)

    def _notify(self, command: Command, payload: NotePayload, qos: int = 1) -> None:
        self._bus.publish(topics.NOTIFICATIONS, self._note(NoteKind.NOTIFICATION, command, payload), qos)

    def _note(self, kind: NoteKind, command: Command, payload: NotePayload | None, correlation: int = 0) -> Note:
        return Note(kind, command, correlation, self.identity, {} if payload is None else payload.to_payload())
