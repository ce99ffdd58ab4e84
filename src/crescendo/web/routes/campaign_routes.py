"""Campaigns: which there are, how far each has come, and what its factors changed so far.

Campaigns are started on the command line. Their runs lie below them and have the same pages as all others.
"""

import shlex
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import FileResponse, Response

from crescendo.model.campaign import format_metric
from crescendo.model.errors import ConfigError
from crescendo.record.campaign_effects import MetricEffects
from crescendo.record.campaign_journal import CAMPAIGN_FILE, CampaignJournal, read_journal
from crescendo.record.contained_files import file_fault
from crescendo.record.manifest import MANIFEST
from crescendo.report.campaign_page import CAMPAIGN_PAGE
from crescendo.web.experiment_store import shipped_campaigns
from crescendo.web.gatekeeper import REPORT_POLICY
from crescendo.web.page_routes import action, page, services_of, session_of
from crescendo.web.web_access import Role
from crescendo.web.web_directory import NAME, NotFoundError

ROUTES = APIRouter(tags=["campaigns"])


@page(ROUTES, "/campaigns", "campaigns.html.j2")
def campaigns(request: Request) -> dict[str, Any]:
    runs = services_of(request).directory.runs
    names = sorted(
        path.parent.name for path in runs.glob(f"*/{CAMPAIGN_FILE}") if NAME.fullmatch(path.parent.name) is not None
    )
    found = []
    for name in names:
        try:
            found.append(_line(name, read_journal(runs / name)))
        except ConfigError as err:
            found.append({"id": name, "name": name, "problem": str(err)})
    return {"campaigns": found, "shipped": _shipped(request)}


def _shipped(request: Request) -> list[dict[str, str]]:
    """Those that come with Crescendo, with the command that starts each, for people who may start runs."""
    session = session_of(request)
    if session is None or session.rights < Role.OPERATOR:
        return []
    return [
        {"id": one.id, "about": one.about, "command": shlex.join(["crescendo", "campaign", str(one.path)])}
        for one in shipped_campaigns()
    ]


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
