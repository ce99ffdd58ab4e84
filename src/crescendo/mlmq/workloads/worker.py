"""How does a process of clients live from its first note to its last?

As senders do: it begins at the moment all share, has an end of its own, and says how it went when the recording is
closed. The event loop runs only while there is something to do on it.
"""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import uvloop

from crescendo.control.notes import Statistics
from crescendo.control.peer import Peer
from crescendo.control.peer_loop import PeerLoop
from crescendo.load.engine.statistics import RateMeter
from crescendo.mlmq.workloads.assignment import WorkloadAssignment, posts_of
from crescendo.mlmq.workloads.client_group import ClientGroup
from crescendo.mlmq.workloads.recording import EMPTY, ERROR, OK, OVERLOADED, TIMEOUT, WorkloadRecording
from crescendo.model.errors import LostError
from crescendo.model.experiment import experiment_from
from crescendo.record.schema import EVENTS
from crescendo.record.writer import Recorder

_REPORT_NS = 10**9
_OUTCOMES = {OK: "useful", EMPTY: "empty", OVERLOADED: "overloaded", TIMEOUT: "timeouts", ERROR: "errors"}


class ClientWorker(PeerLoop):
    """One peer process and its clients. To the conductor it is a sender: it begins at t0 and has an end of its own."""

    def __init__(self, peer: Peer) -> None:
        super().__init__(peer)
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._recorder: Recorder | None = None
        self._journal: WorkloadRecording | None = None
        self._company: ClientGroup | None = None
        self._begun: tuple[int, float] | None = None  # the clock, and the CPU time that was spent by then
        self._pulse = RateMeter(time.monotonic_ns())
        self._reported_ns = 0

    def run(self) -> None:
        with self._runner:
            super().run()

    def _prepare(self, assignment: dict[str, Any]) -> None:
        given = WorkloadAssignment.from_payload(assignment)
        experiment = experiment_from(given.experiment)
        self._recorder = Recorder(Path(given.run_dir), given.peer)
        self._journal = WorkloadRecording(self._recorder)
        posts = posts_of(given, experiment)
        self._company = ClientGroup(posts, given.brokers, given.tag, experiment, self._journal)
        self._runner.run(self._company.assemble())

    def _start(self, t0_ns: int) -> None:
        company = self._company
        if company is None:
            return
        self._begun = t0_ns, time.process_time()
        undisturbed = self._runner.run(company.perform(t0_ns, self.should_stop, self._step))
        self._tell(company, undisturbed)
        self._shut_down()
        if self._stop_request is None:
            self._peer.finish(self._statistics)

    def _step(self, now_ns: int) -> None:
        recorder, recording = self._recorder, self._journal
        if recorder is None or recording is None or now_ns - self._reported_ns < _REPORT_NS:
            return
        self._reported_ns = now_ns
        recording.flush()
        recorder.tick(now_ns)
        self._statistics = self._measured(now_ns)
        self._peer.report(self._statistics)

    def _tell(self, company: ClientGroup, undisturbed: bool) -> None:
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
        recording, company = self._journal, self._company
        if recording is None or company is None or self._begun is None:
            return Statistics(t_ns=now_ns)
        rate, cores = self._pulse.sample(now_ns, recording.sent)
        cpu_s = time.process_time() - self._begun[1]
        values = {
            "requests": recording.outcomes.total(),
            **{name: recording.outcomes[outcome] for outcome, name in _OUTCOMES.items()},
            "stored": recording.stored,
            "received": recording.received,
            "unreadable": recording.strange,
            "violations": company.findings.violations,
            "unresolved": company.findings.unresolved,
            "under_way": company.account.under_way,
            "clients": len(company.actors),
            "connects": company.connects,
            "cpu_seconds": cpu_s,
            "busy_share": cpu_s / max((now_ns - self._begun[0]) / 1e9, 1e-9),
        }
        p99_ns = recording.durations.fold(99.0)
        return Statistics(
            now_ns, {}, recording.sent, rate, p99_ns, cores, {name: float(value) for name, value in values.items()}
        )

    def _shut_down(self) -> None:
        company, self._company = self._company, None
        recorder, self._recorder = self._recorder, None
        if company is not None:
            self._runner.run(company.leave())
        if recorder is not None:
            recorder.close()
