"""Campaigns: which there are, how far each has come, and what its factors changed so far.

Their runs lie below them and have the same pages as all others. A campaign waits in the queue like a run, and continues
where it was stopped.
"""

from typing import Any

import msgspec
from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import FileResponse, Response

from crescendo.model.campaign import Campaign, format_metric
from crescendo.model.designs import DesignKind
from crescendo.model.errors import ConfigError
from crescendo.record.campaign_effects import MetricEffects
from crescendo.record.campaign_journal import CAMPAIGN_FILE, CampaignJournal, read_journal
from crescendo.record.contained_files import file_fault
from crescendo.record.manifest import MANIFEST
from crescendo.report.campaign_page import CAMPAIGN_PAGE
from crescendo.run.startable import check_startable
from crescendo.web.experiment_store import shipped_campaigns
from crescendo.web.gatekeeper import REPORT_POLICY
from crescendo.web.jobs import EXPERIMENT
from crescendo.web.page_routes import action, page, services_of, session_of
from crescendo.web.planned_campaign import campaign_of, campaign_text, plan_of, shipped_campaign
from crescendo.web.routes.job_routes import start_ns
from crescendo.web.web_access import Role
from crescendo.web.web_directory import NAME, NotFoundError

ROUTES = APIRouter(tags=["campaigns"])
_DESIGNS = {
    DesignKind.FULL: "every combination",
    DesignKind.TWO_LEVEL: "every combination of two levels",
    DesignKind.ONE_AT_A_TIME: "one factor at a time",
}


class CampaignBody(BaseModel):
    """A stored experiment and its factors, or a campaign that comes with Crescendo."""

    model_config = ConfigDict(extra="forbid")

    shipped: str = Field(default="", max_length=200, description="id of a campaign that comes with Crescendo")
    name: str = Field(default="", max_length=100)
    experiment: str = Field(default="", max_length=200)
    factors: str = Field(default="", max_length=20_000, description="one `key: [level, level]` per line")
    design: str = Field(default=DesignKind.FULL.value, max_length=40)
    repeat: int = Field(default=1, ge=1, le=1000)
    settings: str = Field(
        default="", max_length=20_000, description="budget, until, metrics; one `key: value` per line"
    )
    start_at: str = Field(default="", max_length=40, description="ISO 8601 local time; empty: when the lab is free")


@page(ROUTES, "/campaigns", "campaigns.html.j2")
def campaigns(request: Request) -> dict[str, Any]:
    runs = services_of(request).directory.runs
    names = sorted(
        path.parent.name for path in runs.glob(f"*/{CAMPAIGN_FILE}") if NAME.fullmatch(path.parent.name) is not None
    )
    found = []
    for name in names:
        try:
            found.append(_line(name, read_journal(runs / name)) | {"job": _job_of(request, name)})
        except ConfigError as err:
            found.append({"id": name, "name": name, "problem": str(err), "job": ""})
    shipped = [{"id": one.id, "about": one.about} for one in shipped_campaigns()]
    return {"campaigns": found, "shipped": shipped}


@page(ROUTES, "/campaigns/new", "campaign_new.html.j2", Role.OPERATOR)
def new_campaign(request: Request, experiment: str = "") -> dict[str, Any]:
    names = [one.name for one in services_of(request).experiments.all()]
    chosen = experiment if experiment in names else ""
    designs = [{"name": kind.value, "about": about} for kind, about in _DESIGNS.items()]
    return {"experiments": names, "chosen": chosen, "designs": designs}


@action(ROUTES, "POST", "/api/campaigns/plan")
def plan(request: Request, body: CampaignBody) -> dict[str, Any]:
    """Check a campaign, and say how many runs it has and about how long they take."""
    found, _ = _asked_for(request, body)
    return plan_of(found, services_of(request).directory.runs)


@action(ROUTES, "POST", "/api/campaigns")
def start_campaign(request: Request, body: CampaignBody) -> dict[str, Any]:
    """Put a campaign into the queue; one that was begun continues."""
    found, text = _asked_for(request, body)
    return _queue(request, found, text, body.shipped, start_ns(body.start_at))


@action(ROUTES, "POST", "/api/campaigns/{name}/continue")
def continue_campaign(request: Request, name: str) -> dict[str, Any]:
    """Continue a campaign that was started in the browser and is not complete."""
    services = services_of(request)
    directory = services.directory.campaign(name)
    files = next((one for one in reversed(services.queue.jobs.all()) if one.job.campaign == directory.name), None)
    if files is None:
        raise ConfigError(f"{name} was started on the command line; the same command there continues it")
    text, shipped = (files.directory / EXPERIMENT).read_text(encoding="utf-8"), files.job.shipped
    return _queue(request, _campaign_of(request, text, shipped), text, shipped)


def _asked_for(request: Request, body: CampaignBody) -> tuple[Campaign, str]:
    """The campaign, and the text that its job keeps."""
    if body.shipped:
        text = shipped_campaign(body.shipped).text
    else:
        stored = services_of(request).experiments.get(body.experiment)
        name = body.name or stored.name
        text = campaign_text(name, stored.text, body.factors, body.design, body.repeat, body.settings)
    return _campaign_of(request, text, body.shipped), text


def _campaign_of(request: Request, text: str, shipped: str) -> Campaign:
    services = services_of(request)
    return campaign_of(text, shipped, services.directory.experiments, any_file=services.experiments.any_file)


def _queue(request: Request, found: Campaign, text: str, shipped: str, not_before_ns: int = 0) -> dict[str, Any]:
    services, session = services_of(request), session_of(request)
    for point in found.points:
        check_startable(found.experiment(point.number))
    planned = plan_of(found, services.directory.runs)
    if not planned["runs"]:
        raise ConfigError(f"{found.name} is complete; give a new one another name, or more repeats")
    if job := _job_of(request, planned["directory"]):
        raise ConfigError(f"{found.name} is in the queue already: /jobs/{job}")
    by = "" if session is None else session.name
    job_id = services.queue.jobs.add(
        found.name, text, by=by, not_before_ns=not_before_ns, campaign=planned["directory"], shipped=shipped
    )
    return {"id": job_id, "location": f"/jobs/{job_id}"}


def _job_of(request: Request, name: str) -> str:
    """The job that waits or is under way for this campaign; empty if there is none."""
    unfinished = services_of(request).queue.jobs.unfinished()
    return next((one.directory.name for one in unfinished if one.job.campaign == name), "")


@page(ROUTES, "/campaigns/{name}", "campaign.html.j2")
def campaign(request: Request, name: str) -> dict[str, Any]:
    from crescendo.campaigns.ranked_factors import campaign_effects  # scipy, which most pages do not need

    directory = services_of(request).directory.campaign(name)
    journal = read_journal(directory)
    effects = campaign_effects(journal)
    attempts = [
        msgspec.to_builtins(attempt)
        | {
            "levels": journal.points[attempt.point].levels,
            "kept": bool(attempt.run) and not file_fault(directory / attempt.run, MANIFEST),
            "shown": {metric: format_metric(metric, value) for metric, value in attempt.values.items()},
        }
        for attempt in journal.attempts
    ]
    return _line(name, journal) | {
        "attempts": attempts,
        "metrics": [_metric(one) for one in effects.metrics],
        "aliases": journal.aliases,
        "page": not file_fault(directory, CAMPAIGN_PAGE),
        "job": _job_of(request, directory.name),
    }


@action(ROUTES, "GET", "/campaigns/{name}/campaign.html", Role.VIEWER)
def campaign_page(request: Request, name: str) -> Response:
    directory = services_of(request).directory.campaign(name)
    if fault := file_fault(directory, CAMPAIGN_PAGE):
        raise NotFoundError(f"{name}: its page {fault}; it is written when the campaign ends")
    headers = {"content-security-policy": REPORT_POLICY}
    return FileResponse(directory / CAMPAIGN_PAGE, media_type="text/html", headers=headers)


def _line(name: str, journal: CampaignJournal) -> dict[str, Any]:
    return {
        "id": name,
        "name": journal.name,
        "design": journal.design,
        "factors": [{"name": one.name, "levels": one.levels} for one in journal.factors],
        "points": len(journal.points),
        "counted": len(journal.counted),
        "tried": len(journal.attempts),
        "complete": journal.complete,
        "ending": journal.ending,
        "problem": "",
    }


def _metric(one: MetricEffects) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(one)
    shown = "" if one.mean is None else format_metric(one.metric, one.mean)
    return found | {"shown_mean": shown}
