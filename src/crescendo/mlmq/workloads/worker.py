"""How does a process of clients live from its first note to its last?

As senders and receivers do: join, prepare, start at the moment all share, report every second, close the recording, say
how it went, and leave when told. The event loop runs only while there is something to do on it. A process that has lost
its conductor stops by itself.
"""

import asyncio
import json
import time
from pathlib import Path

import uvloop

from crescendo.control.notes import Command, Failure, Fault, Note, Start, Statistics
from crescendo.control.peer import Peer
from crescendo.load.statistics import Pulse
from crescendo.mlmq.workloads.assignment import posts_of, read_assignment
from crescendo.mlmq.workloads.company import Company
from crescendo.mlmq.workloads.journal import EMPTY, ERROR, OK, OVERLOADED, TIMEOUT, Journal
from crescendo.model.errors import ConfigError, CrescendoError, LostError
from crescendo.record.schema import EVENTS
from crescendo.record.writer import Recorder

_REPORT_NS = 10**9
_STOPS = {Command.STOP_SENDER, Command.HALT}
_OUTCOMES = {OK: "useful", EMPTY: "empty", OVERLOADED: "overloaded", TIMEOUT: "timeouts", ERROR: "errors"}


class ClientWorker:
    """One peer process and its clients. To the conductor it is a sender: it begins at t0 and has an end of its own."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._recorder: Recorder | None = None
        self._journal: Journal | None = None
        self._company: Company | None = None
        self._stop_request: Note | None = None
        self._begun: tuple[int, float] | None = None  # the clock, and the CPU time that was spent by then
        self._pulse = Pulse(time.monotonic_ns())
        self._reported_ns = 0
        self._statistics = Statistics(t_ns=time.monotonic_ns())

    def live(self) -> None:
        """Serve requests until halted or orphaned."""
        try:
            while not self._peer.orphaned:
                note = self._stop_request or self._peer.next_request(1.0)
                self._stop_request = None
                if note is not None and not self._obey(note):
                    break
            self._wind_up()
        finally:
            self._runner.close()

    def _obey(self, note: Note) -> bool:
        """Carry out one request; False when it was the last."""
        match note.command:
            case Command.SET:
                self._prepare(note)
            case Command.START_SENDER:
                self._peer.accept(note)
                self._run(Start.from_payload(note.payload).t0_ns)
            case Command.STOP_SENDER:
                self._wind_up()
                self._peer.accept(note, self._statistics)
            case Command.HALT:
                return False
            case _:
                self._peer.accept(note)
        return True

    def _prepare(self, note: Note) -> None:
        try:
            assignment, experiment = read_assignment(note.payload)
            self._recorder = Recorder(Path(assignment.run_dir), assignment.peer)
            self._journal = Journal(self._recorder)
            posts = posts_of(assignment, experiment)
            self._company = Company(posts, assignment.brokers, assignment.tag, experiment, self._journal)
            self._runner.run(self._company.assemble())
        except CrescendoError as err:
            self._peer.refuse(note, Failure(str(err), _fault_of(err)))
            return
        self._peer.accept(note)

    def _run(self, t0_ns: int) -> None:
        company = self._company
        if company is None:
            return
        self._begun = t0_ns, time.process_time()
        try:
            undisturbed = self._runner.run(company.perform(t0_ns, self._should_stop, self._step))
            self._tell(company, undisturbed)
            self._wind_up()
        except CrescendoError as err:
            self._peer.fail(Failure(str(err), _fault_of(err)), self._statistics)
            return
        if self._stop_request is None:
            self._peer.finish(self._statistics)

    def _should_stop(self) -> bool:
        if self._peer.orphaned:
            return True
        note = self._peer.next_request(0.0)
        if note is not None and note.command in _STOPS:
            self._stop_request = note
            return True
        return False

    def _step(self, now_ns: int) -> None:
        recorder, journal = self._recorder, self._journal
        if recorder is None or journal is None or now_ns - self._reported_ns < _REPORT_NS:
            return
        self._reported_ns = now_ns
        journal.flush()
        recorder.tick(now_ns)
        self._statistics = self._measured(now_ns)
        self._peer.report(self._statistics)

    def _tell(self, company: Company, undisturbed: bool) -> None:
        """Say what the books show, in an event and in the last statistics."""
        found = company.findings
        if not undisturbed:
            found.leave_open("the clients were stopped before their time was over")
        if self._recorder is None or self._journal is None:
            raise LostError("no recording to write to")
        self._journal.flush()
        now_ns = time.monotonic_ns()
        detail = {
            "violations": found.violations,
            "violated": found.violated,
            "unresolved": found.unresolved,
            "untold": found.untold,
        }
        source = self._peer.identity.id
        self._recorder.append(EVENTS, 1, now_ns, source, "conservation", json.dumps(detail))
        self._statistics = self._measured(now_ns)

    def _measured(self, now_ns: int) -> Statistics:
        journal, company = self._journal, self._company
        if journal is None or company is None or self._begun is None:
            return Statistics(t_ns=now_ns)
        rate, cores = self._pulse.beat(now_ns, journal.sent)
        cpu_s = time.process_time() - self._begun[1]
        values = {
            "requests": journal.outcomes.total(),
            **{name: journal.outcomes[outcome] for outcome, name in _OUTCOMES.items()},
            "stored": journal.stored,
            "received": journal.received,
            "unreadable": journal.strange,
            "violations": company.findings.violations,
            "unresolved": company.findings.unresolved,
            "under_way": company.account.under_way,
            "clients": len(company.actors),
            "connects": company.connects,
            "cpu_seconds": cpu_s,
            "busy_share": cpu_s / max((now_ns - self._begun[0]) / 1e9, 1e-9),
        }
        p99_ns = journal.durations.fold(99.0)
        return Statistics(
            now_ns, {}, journal.sent, rate, p99_ns, cores, {name: float(value) for name, value in values.items()}
        )

    def _wind_up(self) -> None:
        """Take the clients home and close the recording; whatever is announced after this is on disk."""
        company, self._company = self._company, None
        recorder, self._recorder = self._recorder, None
        if company is not None:
            self._runner.run(company.leave())
        if recorder is not None:
            recorder.close()


def live_as_clients(peer: Peer) -> None:
    """The whole life of a process of clients."""
    peer.join()
    try:
        ClientWorker(peer).live()
    finally:
        peer.leave()


def _fault_of(err: CrescendoError) -> Fault:
    if isinstance(err, ConfigError):
        return "config"
    # UnansweredError is a LostError to whoever waits for a message; to the run it is a system that does not answer.
    return "lost" if type(err) is LostError else "peer"
