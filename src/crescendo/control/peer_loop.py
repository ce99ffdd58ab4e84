"""What does a peer process do from its first note to its last?

It joins, prepares when it receives its assignment, starts at the common start time, stops on request, and disconnects.
Every failure is reported in a note with its reason, and a peer that has lost its conductor stops by itself. What to
prepare, run and close is up to each role.
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

    request_timeout_s = 1.0
    """How long to wait for a request before `_idle` is called."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._statistics = Statistics(t_ns=time.monotonic_ns())  # the latest progress
        self._stop_request: Note | None = None  # arrived while the role was working; answered when it has ended

    def run(self) -> None:
        """Run until halted or orphaned."""
        self._peer.join()
        try:
            while not self._peer.orphaned:
                note = self._stop_request or self._peer.next_request(self.request_timeout_s)
                self._stop_request = None
                if note is not None and not self._handle(note):
                    break
                self._idle()
            self._shut_down()
        finally:
            self._peer.close()

    def should_stop(self) -> bool:
        """Whether to stop. A working role calls this a few times a second."""
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
                self._report_failure(err)
        elif note.command in _STOPS:
            self._shut_down()
            self._peer.accept(note, self._statistics)
        else:
            self._receive(note)
        return True

    def _report_failure(self, err: CrescendoError) -> None:
        """Report that this peer's part of the run has failed."""
        self._peer.fail(_failure(err), self._statistics)

    # -- what a role adds ----------------------------------------------------------------------------------------

    @abstractmethod
    def _prepare(self, assignment: dict[str, Any]) -> None:
        """Get ready to start without delay, or raise why that is impossible."""

    @abstractmethod
    def _start(self, t0_ns: int) -> None:
        """Start at that time. May block until the end of the run if it polls `should_stop`."""

    @abstractmethod
    def _shut_down(self) -> None:
        """Close connections and recording, if open: what is reported after this is on disk."""

    def _receive(self, note: Note) -> None:
        """Any other request."""
        self._peer.accept(note)

    def _idle(self) -> None:  # noqa: B027 - most roles have nothing to do between requests
        """Called after each request and each timeout."""


def _failure(err: CrescendoError) -> Failure:
    fault: Fault = "peer"
    if isinstance(err, ConfigError):
        fault = "config"
    elif type(err) is LostError:  # not a subclass: a system that times out raises one, and that is the system's fault
        fault = "lost"
    return Failure(str(err), fault)
