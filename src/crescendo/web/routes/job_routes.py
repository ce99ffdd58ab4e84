"""The queue and the live page: start, watch, change the rate, stop."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response, StreamingResponse

from crescendo.model.errors import ConfigError
from crescendo.record.campaign_journal import CAMPAIGN_FILE
from crescendo.record.contained_files import file_fault
from crescendo.run.startable import check_startable
from crescendo.web.jobs import LIVE, OUTPUT, STEPS, JobFiles, JobState
from crescendo.web.known_clusters import HERE
from crescendo.web.page_routes import action, page, services_of, session_of
from crescendo.web.rate_requests import ask_for_rate
from crescendo.web.run_steps import steps_of
from crescendo.web.web_access import Role

ROUTES = APIRouter(tags=["jobs"])
_LOOK_S = 0.25
_ALIVE_S = 15.0
_PIECE_BYTES = 256 * 1024
_TAIL_BYTES = 64 * 1024
_LISTED = 100


class StartBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    experiment: str = Field(max_length=200)
    start_at: str = Field(default="", max_length=40, description="ISO 8601 local time; empty: when the lab is free")
    cluster: str = Field(default=HERE, max_length=200, description="empty: peers run on this machine")


class StopBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    now: bool = Field(default=False, description="abort; otherwise the recording is closed first")


class RateBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    rate: float = Field(gt=0, le=1e9, description="messages per second of each sending connection")


@page(ROUTES, "/jobs", "jobs.html.j2")
def jobs(request: Request) -> dict[str, Any]:
    return {"jobs": job_summaries(request)}


@page(ROUTES, "/jobs/{job_id}", "job.html.j2")
def job(request: Request, job_id: str) -> dict[str, Any]:
    services = services_of(request)
    files = services.queue.jobs.get(job_id)
    ahead = [one.directory.name for one in services.queue.jobs.unfinished()]
    name = files.directory.name
    return _summary(files) | {
        "ahead": ahead.index(name) if name in ahead else 0,
        "log": _tail(files.directory / OUTPUT),
        "steps": _steps(files),
        "begun": bool(files.job.campaign) and (services.directory.runs / files.job.campaign / CAMPAIGN_FILE).is_file(),
    }


@action(ROUTES, "POST", "/api/jobs")
def start(request: Request, body: StartBody) -> dict[str, Any]:
    """Put a run into the queue."""
    services, session = services_of(request), session_of(request)
    stored = services.experiments.get(body.experiment)
    if stored.archived:
        raise ConfigError(f"{stored.name} is archived; bring it back first")
    experiment = services.experiments.check(stored.text, f"{stored.name}.yml")
    if experiment.search is not None:
        raise ConfigError(f"{stored.name}: it has a search, which is many runs; start it with crescendo run")
    check_startable(experiment)
    if body.cluster != HERE:
        services.queue.clusters.path(body.cluster)
    by, not_before_ns = "" if session is None else session.name, start_ns(body.start_at)
    job_id = services.queue.jobs.add(stored.name, stored.text, by=by, not_before_ns=not_before_ns, cluster=body.cluster)
    return {"id": job_id, "location": f"/jobs/{job_id}"}


@action(ROUTES, "POST", "/api/jobs/{job_id}/stop")
def stop(request: Request, job_id: str, body: StopBody) -> dict[str, Any]:
    """Stop a run, or take it out of the queue."""
    services_of(request).queue.stop(job_id, now=body.now)
    return {}


@action(ROUTES, "POST", "/api/jobs/{job_id}/rate")
def change_rate(request: Request, job_id: str, body: RateBody) -> dict[str, Any]:
    """Change the rate of a run that is under way."""
    ask_for_rate(services_of(request).queue.jobs.get(job_id), body.rate)
    return {"message": f"each sender now sends {body.rate:g} messages per second"}


@action(ROUTES, "GET", "/api/jobs/{job_id}/live", Role.VIEWER)
async def live(request: Request, job_id: str) -> Response:
    """The run as it happens, as server-sent events. The id of an event is where to continue."""
    files = services_of(request).queue.jobs.get(job_id)
    given = request.headers.get("last-event-id", "0")
    offset = int(given) if given.isascii() and given.isdigit() and len(given) < 16 else 0
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(_events(request, files, offset), media_type="text/event-stream", headers=headers)


@action(ROUTES, "GET", "/api/jobs/{job_id}/log", Role.VIEWER)
def log(request: Request, job_id: str, file: str = "", step: str = "") -> dict[str, Any]:
    """The last lines of what the run, one of its steps or one of its processes, printed."""
    files = services_of(request).queue.jobs.get(job_id)
    if step:
        return {"files": [], "text": _log_of_step(files, step)}
    folder = _log_folder(request, files)
    names = sorted(path.name for path in folder.glob("*.log")) if folder is not None else []
    if file and (folder is None or file not in names or file_fault(folder, file)):
        raise ConfigError(f"this run has no log {file[:80]!r}; it has {', '.join(names) or 'none yet'}")
    return {"files": names, "text": _tail(folder / file if file and folder is not None else files.directory / OUTPUT)}


def job_summaries(request: Request, *, unfinished: bool = False) -> list[dict[str, Any]]:
    """The newest first."""
    jobs = services_of(request).queue.jobs
    found = jobs.unfinished() if unfinished else jobs.all()
    return [_summary(files) for files in reversed(found[-_LISTED:])]


def _summary(files: JobFiles) -> dict[str, Any]:
    job, result = files.job, files.result
    return {
        **msgspec.to_builtins(job),
        "state": files.state.value,
        "run": result.run if result else "",
        "outcome": result.outcome if result else "",
        "problem": result.problem if result else "",
    }


def start_ns(text: str) -> int:
    """The time before which a job must not start; 0 without one."""
    if not text:
        return 0
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1e9)
    except (ValueError, OverflowError, OSError):
        raise ConfigError(f"start_at {text!r}: write a time such as 2030-01-31T22:00") from None


async def _events(request: Request, files: JobFiles, offset: int) -> AsyncIterator[str]:
    """Lines of the live file as events, until the job has ended and everything was sent."""
    path = files.directory / LIVE
    silent_s, told = 0.0, ""
    while not request.app.state.stopping.is_set():
        state = files.state  # before the lines are read: its last ones are then among them
        if state.value != told:
            told = state.value
            yield _event("state", offset, msgspec.json.encode({"kind": "state", "state": state.value}).decode())
        lines, offset = _read_lines(path, offset)
        for at, line in lines:
            yield _event("live", at, line)
        if not lines and state not in {JobState.QUEUED, JobState.RUNNING}:
            yield _event("end", offset, msgspec.json.encode(_summary(files)).decode())
            return
        silent_s = 0.0 if lines else silent_s + _LOOK_S
        if silent_s >= _ALIVE_S:
            silent_s = 0.0
            yield ": still here\n\n"
        await asyncio.sleep(0 if lines else _LOOK_S)


def _event(name: str, at: int, data: str) -> str:
    return f"id: {at}\nevent: {name}\nretry: 1000\ndata: {data}\n\n"


def _read_lines(path: Path, offset: int) -> tuple[list[tuple[int, str]], int]:
    """Whole lines from here on, each with where the next one begins."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            piece = file.read(_PIECE_BYTES)
    except OSError:
        return [], offset
    lines = []
    for line in piece[: piece.rfind(b"\n") + 1].splitlines(keepends=True):
        offset += len(line)
        lines.append((offset, line.decode(errors="replace").strip()))
    return lines, offset


def _log_folder(request: Request, files: JobFiles) -> Path | None:
    """The logs of the recording, as soon as the run has one; a campaign has many recordings, and a page for each."""
    if files.job.campaign:
        return None
    lines, _ = _read_lines(files.directory / LIVE, 0)
    for _, line in lines[:200]:
        entry = msgspec.json.decode(line)
        if entry.get("kind") == "directory":
            folder = services_of(request).directory.runs / str(entry["run"]) / "logs"
            return folder if folder.is_dir() and not folder.is_symlink() else None
    return None


def _steps(files: JobFiles) -> list[dict[str, Any]]:
    """The steps as the run process described them last; before it did, all of them wait."""
    try:
        found: list[dict[str, Any]] = msgspec.json.decode((files.directory / STEPS).read_bytes())
    except OSError:
        found = [{"name": name, "state": "waiting"} for name in steps_of(files.job.cluster)]
    return found


def _log_of_step(files: JobFiles, name: str) -> str:
    step = next((one for one in _steps(files) if one["name"] == name), None)
    if step is None:
        raise ConfigError(f"this run has no step {name[:40]!r}")
    if not step.get("began_ns"):
        return ""
    return _tail(files.directory / OUTPUT, step["log_from"], step["log_to"] or None)


def _tail(path: Path, begin: int = 0, end: int | None = None) -> str:
    try:
        with path.open("rb") as file:
            stop = path.stat().st_size if end is None else end
            file.seek(max(begin, stop - _TAIL_BYTES))
            return file.read(max(stop - file.tell(), 0)).decode(errors="replace")
    except OSError:
        return ""
