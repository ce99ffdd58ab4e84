"""How does a process ask the standing peers of its lab?

A request is published, and answers to it are collected until there are enough or the time is over. Each answer is
authentic and repeats the random number of its request, so it is neither forged nor an old one. Decides nothing.
"""

import secrets
import time
from collections.abc import Callable

from crescendo.control.bus import Bus
from crescendo.control.notes import EVERYBODY, Command, Failure, Identity, Note, NoteKind, NotePayload
from crescendo.control.peer import identity_of_this_process
from crescendo.control.request_payloads import Ping, Pong
from crescendo.control.topics import Topics
from crescendo.control.trust import Lab, NoteScope
from crescendo.model.errors import LostError, PeerError

PING_S = 1.0
REQUEST_S = 10.0
_POLL_S = 0.1


class LabClient:
    """One connection to a lab, and to its runs. Used from one thread. Use as a context manager, or call close()."""

    def __init__(self, url: str, lab: Lab, peer_id: str, *, listen: bool = False) -> None:
        """`listen` also to the notifications of every run of the lab."""
        self.lab = lab
        self._identity = identity_of_this_process(peer_id, "control")
        every = Topics("+")
        lost = Failure("it was lost", "lost").to_payload()
        will = Note(NoteKind.NOTIFICATION, Command.ABNORMAL_DISCONNECT, 0, self._identity, lost)
        self._bus = Bus(
            url,
            lab.scope_of,
            self._identity,
            (every.replies, *((every.notifications,) if listen else ())),
            will=(Topics(lab.scope.name).peers, will),
        )
        self.on_notification: Callable[[Note], None] = lambda note: None

    def connect(self, timeout_s: float = 5.0) -> None:
        self._bus.connect(timeout_s)

    def close(self) -> None:
        self._bus.close()

    @property
    def connected(self) -> bool:
        return self._bus.connected

    def ping(
        self, scope: NoteScope, timeout_s: float = PING_S, enough: int | None = None
    ) -> list[tuple[Identity, Pong, int]]:
        """Every process of the scope that answers: who, what, and after how many nanoseconds.

        Returns at once when `enough` have answered.
        """
        sent_ns = time.monotonic_ns()  # before the wall clock is read, so that an answer lies between both readings
        seconds, micros = divmod(time.time_ns() // 1000, 1_000_000)
        correlation = self._publish(
            Topics(scope.name).peers, Command.PING, Ping(seconds, micros).to_payload(), EVERYBODY
        )
        answers: list[tuple[Identity, Pong, int]] = []
        while len(answers) != enough and (note := self._answer(correlation, sent_ns + int(timeout_s * 1e9))):
            if note.command is Command.PING:
                answers.append((note.sender, Pong.from_payload(note.payload), time.monotonic_ns() - sent_ns))
        return answers

    def ask(
        self,
        scope: NoteScope,
        peer: Identity,
        command: Command,
        payload: NotePayload | None = None,
        timeout_s: float = REQUEST_S,
    ) -> Note:
        """The answer of one process. PeerError if it refuses, LostError if it does not answer."""
        content = {} if payload is None else payload.to_payload()
        correlation = self._publish(Topics(scope.name).peer(peer.id), command, content, peer.session)
        answer = self._answer(correlation, time.monotonic_ns() + int(timeout_s * 1e9))
        if answer is None:
            raise LostError(f"{peer.id} did not answer {command.name} within {timeout_s:g} s")
        if answer.command in {Command.PROTOCOL_ERROR, Command.INTERNAL_ERROR}:
            raise PeerError(f"{peer.id}: {Failure.from_payload(answer.payload).reason}")
        return answer

    def listen(self, timeout_s: float) -> None:
        """Pass notifications on for a while."""
        deadline_ns = time.monotonic_ns() + int(timeout_s * 1e9)
        self._answer(0, deadline_ns)

    def __enter__(self) -> "LabClient":
        self.connect()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _publish(self, topic: str, command: Command, payload: dict[str, object], to: int) -> int:
        correlation = secrets.randbits(62) | 1
        self._bus.publish(topic, Note(NoteKind.REQUEST, command, correlation, self._identity, payload, to), qos=1)
        return correlation

    def _answer(self, correlation: int, deadline_ns: int) -> Note | None:
        """The next answer to this request, until the deadline."""
        while (left_ns := deadline_ns - time.monotonic_ns()) > 0:
            note = self._bus.next(min(left_ns / 1e9, _POLL_S))
            if not isinstance(note, Note):
                if not self._bus.connected:
                    raise LostError("the connection to the control broker was lost")
                continue
            if note.kind is NoteKind.RESPONSE and note.correlation == correlation:
                return note
            if note.kind is NoteKind.NOTIFICATION:
                self.on_notification(note)
        return None
