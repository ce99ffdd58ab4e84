"""How does a client process run, from its first note to its last?

Like a sender: it starts at the common start time, ends by itself, and reports its statistics when the recording is
closed. The event loop runs only while there is work for it.
"""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import uvloop

from crescendo.control.notes import Statistics
from crescendo.control.peer import Peer
from crescendo.control.peer_launch import UnconductedTest
from crescendo.control.peer_loop import PeerLoop
from crescendo.load.engine.statistics import RateMeter
from crescendo.mlmq.workloads.assignment import WorkloadAssignment, client_identities
from crescendo.mlmq.workloads.client_group import ClientGroup
from crescendo.mlmq.workloads.recording import EMPTY, ERROR, OK, OVERLOADED, TIMEOUT, WorkloadRecording
from crescendo.model.errors import LostError
from crescendo.model.experiment_file import experiment_from
from crescendo.model.peer_statistics import client_statistics
from crescendo.record.schema import EVENTS
from crescendo.record.writer import Recorder

_REPORT_NS = 10**9


class ClientWorker(PeerLoop):
    """One peer process and its clients. To the conductor it is a sender: it starts at t0 and ends by itself."""

    def __init__(self, peer: Peer, data: Path) -> None:
        super().__init__(peer, data)
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._recorder: Recorder | None = None
        self._recording: WorkloadRecording | None = None
        self._group: ClientGroup | None = None
        self._started: tuple[int, float] | None = None  # the clock, and the CPU time spent by then
        self._rate_meter = RateMeter(time.monotonic_ns())
        self._reported_ns = 0

    def run(self, by_hand: UnconductedTest | None = None) -> None:
        with self._runner:
            super().run(by_hand)

    def _prepare(self, assignment: dict[str, Any]) -> None:
        given = WorkloadAssignment.from_payload(assignment)
        experiment = experiment_from(given.experiment)
        self._recorder = Recorder(self._data, self._peer.identity.id, durable=given.durable)
        self._recording = WorkloadRecording(self._recorder)
        identities = client_identities(given, experiment)
        self._group = ClientGroup(identities, given.brokers, given.tag, experiment, self._recording)
        self._runner.run(self._group.connect())

    def _start(self, t0_ns: int) -> None:
        group = self._group
        if group is None:
            return
        self._started = t0_ns, time.process_time()
        completed = self._runner.run(group.run(t0_ns, self.should_stop, self._step))
        self._record_findings(group, completed)
        self._shut_down()
        if self._stop_request is None:
            self._peer.finish(self._statistics)

    def _step(self, now_ns: int) -> None:
        recorder, recording = self._recorder, self._recording
        if recorder is None or recording is None or now_ns - self._reported_ns < _REPORT_NS:
            return
        self._reported_ns = now_ns
        recording.flush()
        recorder.tick(now_ns)
        self._statistics = self._measured(now_ns)
        self._peer.report(self._statistics)

    def _record_findings(self, group: ClientGroup, completed: bool) -> None:
        """Record the findings, in an event and in the last statistics."""
        findings = group.findings
        if not completed:
            findings.add_unresolved("the clients were stopped early")
        if self._recorder is None or self._recording is None:
            raise LostError("no recording to write to")
        self._recording.flush()
        now_ns = time.monotonic_ns()
        detail = {
            "violations": findings.violations,
            "violated": findings.violation_texts,
            "unresolved": findings.unresolved,
            "untold": findings.unresolved_texts,
        }
        source = self._peer.identity.id
        self._recorder.append(EVENTS, 1, now_ns, source, "conservation", json.dumps(detail))
        self._statistics = self._measured(now_ns)

    def _measured(self, now_ns: int) -> Statistics:
        recording, group = self._recording, self._group
        if recording is None or group is None or self._started is None:
            return Statistics(t_ns=now_ns)
        rate, cores = self._rate_meter.sample(now_ns, recording.sent)
        cpu_s = time.process_time() - self._started[1]
        measured = client_statistics(
            requests=recording.outcomes.total(),
            useful=recording.outcomes[OK],
            empty=recording.outcomes[EMPTY],
            overloaded=recording.outcomes[OVERLOADED],
            timeouts=recording.outcomes[TIMEOUT],
            errors=recording.outcomes[ERROR],
            stored=recording.stored,
            received=recording.received,
            unreadable=recording.unreadable,
            violations=group.findings.violations,
            unresolved=group.findings.unresolved,
            under_way=group.account.in_flight,
            clients=len(group.actors),
            connects=group.connects,
            cpu_seconds=cpu_s,
            busy_share=cpu_s / max((now_ns - self._started[0]) / 1e9, 1e-9),
        )
        p99_ns = recording.durations.fold(99.0)
        return Statistics(now_ns, {}, recording.sent, rate, p99_ns, cores, measured)

    def _flush(self) -> None:
        if self._recorder is not None:
            self._recorder.flush()

    def _shut_down(self) -> None:
        group, self._group = self._group, None
        recorder, self._recorder = self._recorder, None
        if group is not None:
            self._runner.run(group.close())
        if recorder is not None:
            recorder.close()
