"""Whole runs without analysis, whose processes are stopped for a while, and what their recordings say about it.

The processes are real and so are the signals: SIGSTOP and SIGCONT, to a sender, a receiver or the relay. Expected times
come from the clock of the test, around its signals.
"""

import json
import os
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import crescendo
from crescendo.model.arrays import Int64s

SENDER, RECEIVER, RELAY = "sender", "receiver", "relay"


class Pause(NamedTuple):
    """Stop a process this long after the start of the run."""

    role: str
    at_s: float
    duration_s: float


class Paused(NamedTuple):
    """When a process was stopped and continued: all of this time it stood still, and a little more."""

    role: str
    begun_ns: int
    ended_ns: int


class PausingObserver(crescendo.RunObserver):
    """Carries out pauses from the start of a run on."""

    def __init__(self, pauses: list[Pause]) -> None:
        self._pauses = pauses
        self._thread = threading.Thread(target=self._carry_out)
        self.paused: list[Paused] = []

    def on_event(self, event: Any) -> None:
        if event.kind == "start":
            self._thread.start()

    def finish(self) -> None:
        self._thread.join()
        assert len(self.paused) == len(self._pauses)

    def _carry_out(self) -> None:
        """In order of time; pauses may overlap."""
        started_s = time.monotonic()
        pids = {pause.role: _child(pause.role) for pause in self._pauses}
        signals = [(pause.at_s, signal.SIGSTOP, pause) for pause in self._pauses]
        signals += [(pause.at_s + pause.duration_s, signal.SIGCONT, pause) for pause in self._pauses]
        begun_ns: dict[Pause, int] = {}
        try:
            for at_s, number, pause in sorted(signals):
                time.sleep(max(started_s + at_s - time.monotonic(), 0))
                ended_ns = time.monotonic_ns()
                os.kill(pids[pause.role], number)
                if number == signal.SIGSTOP:
                    begun_ns[pause] = time.monotonic_ns()  # this process may have been held up just before the signal
                else:
                    self.paused.append(Paused(pause.role, begun_ns[pause], ended_ns))
        finally:
            for pid in pids.values():
                os.kill(pid, signal.SIGCONT)


def _child(role: str) -> int:
    """The process of this role that this process has started."""
    mark = b"crescendo.systems.relay" if role == RELAY else role.encode()
    for path in Path("/proc").iterdir():
        if not path.name.isdigit():
            continue
        try:
            words = (path / "cmdline").read_bytes().split(b"\0")
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has ended
        if parent == os.getpid() and mark in words and (role == RELAY or b"crescendo.cli.launched_peer" in words):
            return int(path.name)
    raise AssertionError(f"no process of a {role}")


class Delays:
    """What a recording says about its delays, message by message."""

    def __init__(self, run_dir: Path, paused: list[Paused]) -> None:
        self.run_dir, self.paused = run_dir, paused
        sent = _read(run_dir, "sent")
        order = np.lexsort((sent["seq"], sent["sender"]))
        self.sender, self.seq = sent["sender"][order], sent["seq"][order]
        self.intended_ns, self.sent_ns = sent["intended_ns"][order], sent["sent_ns"][order]
        self.own_ns = np.maximum(self.sent_ns - self.intended_ns, 0)
        self.rows = _read(run_dir, "own_delay")
        for sender, first, last, own_ns in zip(*self.rows.values(), strict=True):
            self.own_ns[(self.sender == sender) & (self.seq >= first) & (self.seq <= last)] = own_ns
        received = _read(run_dir, "received")
        order = np.argsort(received["arrival"])
        self.received_seq = received["seq"][order]
        self.received_ns, self.received_intended_ns = received["received_ns"][order], received["intended_ns"][order]
        self.transfer_ns = self.received_ns - received["sent_ns"][order]
        self.read_late_ns: Int64s = np.zeros(len(order), np.int64)
        for _, first, last, late_ns in zip(*_read(run_dir, "read_delay").values(), strict=True):
            self.read_late_ns[first : last + 1] = late_ns
        events = _read(run_dir, "events")
        self.stalls = [
            json.loads(detail) for kind, detail in zip(events["kind"], events["detail"], strict=True) if kind == "stall"
        ]
        self.statistics = {
            peer["id"]: peer["statistics"] for peer in json.loads((run_dir / "manifest.json").read_text())["peers"]
        }

    def own_between(self, begun_ns: int, ended_ns: int) -> Int64s:
        """The own delay of messages that were due in this time."""
        found: Int64s = self.own_ns[(self.intended_ns >= begun_ns) & (self.intended_ns < ended_ns)]
        return found

    def late_between(self, begun_ns: int, ended_ns: int) -> Int64s:
        """By how much messages that were due in this time were sent after that."""
        chosen = (self.intended_ns >= begun_ns) & (self.intended_ns < ended_ns)
        found: Int64s = (self.sent_ns - self.intended_ns)[chosen]
        return found

    def longest_stall_ns(self, role: str, begun_ns: int, ended_ns: int) -> int:
        """The longest stall of this role that touches this time."""
        return max(
            (
                stall["duration_ns"]
                for stall in self.stalls
                if stall["role"] == role
                and stall["from_ns"] < ended_ns
                and stall["from_ns"] + stall["duration_ns"] > begun_ns
            ),
            default=0,
        )


def excerpt(run_dir: Path, into: Path, from_ns: int, to_ns: int, checks: dict[str, str]) -> Path:
    """The same recording, whose measure phase is only this time, with these checks."""
    shutil.copytree(run_dir, into, copy_function=os.link)
    manifest = json.loads((run_dir / "manifest.json").read_text())
    end_ns = manifest["phases"][-1]["end_ns"]
    manifest["phases"] = [
        {"name": "measure", "start_ns": from_ns, "end_ns": to_ns},
        {"name": "drain", "start_ns": to_ns, "end_ns": max(to_ns, end_ns)},
    ]
    manifest["experiment"]["checks"] = checks
    manifest["run"] = into.name
    (into / "manifest.json").unlink()  # a link to the original
    (into / "manifest.json").write_text(json.dumps(manifest))
    return into


def _read(run_dir: Path, table: str) -> dict[str, Any]:
    parts = sorted((run_dir / table).glob("*.parquet"))
    if not parts:
        return {}
    whole = pa.concat_tables([pq.read_table(part) for part in parts])
    return {name: whole[name].to_numpy() for name in whole.column_names}


def run_paused(directory: Path, workload: list[dict[str, Any]], seconds: float, pauses: list[Pause]) -> Delays:
    """Run these groups through the relay, with these pauses."""
    path = directory / "paused.yml"
    document = {
        "name": "paused",
        "system": {"kind": "loopback"},
        "workload": [{"size": 64, "settle": "at-least-once", **group} for group in workload],
        "phases": {"warmup": 0, "measure": f"{round(seconds * 1000)}ms", "drain": "10s"},
        "checks": {"lost": 0},
    }
    path.write_text(json.dumps(document))  # which is YAML, too
    observer = PausingObserver(pauses)
    result = crescendo.run(path, out=directory, observer=observer, analyze=False)
    observer.finish()
    assert result.state.value == "sealed"
    return Delays(result.run_dir, observer.paused)
