"""Which job runs next, and how is one stopped?

One at a time: two runs on one machine would measure each other. Looks at the files of the jobs again and again, so it
also continues what an earlier server began. A job that has been started but has not claimed its directory yet may be
started again; its processes settle between themselves which one carries it out.
"""

import contextlib
import os
import signal
import sys
import threading
import time

from crescendo.model.errors import ConfigError
from crescendo.processes.child import ChildProcess, launch_child
from crescendo.processes.ref import ProcessRef, is_alive
from crescendo.web.jobs import ANY_FILE, CLUSTER, OUTPUT, JobFiles, JobResult, Jobs, JobState
from crescendo.web.known_clusters import KnownClusters
from crescendo.web.web_directory import WebDirectory

_LOOK_S = 0.3
_CLAIM_S = 30.0  # how long a process may take to import what it needs
_SECOND_SIGNAL_S = 0.3
_KILL_S = 6.0
_STOP_S = 20.0


class RunQueue(threading.Thread):
    """Starts the jobs of a server one after another. Call end() to stop the one under way and the thread."""

    def __init__(
        self, directory: WebDirectory, *, any_file: bool = False, clusters: KnownClusters | None = None
    ) -> None:
        super().__init__(name="queue", daemon=True)
        self.clusters = clusters or KnownClusters()
        self.jobs = Jobs(directory)
        self._directory = directory
        self._any_file = any_file
        self._ended = threading.Event()
        self._starting: tuple[str, float] | None = None
        self._children: list[ChildProcess] = []

    def run(self) -> None:
        while not self._ended.wait(_LOOK_S):
            with contextlib.suppress(OSError):  # a full disk ends neither the thread nor the server
                self.look()

    def look(self) -> None:
        """Start the next job if none is under way."""
        self._children = [child for child in self._children if child.poll() is None]
        waiting = self.jobs.unfinished()
        if any(files.claimed for files in waiting):
            self._starting = None
            return
        now_ns = time.time_ns()
        due = next((files for files in waiting if files.job.not_before_ns <= now_ns), None)
        if due is None:
            return
        if self._starting is not None and self._starting[0] == due.directory.name:
            if time.monotonic() - self._starting[1] < _CLAIM_S and self._children:
                return
            due.finish(JobResult(JobState.FAILED, problem=f"its process did not start; see {due.directory / OUTPUT}"))
            return
        self._starting = due.directory.name, time.monotonic()
        self._start(due)

    def _start(self, files: JobFiles) -> None:
        options = [ANY_FILE] if self._any_file else []
        if cluster := files.job.cluster:
            try:
                options.append(f"{CLUSTER}{self.clusters.path(cluster)}")
            except ConfigError as err:
                files.finish(JobResult(JobState.FAILED, problem=str(err), ended_ns=time.time_ns()))
                return
        paths = (files.directory, self._directory.runs, self._directory.experiments)
        command = [sys.executable, "-m", "crescendo.web.run_process", *map(str, paths), *options]
        # It outlives a killed server; end() stops it.
        self._children.append(launch_child(command, on_fork=None, log=files.directory / OUTPUT))

    def stop(self, job_id: str, *, now: bool) -> None:
        """End a job: a queued one never starts, a running one keeps its recording unless `now`."""
        files = self.jobs.get(job_id)
        match files.state:
            case JobState.QUEUED:
                files.finish(
                    JobResult(JobState.CANCELLED, problem="it was taken out of the queue", ended_ns=time.time_ns())
                )
            case JobState.RUNNING:
                process = files.process
                if process is not None:
                    _signal(process, signal.SIGTERM)
                    if now:
                        threading.Thread(target=_insist, args=(process,), daemon=True).start()
            case state:
                raise ConfigError(f"this job is {state.value} already")

    def end(self) -> None:
        """Stop the run under way as Ctrl-C does, and wait for it. Queued jobs stay in the queue."""
        self._ended.set()
        if self.is_alive():
            self.join()
        running = [process for files in self.jobs.unfinished() if (process := files.process) is not None]
        for process in running:
            _signal(process, signal.SIGTERM)
        deadline_s = time.monotonic() + _STOP_S
        while any(map(is_alive, running)) and time.monotonic() < deadline_s:
            time.sleep(_LOOK_S)
        for process in running:
            _signal(process, signal.SIGKILL)  # its children die with it
        for child in self._children:
            if child.poll() is None:  # started, but has not claimed its job
                child.terminate()
            child.wait()


def _insist(process: ProcessRef) -> None:
    """A second signal aborts; a process that ignores it is killed, and its children die with it."""
    time.sleep(_SECOND_SIGNAL_S)
    _signal(process, signal.SIGTERM)
    deadline_s = time.monotonic() + _KILL_S
    while is_alive(process) and time.monotonic() < deadline_s:
        time.sleep(_SECOND_SIGNAL_S)
    _signal(process, signal.SIGKILL)


def _signal(process: ProcessRef, number: signal.Signals) -> None:
    if is_alive(process):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)
