"""What is known about a run that was asked for in the browser?

One directory per job, written by the process that acts: the server adds `job.json` and the experiment's text, the run
process claims it (`claim.json`, which only one process can create), then appends to `live.jsonl` and leaves
`result.json`. The state follows from these files, so a restarted server knows as much as the one before.
"""

import os
import secrets
import time
from enum import StrEnum
from pathlib import Path

from msgspec import Struct
from msgspec.json import encode

from crescendo.processes.ref import ProcessRef, is_alive, process_ref
from crescendo.record.documents import read_or_none, write_document
from crescendo.web.web_directory import NotFoundError, WebDirectory, child_of

LIVE = "live.jsonl"
OUTPUT = "output.log"
STEPS = "steps.json"
EXPERIMENT = "experiment.yml"
ANY_FILE = "--any-file"
"""An argument of the run process: experiments may name files anywhere."""
CLUSTER = "--cluster="
"""An argument of the run process: the file of the cluster whose peers take part."""
_JOB, _CLAIM, _RESULT = "job.json", "claim.json", "result.json"


class JobState(StrEnum):
    """Where a job is. Lost: its process ended and left no result."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"


class Job(Struct, frozen=True):
    """What was asked for."""

    id: str
    experiment: str
    asked_ns: int  # wall clock
    not_before_ns: int = 0
    by: str = ""
    cluster: str = ""  # empty: peers run on this machine
    campaign: str = ""  # the directory of its runs; empty: one run
    shipped: str = ""  # a campaign that comes with Crescendo; empty: the text beside this file


class JobResult(Struct, frozen=True):
    """How it ended. Without a run there is no recording; `problem` says why."""

    state: JobState
    run: str = ""
    outcome: str = ""
    problem: str = ""
    ended_ns: int = 0


class JobFiles:
    """The files of one job."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def job(self) -> Job:
        found = read_or_none(self.directory / _JOB, Job)
        if found is None:
            raise NotFoundError(f"no job is called {self.directory.name!r}; /jobs lists them")
        return found

    @property
    def result(self) -> JobResult | None:
        return read_or_none(self.directory / _RESULT, JobResult)

    @property
    def process(self) -> ProcessRef | None:
        """The process that claimed it."""
        return read_or_none(self.directory / _CLAIM, ProcessRef)

    @property
    def claimed(self) -> bool:
        return (self.directory / _CLAIM).exists()

    @property
    def state(self) -> JobState:
        if (result := self.result) is not None:
            return result.state
        if not self.claimed:
            return JobState.QUEUED
        process = self.process
        if process is None or is_alive(process):  # None: it is being written this moment
            return JobState.RUNNING
        result = self.result  # it may have ended between the two looks
        return JobState.LOST if result is None else result.state

    def claim(self) -> bool:
        """Make this process the one that carries out the job. False if another one did, or it was cancelled."""
        content = encode(process_ref("run", os.getpid()))
        temporary = self.directory / f"claim-{os.getpid()}"
        temporary.write_bytes(content)
        try:
            os.link(temporary, self.directory / _CLAIM)  # fails if it exists, and is never half written
        except FileExistsError:
            return False
        finally:
            temporary.unlink()
        return self.result is None

    def finish(self, result: JobResult) -> None:
        write_document(self.directory / _RESULT, result, mode=0o600)


class Jobs:
    """All jobs of a server."""

    def __init__(self, directory: WebDirectory) -> None:
        self._directory = directory.jobs
        self._ended: set[str] = set()  # a job that has ended stays so, and need not be read again

    def add(
        self, experiment: str, text: str, *, by: str, not_before_ns: int = 0, cluster: str = "", campaign: str = "",
        shipped: str = "",
    ) -> str:  # fmt: skip
        """A new job at the end of the queue."""
        asked_ns = time.time_ns()
        job_id = f"{asked_ns // 1_000_000:013d}-{secrets.token_hex(4)}"
        made = self._directory / f"{job_id}.new"
        made.mkdir(mode=0o700)
        (made / EXPERIMENT).write_text(text, encoding="utf-8")
        job = Job(job_id, experiment, asked_ns, not_before_ns, by, cluster, campaign, shipped)
        write_document(made / _JOB, job, mode=0o600)
        made.rename(self._directory / job_id)  # visible when it is whole
        return job_id

    def get(self, job_id: str) -> JobFiles:
        files = JobFiles(child_of(self._directory, job_id, "job"))
        _ = files.job
        return files

    def all(self) -> list[JobFiles]:
        """In the order in which they were asked for."""
        names = sorted(entry.name for entry in os.scandir(self._directory) if entry.is_dir())
        return [JobFiles(self._directory / name) for name in names if not name.endswith(".new")]

    def unfinished(self) -> list[JobFiles]:
        found = []
        for files in self.all():
            name = files.directory.name
            if name in self._ended:
                continue
            if files.state in {JobState.QUEUED, JobState.RUNNING}:
                found.append(files)
            else:
                self._ended.add(name)
        return found
