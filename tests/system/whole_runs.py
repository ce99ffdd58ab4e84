"""Whole runs in separate processes, and the check that none of their processes is left."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from pyspark.sql import SparkSession

from crescendo.pipeline.job import analyze
from crescendo.record.summary import Summary
from crescendo.run.ceiling import with_ceiling

MARK = "CRESCENDO_TEST_MARK"
CRESCENDO = str(Path(sys.executable).with_name("crescendo"))
WITHOUT_ANALYSIS = str(Path(__file__).with_name("without_analysis.py"))


@dataclass
class Session:
    """One invocation of the command and all processes it started; they inherit an environment variable as a mark."""

    process: subprocess.Popen[str]
    mark: str
    out: Path
    started: float = field(default_factory=time.monotonic)

    def finish(self, timeout_s: float = 160) -> subprocess.CompletedProcess[str]:
        try:
            stdout, stderr = self.process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            stdout, stderr = self.process.communicate()
            pytest.fail(f"did not end within {timeout_s} s\n{stdout}\n{stderr}")
        return subprocess.CompletedProcess(self.process.args, self.process.returncode, stdout, stderr)

    def read_until(self, text: str) -> str:
        """Its output, up to and including the line that contains the text."""
        output = ""
        for line in self.process.stdout or ():
            output += line
            if text in line:
                break
        return output

    def family(self) -> list[psutil.Process]:
        return [process for process in psutil.process_iter() if _mark_of(process) == self.mark]

    def peer(self, role: str) -> psutil.Process:
        """The process of one role."""
        for process in self.family():
            with contextlib.suppress(psutil.Error):
                if f"peer {role}" in " ".join(process.cmdline()):
                    return process
        pytest.fail(f"no {role} is running")

    def run_dir(self) -> Path:
        directories = [path for path in self.out.iterdir() if path.is_dir() and not path.is_symlink()]
        assert len(directories) == 1, directories
        return directories[0]

    def manifest(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.run_dir() / "manifest.json").read_text())
        return document

    def wait_for_measure(self, timeout_s: float = 60) -> None:
        """Wait until the run is in its measure phase: the warm-up is over."""
        manifest = self.wait_for_start(timeout_s)
        time.sleep(max(0.0, manifest.stat().st_mtime + 2.0 - time.time()))

    def wait_for_start(self, timeout_s: float = 60) -> Path:
        """Wait until the load begins, which the manifest shows."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, AssertionError, ValueError):
                manifest = self.run_dir() / "manifest.json"
                if manifest.exists():
                    return manifest
            if self.process.poll() is not None:
                pytest.fail(f"ended before the measure phase: {self.process.communicate()}")
            time.sleep(0.02)
        pytest.fail("never started")


def _mark_of(process: psutil.Process) -> str | None:
    try:
        return process.environ().get(MARK) if process.status() != psutil.STATUS_ZOMBIE else None
    except (psutil.Error, OSError):
        return None


class Launcher:
    """Starts whole runs into one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.sessions: list[Session] = []

    def __call__(self, *arguments: str, out: Path | None = None) -> Session:
        """Start `crescendo ARGUMENTS --out …`, as a user would."""
        out = out or self._directory / "runs"
        options = ["--out", str(out)] if arguments[0] in {"run", "try", "demo"} else []
        return self._start([CRESCENDO, *arguments, *options], out)

    def without_analysis(self, experiment: Path, *options: str) -> Session:
        """Run an experiment without analysis; `judged` gives the verdict."""
        out = self._directory / "runs"
        return self._start([sys.executable, WITHOUT_ANALYSIS, str(experiment), str(out), *options], out)

    def _start(self, arguments: list[str], out: Path) -> Session:
        mark = uuid.uuid4().hex
        process = subprocess.Popen(
            arguments,
            env={**os.environ, MARK: mark},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.sessions.append(Session(process, mark, out))
        return self.sessions[-1]


@contextlib.contextmanager
def launching(directory: Path) -> Iterator[Launcher]:
    """A launcher; afterwards assert that none of the processes of its runs is left."""
    launcher = Launcher(directory)
    yield launcher
    for session in launcher.sessions:
        if session.process.poll() is None:
            session.process.send_signal(signal.SIGTERM)
            session.process.communicate(timeout=20)
    deadline = time.monotonic() + 5
    left = [process for session in launcher.sessions for process in session.family()]
    while left and time.monotonic() < deadline:
        time.sleep(0.1)
        left = [process for session in launcher.sessions for process in session.family()]
    named = [process.cmdline() for process in left if process.is_running()]
    for process in left:
        process.kill()
    assert not named, f"left behind: {named}"


def judged(session: Session, spark: SparkSession) -> Summary:
    """The summary that `crescendo run` would give, from a Spark session that is already running."""
    run_dir = session.run_dir()
    return analyze(run_dir, spark, lambda _: None, finish=with_ceiling)


def write_experiment(path: Path, **changes: Any) -> Path:
    """A small steady load on the relay, changed by keywords."""
    document: dict[str, Any] = {
        "name": "trial",
        "workload": {"senders": 2, "receivers": 2, "rate": 500, "size": 256},
        "phases": {"warmup": "1s", "measure": "10s", "drain": "5s"},
    }
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(document.get(key), dict)
        document[key] = {**document[key], **value} if both else value
    # In a few seconds on a busy machine, one late thread costs a percent of the rate; these tests tolerate that.
    if isinstance(document["workload"], dict) and document["workload"].get("rate"):
        document.setdefault("checks", {"lost": 0, "rate": ">= 0.8 of offered"})
    path.write_text(yaml.safe_dump(document))
    return path
