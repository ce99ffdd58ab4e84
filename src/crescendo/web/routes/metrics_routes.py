"""The lab as OpenMetrics, for Prometheus: runs by outcome, the queue, and the run under way.

Gauges keep the last sample, so a scrape between two samples does not see zero.
"""

from typing import Any

import msgspec
from fastapi import APIRouter, Depends, Request
from starlette.responses import PlainTextResponse, Response

from crescendo.record.metric_families import MetricFamily, exposition
from crescendo.web.jobs import LIVE, JobFiles, JobState
from crescendo.web.page_routes import RoleCheck, services_of, session_of
from crescendo.web.web_access import Role

ROUTES = APIRouter(tags=["metrics"])
_TAIL_BYTES = 64 * 1024
MEDIA = "application/openmetrics-text; version=1.0.0; charset=utf-8"


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
    families = [runs, jobs]
    for files in unfinished:
        if files.claimed and (sample := _last_sample(files)) is not None:
            families += _live_families(files.job.experiment, sample)
    return PlainTextResponse(exposition(families), media_type=MEDIA)


def _live_families(experiment: str, sample: dict[str, Any]) -> list[MetricFamily]:
    rate = MetricFamily("crescendo_live_rate", "gauge", "Messages in the last second.")
    messages = MetricFamily("crescendo_live_messages", "counter", "Messages since the start of the run.")
    delay = MetricFamily("crescendo_live_response_p99_seconds", "gauge", "Worst p99 of a receiver, last second.")
    for role in ("sender", "receiver"):
        rate.add(sample[role]["rate"], experiment=experiment, role=role)
        messages.add(sample[role]["messages"], experiment=experiment, role=role)
    if sample["receiver"]["p99_ns"] is not None:
        delay.add(sample["receiver"]["p99_ns"] / 1e9, experiment=experiment)
    return [rate, messages, delay]


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
