"""What does a peer process do from its first note to its last?

It joins, prepares when it receives its assignment, starts at the common start time, stops on request, and disconnects.
Every failure is reported in a note with its reason, and a peer that has lost its conductor stops by itself. What to
prepare, run and close is up to each role.
"""

import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from crescendo.control.notes import START_COMMANDS, STOP_COMMANDS, Command, Failure, Fault, Note, Start, Statistics
from crescendo.control.peer import CONDUCTOR, Peer
from crescendo.control.peer_launch import UnconductedTest
from crescendo.control.request_payloads import SetOptions, SetRequest, options_from
from crescendo.model.errors import ConfigError, CrescendoError, LostError, PeerError

UNCLAIMED_NS = 180 * 10**9
"""A peer that is not asked for anything in this time leaves; while Spark starts, a conductor asks for nothing."""

_BY_HAND_DELAY_NS = 50_000_000  # between ready and the first message


class PeerLoop(ABC):
    """One peer process, whatever its role."""

    request_timeout_s = 1.0
    """How long to wait for a request before `_idle` is called."""

    def __init__(self, peer: Peer, data: Path) -> None:
        """`data` is the only directory that it writes to; no note can name another one."""
        self._peer = peer
        self._data = data
        self._statistics = Statistics(t_ns=time.monotonic_ns())  # the latest progress
        self._stop_request: Note | None = None  # arrived while the role was working; answered when it has ended
        self._alone = False  # in a test by hand, which nobody conducts
        self._ends_ns: int | None = None  # when it ends by itself

    def run(self, by_hand: UnconductedTest | None = None) -> None:
        """Run until halted or orphaned. A test by hand begins by itself."""
        self._peer.join()
        try:
            unclaimed_until_ns: int | None = time.monotonic_ns() + UNCLAIMED_NS
            if by_hand is not None:
                unclaimed_until_ns = None  # its parent ends it
                self._begin_alone(by_hand)
            while not self._peer.orphaned:
                note = self._stop_request or self._peer.next_request(self.request_timeout_s)
                self._stop_request = None
                if note is not None:
                    unclaimed_until_ns = None
                elif unclaimed_until_ns is not None and time.monotonic_ns() > unclaimed_until_ns:
                    break  # its conductor was gone before it joined
                if note is not None and not self._handle(note):
                    break
                self._idle()
                if self._is_over() and self._peer.state == "running":
                    self._shut_down()
                    self._peer.finish(self._statistics)
            self._shut_down()
            self._peer.log("left")
        except BaseException:
            self._peer.close(leaving=False)  # its parent sees how it ended
            raise
        self._peer.close()

    def should_stop(self) -> bool:
        """Whether to stop. A working role calls this a few times a second."""
        if self._peer.orphaned or self._is_over():
            return True
        note = self._peer.next_request(0.0)
        if note is None:
            return False
        if note.command in STOP_COMMANDS or note.command is Command.HALT:
            self._stop_request = note
            return True
        self._serve(note)
        return False

    def _handle(self, note: Note) -> bool:
        """Carry out one request; False when it was the last."""
        if note.command is Command.HALT:
            self._peer.log("halted")
            self._peer.accept(note)
            return False
        if note.command in START_COMMANDS:
            self._begin(note)
        elif note.command in STOP_COMMANDS:
            self._shut_down()
            self._peer.state = "stopped"
            if (failure := self._failure()) is not None:
                self._peer.refuse(note, failure)
            else:
                self._peer.accept(note, self._statistics)
        else:
            self._serve(note)
        return True

    def _begin(self, note: Note) -> None:
        try:
            start = Start.from_payload(note.payload)
        except CrescendoError as err:
            self._peer.refuse(note, failure_of(err))
            return
        self._peer.accept(note)
        try:
            self._start_at(start.t0_ns)
        except CrescendoError as err:
            self._peer.state = "failed"
            self._report_failure(err)

    def _begin_alone(self, test: UnconductedTest) -> None:
        self._alone = True
        self._peer.log_level = test.log_level
        try:
            self._prepare(test.assignment)
            t0_ns = time.monotonic_ns() + _BY_HAND_DELAY_NS
            self._ends_ns = None if test.ends_after_ns is None else t0_ns + test.ends_after_ns
            self._start_at(t0_ns)
        except CrescendoError as err:
            self._peer.state = "failed"
            self._report_failure(err)

    def _start_at(self, t0_ns: int) -> None:
        self._peer.state = "running"
        self._peer.started(Start(t0_ns))
        self._start(t0_ns)

    def _is_over(self) -> bool:
        """Whether a test by hand has lasted as long as it should."""
        return self._ends_ns is not None and time.monotonic_ns() >= self._ends_ns

    def _serve(self, note: Note) -> None:
        """Carry out a request that may come at any time; a failure is an answer, and ends nothing."""
        try:
            match note.command:
                case Command.SET:
                    self._set(note)
                case Command.FLUSH:
                    self._flush()
                case Command.DRAIN:
                    self._begin_drain()
                case _:
                    self._carry_out(note)
                    return
        except CrescendoError as err:
            self._peer.refuse(note, failure_of(err))
        else:
            self._peer.accept(note)

    def _set(self, note: Note) -> None:
        request = SetRequest.from_payload(note.payload)
        if request.assignment is not None:
            if self._peer.state != "joined":
                raise ConfigError(f"it already has an assignment and is {self._peer.state}")
            try:
                self._prepare(request.assignment)
            except (
                LookupError,
                ValueError,
                TypeError,
                ArithmeticError,
            ) as err:  # of the right types, but contradictory
                raise PeerError(f"the assignment is not valid: {err!r}") from err
            self._peer.state = "ready"
            return
        self._set_options(note, options_from(request.options), request.from_ns)

    def _set_options(self, note: Note, options: SetOptions, from_ns: int | None) -> None:
        """Only what can change while a test is running; the rest is part of its assignment."""
        fixed = [name for name in options.given if name not in {"rate", "log_level"}]
        if fixed:
            raise ConfigError(
                f"{fixed[0]} cannot change in a running test; SET it on a standing peer before {self._start_name}"
            )
        if options.rate is not None:
            if note.sender.role != CONDUCTOR and not self._alone:
                raise ConfigError("the rate of a run is changed by its conductor; ask that")
            self._change_rate(options.rate, from_ns)
        if options.log_level is not None:
            self._peer.log_level = options.log_level
        self._peer.options |= options.given

    @property
    def _start_name(self) -> str:
        return f"START_{self._peer.identity.role.upper()}"

    def _report_failure(self, err: CrescendoError) -> None:
        """Report that this peer's part of the run has failed."""
        self._peer.fail(failure_of(err), self._statistics)

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

    def _carry_out(self, note: Note) -> None:
        """A request that only this role knows; the role answers it, now or later."""
        raise ConfigError(f"{note.command.name} means nothing to a {self._peer.identity.role}")

    def _failure(self) -> Failure | None:
        """What went wrong although it went on; asked when it has stopped."""
        return None

    def _change_rate(self, rate: float, from_ns: int | None) -> None:
        """Send this many messages per second on each connection, from that instant on."""
        raise ConfigError(f"a {self._peer.identity.role} has no rate")

    def _flush(self) -> None:  # noqa: B027 - most roles write what they have within seconds anyway
        """Start to write what is recorded so far."""

    def _begin_drain(self) -> None:  # noqa: B027 - for receivers
        """Sending is over."""

    def _idle(self) -> None:  # noqa: B027 - most roles have nothing to do between requests
        """Called after each request and each timeout."""


def failure_of(err: CrescendoError) -> Failure:
    fault: Fault = "peer"
    if isinstance(err, ConfigError):
        fault = "config"
    elif type(err) is LostError:  # not a subclass: a system that times out raises one, and that is the system's fault
        fault = "lost"
    return Failure(str(err), fault)
