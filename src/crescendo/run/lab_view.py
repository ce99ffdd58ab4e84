"""Which processes does a lab have now, and what do they do?

Standing peers, and the conductor and peers of every run of the lab, from their answers to PING and their own reports.
Each entry is of a process that has answered: an old note cannot make one appear. Prints nothing.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from crescendo.control.notes import Command, FailureReport, Identity, Note, Statistics
from crescendo.control.peer import CONDUCTOR
from crescendo.control.request_payloads import Pong
from crescendo.control.trust import NoteScope
from crescendo.model.errors import ConfigError, LostError, PeerError
from crescendo.run.lab_client import LabClient

LEASE_NS = 6 * 10**9
DISCOVER_S = 1.5  # every peer reports at least every 1.2 s
PING_S = 0.5
MAX_SCOPES = 200
_LISTEN_S = 0.1
_FIND_LISTEN_S = 0.3  # between two questions


@dataclass(frozen=True)
class LabProcess:
    """One process of the lab, as it was when it last answered."""

    scope: str
    identity: Identity
    state: str
    run: str
    round_trip_ns: int
    clock_offset_ns: int  # its wall clock minus ours, give or take the round trip
    answered_ns: int
    statistics: Statistics | None = None

    @property
    def is_standing(self) -> bool:
        return self.scope.startswith("lab-")

    def lease_left_ns(self, now_ns: int) -> int:
        return max(LEASE_NS - (now_ns - self.answered_ns), 0)


class LabView:
    """The processes of a lab. Call `refresh` again and again."""

    def __init__(self, client: LabClient) -> None:
        self._client = client
        self._scopes: dict[str, int] = {client.lab.scope.name: 0}  # name -> when it was last heard of
        self._processes: dict[tuple[str, int], LabProcess] = {}
        self._statistics: dict[int, Statistics] = {}
        self._beginnings: dict[tuple[str, str], Note] = {}  # of tests by hand: run and peer -> how it began
        self._handler_ends: dict[tuple[int, str], Note] = {}  # session of an agent and its handler -> how it ended
        self._heard: dict[int, float] = {}  # session -> when it was last heard of
        client.on_notification = self._hear

    def discover(self) -> None:
        """Listen long enough to hear of every run."""
        self._client.listen(DISCOVER_S)

    def refresh(self, timeout_s: float = PING_S) -> list[LabProcess]:
        """Ask every process, and return those that answered within a lease."""
        own = self._client.lab.scope.name
        self._ask(own, timeout_s)  # first: standing peers name the run that they take part in
        for name in [name for name in self._scopes if name != own]:
            self._ask(name, timeout_s)
        now_ns = time.monotonic_ns()
        self._processes = {key: one for key, one in self._processes.items() if one.lease_left_ns(now_ns)}
        self._beginnings = {key: note for key, note in self._beginnings.items() if key[0] in self._scopes}
        sessions = {session for _, session in self._processes}
        self._statistics = {session: one for session, one in self._statistics.items() if session in sessions}
        return sorted(
            (replace(one, statistics=self._statistics.get(key[1])) for key, one in self._processes.items()),
            key=lambda one: (not one.is_standing, one.scope, one.identity.id),
        )

    def find(self, target: str) -> LabProcess:
        """The process of this id; `RUN/ID` where several runs have one."""
        return self.find_all([target])[0]

    def find_all(self, targets: Sequence[str], *, standing_first: bool = True) -> list[LabProcess]:
        """One process for each of them. On a busy machine, some answer to a later question only.

        Where a standing peer and its process have one name, `standing_first` says who is meant.
        """
        deadline_ns = time.monotonic_ns() + LEASE_NS
        seen = self.refresh()
        while not all(_is_known(seen, target, standing_first) for target in targets):
            if time.monotonic_ns() > deadline_ns:
                break
            self._client.listen(_FIND_LISTEN_S)
            seen = self.refresh()
        return [_found(seen, target, standing_first) for target in targets]

    def await_started(self, run: str, peer_id: str, timeout_s: float) -> Note:
        """How the process of a test by hand began. PeerError if it failed, LostError if it says nothing."""
        deadline_s = time.monotonic() + timeout_s
        while (note := self._beginnings.get((run, peer_id))) is None:
            if time.monotonic() > deadline_s:
                raise LostError(f"{peer_id} did not begin test {run} within {timeout_s:g} s; see its LOG")
            self._client.listen(_LISTEN_S)
        if note.command is Command.NOTIFY_FAIL:
            raise PeerError(f"{peer_id}: {FailureReport.from_payload(note.payload).failure.reason}")
        return note

    def await_handler(self, agent: Identity, handler: str) -> Note:
        """How a handler of an agent ended, however long that takes. LostError if the agent is gone."""
        asked_s = time.monotonic()
        while (note := self._handler_ends.get((agent.session, handler))) is None:
            self._client.listen(_LISTEN_S)
            if time.monotonic() - max(self._heard.get(agent.session, 0.0), asked_s) > LEASE_NS / 1e9:
                raise LostError(f"{agent.id} does not report any more")
        return note

    def _ask(self, name: str, timeout_s: float) -> None:
        """Ask every process of this scope. One of which nobody is heard for a lease is forgotten."""
        scope, own = self._client.lab.scope_of(name), self._client.lab.scope.name
        answers = self._client.ping(scope, timeout_s)
        for identity, pong, round_trip_ns in answers:
            self._processes[name, identity.session] = _seen(scope, identity, pong, round_trip_ns)
            if name == own and pong.run:
                self._hear_of(pong.run)
        if answers:
            self._scopes[name] = time.monotonic_ns()
        elif name != own and time.monotonic_ns() - self._scopes[name] > LEASE_NS:
            del self._scopes[name]

    def _hear_of(self, scope: str) -> None:
        if scope in self._scopes or len(self._scopes) < MAX_SCOPES:
            self._scopes[scope] = time.monotonic_ns()

    def _hear(self, note: Note) -> None:
        self._heard[note.sender.session] = time.monotonic()
        if "handler" in note.payload:
            if note.command is not Command.LOG:
                self._handler_ends[note.sender.session, str(note.payload["handler"])] = note
            return
        self._hear_of(note.scope)
        if note.command in {Command.NOTIFY_TEST_STARTED, Command.NOTIFY_FAIL}:
            self._beginnings[note.scope, note.sender.id] = note
        if note.command is Command.STATS:
            try:
                self._statistics[note.sender.session] = Statistics.from_payload(note.payload)
            except PeerError:
                return


def _matching(seen: list[LabProcess], target: str) -> list[LabProcess]:
    run, _, peer_id = target.rpartition("/")
    return [one for one in seen if one.identity.id == peer_id and (not run or one.scope.startswith(run))]


def _is_known(seen: list[LabProcess], target: str, standing_first: bool) -> bool:
    """Whether the process that is meant has answered, and not only another one of its name."""
    found = _matching(seen, target)
    if not found or any(one.is_standing == standing_first for one in found):
        return bool(found)
    if not standing_first:
        return not any(one.run for one in found)  # a standing peer that takes part in something has a process there
    # Nobody conducts a test by hand: behind its process is a standing peer, which has not answered yet.
    conducted = {one.scope for one in seen if one.identity.role == CONDUCTOR}
    return "/" in target or all(one.scope in conducted for one in found)


def _found(seen: list[LabProcess], target: str, standing_first: bool) -> LabProcess:
    found = _matching(seen, target)
    # A standing peer passes requests on to its process in a test by hand; an agent answers for itself.
    preferred = [one for one in found if one.is_standing == standing_first]
    if len(preferred or found) == 1:
        return (preferred or found)[0]
    if not found:
        raise ConfigError(f"no process of this lab is called {target!r}; `peers` lists them")
    names = ", ".join(f"{one.scope}/{one.identity.id}" for one in found)
    raise ConfigError(f"{target!r} is ambiguous; write one of {names}")


def _seen(scope: NoteScope, identity: Identity, pong: Pong, round_trip_ns: int) -> LabProcess:
    asked_ns = pong.sec * 10**9 + pong.usec * 1000  # by our own clock
    offset_ns = pong.realtime_ns - (asked_ns + round_trip_ns // 2)
    return LabProcess(
        scope.name, identity, pong.state, pong.run, round_trip_ns, offset_ns, time.monotonic_ns()
    )  # fmt: skip
