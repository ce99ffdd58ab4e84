"""How are the conductor's decisions executed?

The one place where notes, processes, signals and time meet the pure `step`. It turns notes, process exits, interrupts
and ticks into events, feeds them in, and executes the resulting commands: it sends requests, collects events for the
recording, and returns how the run ended. Takes a bounded number of notes at a time, so that no flood keeps it from the
clock. It decides nothing itself.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from crescendo.control.bus import Bus
from crescendo.control.conductor.commands import AnswerRequest, Conclude, RecordEvent, RunEnding, SendRequest
from crescendo.control.conductor.events import (
    ControlLost,
    Event,
    Interrupted,
    PeerAnswered,
    PeerFailed,
    PeerFinished,
    PeerLost,
    PeerReported,
    SystemBroken,
    SystemEnded,
    Tick,
)
from crescendo.control.conductor.plan import RunPlan
from crescendo.control.conductor.state import RunState
from crescendo.control.conductor.step import begin, step
from crescendo.control.conductor.translation import event_from_note, is_bound, note_for
from crescendo.control.notes import (
    EVERYBODY,
    READING_COMMANDS,
    Command,
    Failure,
    Identity,
    Note,
    NoteKind,
    NotePayload,
    NotUnderstoodError,
)
from crescendo.control.peer import CONDUCTOR, identity_of_this_process
from crescendo.control.peer_answers import PeerFacts, answer_to
from crescendo.control.topics import Topics
from crescendo.control.trust import NoteScope
from crescendo.record.schema import EVENTS
from crescendo.record.writer import Recorder
from crescendo.run.host_clocks import same_clock_for_all
from crescendo.run.peer_process import PeerProcess
from crescendo.systems.instance import ProcessExit

_TICK_NS = 100_000_000
_LISTEN_S = 0.05
_MAX_NOTES = 500
_MAX_BEHIND_NS = 1_000_000_000
"""Deadlines and deaths wait for the notes that are queued, because these may say otherwise; but no longer than this."""


class ConductorLoop:
    """Runs the conductor of one run."""

    def __init__(
        self,
        control_url: str,
        scope: NoteScope,
        plan: RunPlan,
        system_exit: Callable[[], ProcessExit | None],
    ) -> None:
        """`system_exit` says how a process of the system ended; None while all run, and for a foreign system."""
        self._identity = identity_of_this_process(CONDUCTOR, CONDUCTOR)
        self._scope = scope
        self._topics = Topics(scope.name)
        leaving = self._note(NoteKind.NOTIFICATION, Command.ABNORMAL_DISCONNECT, Failure("it was lost", "lost"))
        self._bus = Bus(
            control_url,
            scope,
            self._identity,
            (self._topics.replies, self._topics.notifications, self._topics.peers, self._topics.peer(CONDUCTOR)),
            will=(self._topics.peers, leaving),
        )
        self.clocks = same_clock_for_all()
        self.occurred: Callable[[], list[RecordEvent]] = list  # what happened outside the conductor's knowledge
        self.is_broken: Callable[[], bool] = lambda: False  # on purpose, and for a while
        self._peers: Sequence[PeerProcess] = ()
        self._system_exit = system_exit
        self._system_ended = False
        self._plan = plan
        self._run = begin(plan, time.monotonic_ns())
        self._events: list[RecordEvent] = []
        self._ending: RunEnding | None = None
        self._exited: set[str] = set()
        self._behind_since_ns: int | None = None
        self._unbound = 0

    def connect(self) -> None:
        """Listen, before the first peer joins."""
        self._bus.connect()

    def run(
        self,
        peers: Sequence[PeerProcess],
        *,
        interrupted: Callable[[], bool],
        watch: Callable[[RunState], None],
        on_event: Callable[[RecordEvent], None],
    ) -> RunEnding:
        """Run until the end, with the peers that this process started; others join by themselves.

        `interrupted` says whether the user asked to stop; `watch` may show the progress.
        """
        self._peers = peers
        self._run = begin(self._plan, time.monotonic_ns())
        interrupt_sent = False
        next_tick_ns = 0
        while self._ending is None:
            self._take_notes(on_event)
            self.record(self.occurred(), on_event)
            now_ns = time.monotonic_ns()
            if interrupted() and not interrupt_sent:
                interrupt_sent = True
                self._feed(Interrupted(now_ns), on_event)
            if not self._is_behind(now_ns):
                self._report_system(now_ns, on_event)  # before its peers: their failures are only a consequence
                self._report_exits(now_ns, on_event)
                if now_ns >= next_tick_ns:
                    next_tick_ns = now_ns + _TICK_NS
                    if self.is_broken():
                        self._feed(SystemBroken(now_ns), on_event)
                    self._feed(Tick(now_ns), on_event)
                    watch(self._run)
            if not self._bus.connected:
                self._feed(ControlLost("the connection to the control broker was lost", now_ns), on_event)
        self._record_dropped(on_event)
        return self._ending

    @property
    def connected(self) -> bool:
        """Whether the control broker still delivers requests to peers."""
        return self._bus.connected

    def close(self) -> None:
        """Tell peers that still wait for this conductor that it leaves, and disconnect."""
        if self._bus.connected:
            leaving = self._note(NoteKind.NOTIFICATION, Command.GROUP_LEAVE, Failure("the run is over", "lost"))
            self._bus.publish(self._topics.peers, leaving, qos=1)
        self._bus.close()

    def record(self, events: Sequence[RecordEvent], on_event: Callable[[RecordEvent], None]) -> None:
        """Take events into the recording that the conductor does not decide about."""
        for event in events:
            self._events.append(event)
            on_event(event)

    def record_events(self, recorder: Recorder) -> None:
        """Write the events of the run to the recording."""
        for event in self._events:
            recorder.append(EVENTS, 1, event.t_ns, CONDUCTOR, event.kind, json.dumps(event.detail))

    # -- notes ---------------------------------------------------------------------------------------------------

    def _take_notes(self, on_event: Callable[[RecordEvent], None]) -> None:
        """Process the notes that wait now, but not more than a bounded number."""
        note = self._bus.next(_LISTEN_S)
        taken = 0
        while note is not None and self._ending is None:
            self._take(note, on_event)
            taken += 1
            note = self._bus.next() if taken < _MAX_NOTES else None

    def _is_behind(self, now_ns: int) -> bool:
        """Whether notes still wait that may say that a peer is alive."""
        if not self._bus.waiting:
            self._behind_since_ns = None
            return False
        self._behind_since_ns = self._behind_since_ns or now_ns
        return now_ns - self._behind_since_ns < _MAX_BEHIND_NS

    def _take(self, note: Note | NotUnderstoodError, on_event: Callable[[RecordEvent], None]) -> None:
        now_ns = time.monotonic_ns()
        if isinstance(note, NotUnderstoodError):
            if note.is_request:
                self._reply(note, Command.PROTOCOL_ERROR, Failure(str(note), "peer"))
            return
        if note.kind is NoteKind.REQUEST and not self._is_for_the_run(note, now_ns):
            return
        if not is_bound(self._run, note):
            self._unbound += 1
            return
        event = self._on_our_clock(event_from_note(note, now_ns), note.sender)
        if event is not None:
            self._feed(event, on_event)
        elif note.kind is NoteKind.REQUEST:
            reason = f"the conductor does not carry out {note.command.name}, or not with this payload"
            self._reply(note, Command.PROTOCOL_ERROR, Failure(reason, "peer"))

    def _is_for_the_run(self, request: Note, now_ns: int) -> bool:
        """Whether the run must act on a request; what can be answered at once is answered."""
        if request.to == EVERYBODY and request.command not in READING_COMMANDS:
            return False  # meant for peers, and they refuse it
        facts = PeerFacts(
            self._scope.name,
            self._run.stage.value,
            now_ns,
            time.time_ns(),
            dropped=dict(self._bus.dropped),
            run=self._scope.name,
            lines=[f"{event.t_ns} {event.kind} {json.dumps(event.detail)}"[:500] for event in self._events[-50:]],
        )
        answer = answer_to(request, facts)
        if answer is not None:
            self._reply(request, *answer)
            return False
        if request.command is Command.HALT:
            self._reply(request, Command.OK, None)
        return True

    def _reply(self, request: Note | NotUnderstoodError, command: Command, payload: NotePayload | None) -> None:
        self._respond(request.sender, request.correlation, command, payload)

    def _respond(self, to: Identity, correlation: int, command: Command, payload: NotePayload | None) -> None:
        note = self._note(NoteKind.RESPONSE, command, payload, correlation, to.session)
        self._bus.publish(self._topics.replies, note, qos=1)

    def _note(
        self, kind: NoteKind, command: Command, payload: NotePayload | None, correlation: int = 0, to: int = EVERYBODY
    ) -> Note:
        return Note(kind, command, correlation, self._identity, {} if payload is None else payload.to_payload(), to)

    # -- events --------------------------------------------------------------------------------------------------

    def _feed(self, event: Event, on_event: Callable[[RecordEvent], None]) -> None:
        self._run, commands = step(self._run, event)
        for command in commands:
            match command:
                case SendRequest(peer=peer):
                    joined = self._run.peers[peer].identity
                    timed = self.clocks.on_clock_of("" if joined is None else joined.host, command.payload)
                    note = note_for(replace(command, payload=timed), self._identity, joined)
                    self._bus.publish(self._topics.peer(peer), note, qos=1)
                case AnswerRequest(requester, correlation, reason):
                    failure = Failure(reason, "config") if reason else None
                    self._respond(
                        requester, correlation, Command.PROTOCOL_ERROR if failure else Command.OK, failure
                    )  # fmt: skip
                case RecordEvent():
                    self._events.append(command)
                    on_event(command)
                case Conclude(ending):
                    self._ending = ending

    def _on_our_clock(self, event: Event | None, sender: Identity) -> Event | None:
        """A report with its time on our clock. Where clocks differ, a receiver cannot know responses while it runs."""
        if not self.clocks.differ or not isinstance(event, PeerAnswered | PeerFailed | PeerFinished | PeerReported):
            return event
        statistics = event.statistics
        if statistics is None:
            return event
        t_ns = self.clocks.to_ours(sender.host, statistics.t_ns)
        p99_ns = None if sender.role == "receiver" else statistics.p99_ns
        return replace(event, statistics=msgspec.structs.replace(statistics, t_ns=t_ns, p99_ns=p99_ns))

    def _report_exits(self, now_ns: int, on_event: Callable[[RecordEvent], None]) -> None:
        for peer in self._peers:
            if peer.peer not in self._exited and (reason := peer.exit_reason) is not None:
                self._exited.add(peer.peer)
                self._feed(PeerLost(peer.peer, reason, now_ns), on_event)

    def _report_system(self, now_ns: int, on_event: Callable[[RecordEvent], None]) -> None:
        if not self._system_ended and (ended := self._system_exit()) is not None:
            self._system_ended = True
            self._feed(SystemEnded(ended.how, ended.log_lines, now_ns), on_event)

    def _record_dropped(self, on_event: Callable[[RecordEvent], None]) -> None:
        """Strangers change nothing, but the recording says that there were some."""
        dropped = dict(self._bus.dropped)
        if self._unbound:
            dropped["of another process"] = self._unbound
        if dropped:
            self.record([RecordEvent(time.monotonic_ns(), "notes dropped", dropped)], on_event)
