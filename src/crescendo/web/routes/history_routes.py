"""What changed over time: the series of comparable runs of an experiment, their change points, and what people say of
them. The file of baselines is the one of `crescendo gate`, so a change that is dismissed here does not fail there."""

import threading
from pathlib import Path
from typing import Any, Literal

import msgspec
from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from crescendo.history.baseline_file import ReviewedChange, read_baselines, write_baselines
from crescendo.history.run_history import all_runs
from crescendo.history.run_series import history_of
from crescendo.model.campaign import format_metric
from crescendo.pipeline.compare.outcomes import format_change
from crescendo.report.data.history_document import HistoryChange, HistoryMetric, HistorySeries
from crescendo.web.page_routes import action, page, services_of
from crescendo.web.web_directory import NotFoundError

ROUTES = APIRouter(tags=["history"])
BASELINES = "baselines.json"
_THRESHOLD = 0.05
_writing = threading.Lock()


class ReviewBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    experiment: str = Field(max_length=200)
    fingerprint: str = Field(max_length=100)
    metric: str = Field(max_length=100)
    run: str = Field(max_length=200, description="the first run after the change")
    state: Literal["confirmed", "dismissed"]
    note: str = Field(default="", max_length=2000)


@page(ROUTES, "/history", "history.html.j2")
def history(request: Request, experiment: str = "") -> dict[str, Any]:
    """Without an experiment: which have runs. With one: its series, and where they changed."""
    services = services_of(request)
    strips = services.index.strips()
    series = _series(services.directory.runs, experiment) if experiment else []
    return {
        "experiment": experiment,
        "experiments": [
            {
                "name": name,
                "strip": [{"run": run["name"], "outcome": run["outcome"] or run["state"]} for run in runs],
            }
            for name, runs in sorted(strips.items())
        ],
        "series": [_shown(one, services.directory.runs) for one in series],
    }


@action(ROUTES, "POST", "/api/history/review")
def review(request: Request, body: ReviewBody) -> dict[str, Any]:
    """Confirm a change as a regression, or dismiss it."""
    runs = services_of(request).directory.runs
    known = [
        change.run
        for one in _series(runs, body.experiment)
        if one.fingerprint == body.fingerprint
        for metric in one.metrics
        if metric.metric == body.metric
        for change in metric.changes
    ]
    if body.run not in known:
        raise NotFoundError("there is no such change; reload the page, because new runs may have moved it")
    with _writing:
        change = ReviewedChange(body.fingerprint, body.metric, body.run, body.note.strip())
        path = runs / BASELINES
        write_baselines(path, read_baselines(path).with_review(change, body.state))
    return {}


def _series(runs: Path, experiment: str) -> list[HistorySeries]:
    mine = [run for run in all_runs(runs, ()) if run.experiment == experiment]
    return history_of(mine, read_baselines(runs / BASELINES), _THRESHOLD, place="", beside=runs).series


def _shown(series: HistorySeries, runs: Path) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(series)
    for run in found["runs"]:
        run["link"] = f"/runs/{run['name']}" if (runs / run["name"]).is_dir() else ""
    for metric, built in zip(series.metrics, found["metrics"], strict=True):
        built["latest"] = format_metric(metric.metric, metric.values[-1]) if metric.values else ""
        built["changes"] = [
            plain | _change(metric, each) for each, plain in zip(metric.changes, built["changes"], strict=True)
        ]
    return found


def _change(metric: HistoryMetric, change: HistoryChange) -> dict[str, str]:
    return {
        "shown_before": format_metric(metric.metric, change.before),
        "shown_after": format_metric(metric.metric, change.after),
        "shown_change": format_change(change.change),
    }
