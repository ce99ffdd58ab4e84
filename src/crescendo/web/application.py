"""How do the parts become one application?

Routes, static files, one handler per kind of error, and the gatekeeper around everything. Opens no socket.
"""

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from plotly.offline import get_plotlyjs
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp

from crescendo import __version__
from crescendo.model.errors import ConfigError, CrescendoError
from crescendo.web.gatekeeper import Gatekeeper
from crescendo.web.log_analysis import LogAnalyzer
from crescendo.web.page_routes import RoleCheck, RoleMissingError, Services, render
from crescendo.web.routes import (
    access_routes,
    campaign_routes,
    cluster_routes,
    experiment_routes,
    history_routes,
    job_routes,
    metrics_routes,
    run_routes,
)
from crescendo.web.web_access import Role, TooManyAttemptsError
from crescendo.web.web_directory import NotFoundError

_STATIC = Path(__file__).parent / "static"
_REPORT = Path(__file__).parents[1] / "report" / "templates"
_MEDIA = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_SUBJECTS = (
    access_routes, experiment_routes, job_routes, run_routes, history_routes, campaign_routes, cluster_routes,
    metrics_routes,
)  # fmt: skip


def routes_of(services: Services) -> FastAPI:
    """The application without the gatekeeper."""
    app = FastAPI(
        title="Crescendo",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        redirect_slashes=False,
    )
    app.state.services = services
    app.state.stopping = asyncio.Event()
    app.state.analyzer = LogAnalyzer(services.directory.analyses)
    for subject in _SUBJECTS:
        app.include_router(subject.ROUTES)
    app.add_api_route(
        "/",
        lambda: RedirectResponse("/experiments", 303),
        dependencies=[Depends(RoleCheck(Role.VIEWER))],
        include_in_schema=False,
        response_model=None,
    )
    app.add_api_route("/static/{name}", _static, include_in_schema=False)
    for kind, handler in _HANDLERS.items():
        app.add_exception_handler(kind, handler)
    return app


def guarded(app: FastAPI, hosts: list[str]) -> ASGIApp:
    """The whole application."""
    services: Services = app.state.services
    return Gatekeeper(
        app,
        access=services.access,
        audit=services.audit,
        hosts=hosts,
        secure=services.origin.startswith("https:"),
        metrics_token=services.metrics_token,
    )


def _static(request: Request, name: str) -> Response:
    """Files of this package: a name that is not one of them finds nothing."""
    found = _files().get(name)
    if found is None:
        raise NotFoundError(f"there is no file {name[:80]!r}")
    content, media = found
    headers = {"cache-control": "max-age=3600", "content-encoding": "gzip"}
    return Response(content, media_type=media, headers=headers)


@cache
def _files() -> dict[str, tuple[bytes, str]]:
    """name -> compressed content and type. Read once."""
    paths = [*_STATIC.iterdir(), _REPORT / "report.css"]
    found = {path.name: path.read_bytes() for path in paths} | {"plotly.js": get_plotlyjs().encode()}
    return {name: (gzip.compress(text, 6, mtime=0), _MEDIA[Path(name).suffix]) for name, text in found.items()}


def _status_of(err: Exception) -> int:
    if isinstance(err, NotFoundError):
        return 404
    if isinstance(err, TooManyAttemptsError):
        return 429
    return 400 if isinstance(err, ConfigError) else 409


def _answer(request: Request, status: int, sentence: str) -> Response:
    if request.url.path.startswith("/api/") or "text/html" not in request.headers.get("accept", ""):
        return JSONResponse({"error": sentence}, status)
    return render(request, "problem.html.j2", {"status": status, "sentence": sentence}, status)


async def _known(request: Request, err: Exception) -> Response:
    return _answer(request, _status_of(err), str(err))


async def _role(request: Request, err: Exception) -> Response:
    return _answer(request, 403, f"{err}; ask an administrator of this lab")


async def _http(request: Request, err: Exception) -> Response:
    status, detail = (err.status_code, err.detail) if isinstance(err, HTTPException) else (500, str(err))
    return _answer(request, status, "there is no such page; the list above has them all" if status == 404 else detail)


async def _malformed(request: Request, err: Exception) -> Response:
    found = err.errors() if isinstance(err, RequestValidationError) else []
    where = ".".join(str(part) for part in found[0]["loc"] if part != "body") if found else ""
    sentence = f"{where}: {found[0]['msg'][:1].lower()}{found[0]['msg'][1:]}" if found else "the request is malformed"
    return _answer(request, 400, sentence)


_HANDLERS: dict[type[Exception], Callable[[Request, Exception], Awaitable[Response]]] = {
    CrescendoError: _known,
    RoleMissingError: _role,
    HTTPException: _http,
    RequestValidationError: _malformed,
}
