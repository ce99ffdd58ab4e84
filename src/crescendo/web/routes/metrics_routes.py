"""The lab as OpenMetrics, for Prometheus: runs by outcome, the queue, and the run under way.

Gauges keep the last sample, so a scrape between two samples does not see zero.
"""

from typing import Any

import msgspec
from fastapi import APIRouter, Depends, Request
from starlette.responses import PlainTextResponse, Response

from crescendo.model.verdict import Outcome
from crescendo.record.metric_families import MetricFamily, exposition
from crescendo.run.live_sample import live_families
from crescendo.run.metrics_server import MEDIA
from crescendo.web.jobs import LIVE, JobFiles, JobState
from crescendo.web.page_routes import RoleCheck, services_of, session_of
from crescendo.web.web_access import Role

ROUTES = APIRouter(tags=["metrics"])
_TAIL_BYTES = 64 * 1024


class _MetricsCheck(RoleCheck):
    """A session, or the token that the gatekeeper has checked already: nobody else comes this far."""

    def __call__(self, request: Request) -> None:
        if session_of(request) is not None:
            super().__call__(request)


@ROUTES.get("/metrics", dependencies=[Depends(_MetricsCheck(Role.VIEWER))], response_model=None)
def metrics(request: Request) -> Response:
    """Figures of the lab in the OpenMetrics format."""
    services = services_of(request)
    unfinished = services.queue.jobs.unfinished()
    states = [files.state for files in unfinished]
    runs = MetricFamily("crescendo_runs", "gauge", "Runs on disk by outcome.")
    for outcome, count in sorted(services.index.counts().items()):
        runs.add(count, outcome=outcome or "not analysed")
    jobs = MetricFamily("crescendo_jobs", "gauge", "Jobs that are queued or running.")
    for state in (JobState.QUEUED, JobState.RUNNING):
        jobs.add(states.count(state), state=state.value)
    families = [runs, jobs, *_last_runs(services.index.strips())]
    for files in unfinished:
        if files.claimed and (sample := _last_sample(files)) is not None:
            families += live_families(files.job.experiment, sample)
    return PlainTextResponse(exposition(families), media_type=MEDIA)


def _last_runs(strips: dict[str, list[dict[str, Any]]]) -> list[MetricFamily]:
    """What the newest run of each experiment measured, and how it was judged."""
    rate = MetricFamily("crescendo_last_run_rate", "gauge", "Messages per second that the newest run sustained.")
    delay = MetricFamily("crescendo_last_run_response_p99_seconds", "gauge", "Response p99 of the newest run.")
    outcome = MetricFamily("crescendo_last_run_outcome", "gauge", "1 for the verdict of the newest run.")
    for experiment, runs in sorted(strips.items()):
        last = runs[-1]
        rate.add(last["rate"], experiment=experiment)
        delay.add(None if last["p99_ns"] is None else last["p99_ns"] / 1e9, experiment=experiment)
        for name in Outcome:
            outcome.add(float(last["outcome"] == name.value), experiment=experiment, outcome=name.value)
    return [rate, delay, outcome]


def _last_sample(files: JobFiles) -> dict[str, Any] | None:
    path = files.directory / LIVE
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            lines = file.read().splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        try:
            entry = msgspec.json.decode(line, type=dict[str, Any])
        except ValueError:
            continue  # the first line of the tail may be cut
        if entry.get("kind") == "sample":
            return entry
    return None
