"""What does a run process report while it runs?

Steps, events and one sample per second, each as a line of JSON in the directory of the job, from the statistics that
peers report anyway: no Spark, no extra question to anybody. A viewer reads the file, so viewers cost the run nothing.
"""

import time
from pathlib import Path
from typing import IO, Any

from msgspec.json import encode

from crescendo.control.conductor.commands import RecordEvent
from crescendo.control.conductor.state import PeerState, RunState, Stage
from crescendo.run.observer import RunObserver
from crescendo.run.result import RunResult

_SAMPLE_NS = 1_000_000_000
_MAX_PEERS = 200
_MAX_LINES = 200_000  # a run of two days; older viewers stop there, the recording does not
_RATED = (Stage.RUNNING, Stage.DRAINING, Stage.STOPPING)


class LiveFeed(RunObserver):
    """Writes what happens to a file. Use close() at the end."""

    def __init__(self, path: Path) -> None:
        self._file: IO[bytes] = path.open("ab", buffering=0)
        self._next_ns = 0
        self._lines = 0
        self.run_dir: Path | None = None

    def say(self, kind: str, **values: Any) -> None:
        """Append one line."""
        if self._lines < _MAX_LINES:
            self._lines += 1
            self._file.write(encode({"kind": kind, "at_ns": time.time_ns(), **values}) + b"\n")

    def close(self) -> None:
        self._file.close()

    def progress(self, step: str) -> None:
        self.say("step", text=step)

    def on_started(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.say("directory", run=run_dir.name)

    def on_event(self, event: RecordEvent) -> None:
        self._next_ns = 0  # what it changed is seen at once
        self.say("event", event=event.kind, detail=event.detail)

    def on_warning(self, sentence: str) -> None:
        self.say("warning", text=sentence)

    def on_recorded(self, result: RunResult) -> None:
        self.say("step", text=f"the recording is {result.state.value}")

    def on_trial(self, sentence: str) -> None:
        self.say("step", text=sentence)

    def on_statistics(self, state: RunState) -> None:
        now_ns = time.monotonic_ns()
        if now_ns >= self._next_ns:
            self._next_ns = now_ns + _SAMPLE_NS
            self.say("sample", **sample(state, now_ns))


def sample(state: RunState, now_ns: int) -> dict[str, Any]:
    """The run at this moment, as the live page shows it."""
    elapsed_s = None if state.t0_ns is None else (now_ns - state.t0_ns) / 1e9
    measure_ns = state.plan.measure_ns
    planned_s = None if measure_ns is None else (state.plan.warmup_ns + measure_ns) / 1e9
    return {
        "stage": state.stage.value,
        "phase": _phase(state, now_ns),
        "elapsed_s": elapsed_s,
        "planned_s": planned_s,
        "sender": _role(state, "sender"),
        "receiver": _role(state, "receiver"),
        "peers": [_peer(peer, now_ns) for peer in list(state.peers.values())[:_MAX_PEERS]],
    }


def _phase(state: RunState, now_ns: int) -> str:
    if state.stage is not Stage.RUNNING or state.t0_ns is None:
        return state.stage.value
    if now_ns < state.t0_ns:
        return "about to start"
    return "warm-up" if now_ns - state.t0_ns < state.plan.warmup_ns else "measure"


def _role(state: RunState, role: str) -> dict[str, Any]:
    peers = [peer for peer in state.peers.values() if peer.plan.role == role]
    reports = [peer.statistics for peer in peers if peer.statistics is not None]
    # Senders report no more when they are done: their last rate is not one of now.
    rated = [] if role == "sender" and state.stage is not Stage.RUNNING else reports
    return {
        "rate": sum(report.rate for report in rated) if state.stage in _RATED else 0.0,
        "messages": sum(report.messages for report in reports),
        "p90_ns": max((report.values.second_response_p90_ns or 0 for report in reports), default=0) or None,
        "p99_ns": max((report.p99_ns for report in reports if report.p99_ns is not None), default=None),
        "cpu": sum(report.cpu for report in rated),
    }


def _peer(peer: PeerState, now_ns: int) -> dict[str, Any]:
    report = peer.statistics
    known = {} if report is None else report.values.reported()
    condition = peer.gone or ("stopped" if peer.stopped else "done" if peer.finished else "")
    return {
        "id": peer.plan.id,
        "role": peer.plan.role if peer.identity is None else peer.identity.role,
        "host": "" if peer.identity is None else peer.identity.host,
        "pid": None if peer.identity is None else peer.identity.pid,
        "state": condition or ("ready" if peer.ready else "joined" if peer.joined else "expected"),
        "reason": peer.reason,
        "seen_s": round(max(now_ns - peer.last_seen_ns, 0) / 1e9, 1) if peer.joined else None,
        "rate": None if report is None else report.rate,
        "messages": None if report is None else report.messages,
        "p99_ns": None if report is None else report.p99_ns,
        "cpu": None if report is None else report.cpu,
        "looks": known.get("looks"),
        "failed_looks": known.get("failed_looks"),
    }
