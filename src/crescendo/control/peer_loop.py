"""How does a peer process live from its first note to its last?

Join, prepare when it is given its assignment, start at the moment all share, stop when told, leave. Whatever goes wrong
is said in a note with its reason, and a peer that has lost its conductor stops by itself. What there is to prepare, to
do and to close is the business of each role.
"""

import time
from abc import ABC, abstractmethod
from typing import Any

from crescendo.control.notes import Command, Failure, Fault, Note, Start, Statistics
from crescendo.control.peer import Peer
from crescendo.model.errors import ConfigError, CrescendoError, LostError

_STARTS = {Command.START_SENDER, Command.START_RECEIVER, Command.START_INSPECTOR}
_STOPS = {Command.STOP_SENDER, Command.STOP_RECEIVER, Command.STOP_INSPECTOR}


class PeerLoop(ABC):
    """One peer process, whatever its role."""

    pause_s = 1.0
    """How long it waits for a request before it sees to itself."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._statistics = Statistics(t_ns=time.monotonic_ns())  # the last word about what was done
        self._stop_request: Note | None = None  # came while the role was at work; answered when that has ended

    def run(self) -> None:
        """All of it, until halted or orphaned."""
        self._peer.join()
        try:
            while not self._peer.orphaned:
                note = self._stop_request or self._peer.next_request(self.pause_s)
                self._stop_request = None
                if note is not None and not self._handle(note):
                    break
                self._idle()
            self._shut_down()
        finally:
            self._peer.leave()

    def should_stop(self) -> bool:
        """Whether to come to an end. For a role that is at work, a few times a second."""
        if self._peer.orphaned:
            return True
        note = self._peer.next_request(0.0)
        if note is None:
            return False
        if note.command in _STOPS or note.command is Command.HALT:
            self._stop_request = note
            return True
        self._receive(note)
        return False

    def _handle(self, note: Note) -> bool:
        """Carry out one request; False when it was the last."""
        if note.command is Command.HALT:
            return False
        if note.command is Command.SET:
            try:
                self._prepare(note.payload)
            except CrescendoError as err:
                self._peer.refuse(note, _failure(err))
            else:
                self._peer.accept(note)
        elif note.command in _STARTS:
            self._peer.accept(note)
            try:
                self._start(Start.from_payload(note.payload).t0_ns)
            except CrescendoError as err:
                self._give_up(err)
        elif note.command in _STOPS:
            self._shut_down()
            self._peer.accept(note, self._statistics)
        else:
            self._receive(note)
        return True

    def _give_up(self, err: CrescendoError) -> None:
        """The own part of the run has failed."""
        self._peer.fail(_failure(err), self._statistics)

    # -- what a role adds ----------------------------------------------------------------------------------------

    @abstractmethod
    def _prepare(self, assignment: dict[str, Any]) -> None:
        """Get ready to start at once, or raise what hinders it."""

    @abstractmethod
    def _start(self, t0_ns: int) -> None:
        """Begin at that moment. May take until the end of the run, if it asks `should_stop` meanwhile."""

    @abstractmethod
    def _shut_down(self) -> None:
        """Close connections and recording, if they are open: whatever is announced after this is on disk."""

    def _receive(self, note: Note) -> None:
        """Any other request."""
        self._peer.accept(note)

    def _idle(self) -> None:  # noqa: B027 - most roles have nothing to do between requests
        """Called after each request and each pause."""


def _failure(err: CrescendoError) -> Failure:
    fault: Fault = "peer"
    if isinstance(err, ConfigError):
        fault = "config"
    elif type(err) is LostError:  # a system that does not answer in time may be one too, but is its own fault
        fault = "lost"
    return Failure(str(err), fault)
