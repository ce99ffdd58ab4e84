"""How is a route declared, so that none is without its check and every page has its twin?

`page` registers a function twice: below /api as JSON, and as HTML rendered from the same values. `action` registers a
change. Both take the role that a person needs; there is no other way to add a route that is not public.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment
from starlette.responses import Response

from crescendo import __version__
from crescendo.model.units import format_count, format_ns
from crescendo.report import formats
from crescendo.report.page_templates import page_templates
from crescendo.web.audit_log import AuditLog
from crescendo.web.experiment_store import ExperimentStore
from crescendo.web.run_index import RunIndex
from crescendo.web.run_queue import RunQueue
from crescendo.web.web_access import Role, WebAccess, WebSession
from crescendo.web.web_directory import WebDirectory

Build = Callable[..., dict[str, Any]]


@dataclass(frozen=True)
class Services:
    """What the routes work with."""

    directory: WebDirectory
    experiments: ExperimentStore
    index: RunIndex
    queue: RunQueue
    access: WebAccess
    audit: AuditLog
    origin: str
    metrics_token: str


class RoleMissingError(Exception):
    """The session may not do this."""


class RoleCheck:
    """The check of one route."""

    def __init__(self, role: Role) -> None:
        self.role = role

    def __call__(self, request: Request) -> None:
        session = session_of(request)
        if session is None or session.rights < self.role:
            raise RoleMissingError(f"this needs the role {self.role.name.lower()}")


def services_of(request: Request) -> Services:
    found: Services = request.app.state.services
    return found


def session_of(request: Request) -> WebSession | None:
    found: WebSession | None = request.scope["state"].get("session")
    return found


def page(router: APIRouter, path: str, template: str, role: Role = Role.VIEWER) -> Callable[[Build], Build]:
    """Register a function as a page and as its JSON twin. Its first argument is the request."""

    def register(build: Build) -> Build:
        def html(**values: Any) -> Response:
            return render(values["request"], template, build(**values))

        html.__signature__ = inspect.signature(build)  # type: ignore[attr-defined]
        html.__name__ = f"{build.__name__}_html"
        checks = [Depends(RoleCheck(role))]
        router.get(f"/api{path}", dependencies=checks, response_model=None)(build)
        router.get(path, dependencies=checks, response_class=HTMLResponse, include_in_schema=False)(html)
        return build

    return register


def action(router: APIRouter, method: str, path: str, role: Role = Role.OPERATOR) -> Callable[[Any], Any]:
    """Register a change, or an answer that is not a page."""
    return router.api_route(
        path, methods=[method], dependencies=[Depends(RoleCheck(role))], response_model=None,
        include_in_schema=path.startswith("/api"),
    )  # fmt: skip


def render(request: Request, template: str, data: dict[str, Any], status: int = 200) -> Response:
    session = session_of(request)
    text = (
        _environment()
        .get_template(template)
        .render(
            data=data,
            session=session,
            may_operate=session is not None and session.rights >= Role.OPERATOR,
            may_administrate=session is not None and session.rights >= Role.ADMIN,
            here=request.url.path,
            version=__version__,
        )
    )
    return HTMLResponse(text, status)


@cache
def _environment() -> Environment:
    environment = page_templates("crescendo.web")
    environment.filters |= {
        "moment": formats.moment,
        "ns": lambda value: formats.NOTHING if value is None else format_ns(value),
        "count": lambda value: formats.NOTHING if value is None else format_count(value),
        "octets": formats.octets,
    }
    return environment
