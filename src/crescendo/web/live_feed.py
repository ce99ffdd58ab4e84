"""What does a run process report while it runs?

Steps, events and one sample per second, each as a line of JSON in the directory of the job, from the statistics that
peers report anyway: no Spark, no extra question to anybody. A viewer reads the file, so viewers cost the run nothing.
"""

import time
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from msgspec.json import encode

from crescendo.control.conductor.commands import RecordEvent
from crescendo.control.conductor.state import RunState
from crescendo.record.documents import write_atomically
from crescendo.run.live_sample import sample
from crescendo.run.observer import RunObserver
from crescendo.run.result import RunResult
from crescendo.web.jobs import STEPS
from crescendo.web.run_steps import COLLECT, JUDGE, START, WATCH, RunSteps

_SAMPLE_NS = 1_000_000_000
_BEGINS = {"start": WATCH, "stopping": COLLECT, "concluded": COLLECT}
"""Event of the conductor -> the step that begins with it."""
_MAX_LINES = 200_000  # a run of two days; older viewers stop there, the recording does not


class LiveFeed(RunObserver):
    """Writes what happens to a file. Use close() at the end."""

    def __init__(self, path: Path, steps: RunSteps) -> None:
        self._file: IO[bytes] = path.open("ab", buffering=0)
        self._directory = path.parent
        self._steps = steps
        self._next_ns = 0
        self._lines = 0
        self.run_dir: Path | None = None

    def publish(self, kind: str, **values: Any) -> None:
        """Append one line."""
        if self._lines < _MAX_LINES:
            self._lines += 1
            self._file.write(encode({"kind": kind, "at_ns": time.time_ns(), **values}) + b"\n")

    def close(self) -> None:
        self._file.close()

    def next_run(self, number: int, count: int, levels: str, left_s: float | None) -> None:
        """The next run of a campaign begins, with steps of its own."""
        self._steps.restart()
        self.publish("next", number=number, count=count, levels=levels, left_s=left_s)
        self._note(f"run {number} of {count}: {levels or 'repeat'}")
        self.begin(START)

    def begin(self, step: str) -> None:
        """A step of the run begins, if it has not yet."""
        if self._steps.begin(step):
            self._show_steps()

    def finish(self, *, failed: bool) -> None:
        """The last step is over."""
        self._steps.finish(failed=failed)
        self._show_steps()

    def cluster_progress(self, sentence: str) -> None:
        """What is being done on the hosts of a cluster."""
        if self._steps.begin_for(sentence):
            self._show_steps()
        self._note(sentence)
        self.publish("step", text=sentence)

    def progress(self, step: str) -> None:
        self._note(step)
        self.publish("step", text=step)

    def _show_steps(self) -> None:
        """To viewers, and to a file for viewers who join later: the feed may be long."""
        self.publish("steps", steps=self._steps.document)
        write_atomically(self._directory / STEPS, encode(self._steps.document), mode=0o600, durable=False)

    def _note(self, text: str) -> None:
        """The log of the run: what is printed is kept beside the job."""
        print(f"{datetime.now():%H:%M:%S} {text}", flush=True)

    def on_started(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.publish("directory", run=run_dir.name)

    def on_event(self, event: RecordEvent) -> None:
        self._next_ns = 0  # what it changed is seen at once
        if event.kind in _BEGINS:
            self.begin(_BEGINS[event.kind])
        detail = {key: value for key, value in event.detail.items() if not key.endswith("_ns")}
        self._note(f"{event.kind} {encode(detail).decode() if detail else ''}".strip())
        self.publish("event", event=event.kind, detail=event.detail)

    def on_warning(self, sentence: str) -> None:
        self._note(sentence)
        self.publish("warning", text=sentence)

    def on_recorded(self, result: RunResult) -> None:
        self.begin(JUDGE)
        self.publish("step", text=f"the recording is {result.state.value}")

    def on_trial(self, sentence: str) -> None:
        self.publish("step", text=sentence)

    def on_statistics(self, state: RunState) -> None:
        now_ns = time.monotonic_ns()
        if now_ns >= self._next_ns:
            self._next_ns = now_ns + _SAMPLE_NS
            self.publish("sample", **sample(state, now_ns))
