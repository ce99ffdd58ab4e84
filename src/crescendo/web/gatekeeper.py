"""Which requests reach a page at all?

Wrapped around the whole application, so that a route that forgets something is still closed: the host must be ours
(a foreign page that resolves to us is refused), a body has a limit, everything but signing in needs a session, and a
change needs the token of that session and, from a browser, our own origin. Which role a route needs is declared there.
Also adds the headers that every answer has, and writes the audit log.
"""

import hmac
from collections.abc import Collection
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crescendo.web.audit_log import AuditLog
from crescendo.web.web_access import WebAccess, WebSession

_COOKIE = "crescendo"
CSRF_HEADER = "x-csrf-token"
MAX_BODY_BYTES = 1024 * 1024
PUBLIC = frozenset(("/login", "/api/login"))
STATIC = "/static/"
METRICS = "/metrics"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
REPORT_POLICY = (
    "sandbox allow-scripts allow-downloads; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
"""A report is one file with its script inside. In the sandbox it has an origin of its own: no cookie, no request."""
_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
_TOO_LARGE = f"the body is larger than {MAX_BODY_BYTES:,} bytes"
_SAFE = frozenset(("GET", "HEAD"))
_REFUSALS = frozenset((401, 403, 413, 421, 429))
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT"))


class Gatekeeper:
    """The outermost layer of the application."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        access: WebAccess,
        audit: AuditLog,
        hosts: Collection[str],
        secure: bool,
        metrics_token: str,
    ) -> None:
        self._app, self._access, self._audit = app, access, audit
        self._hosts, self._secure, self._metrics_token = frozenset(hosts), secure, metrics_token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        request = Request(scope)
        session = self._session(request)
        scope.setdefault("state", {})["session"] = session
        refusal = self._refusal(request, session)

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._add_headers(MutableHeaders(scope=message), request)
                self._note(request, session, message["status"])  # before the answer: who has it can rely on the entry
            await send(message)

        if refusal is not None:
            await refusal(scope, receive, sending)
        else:
            await self._app(scope, _limited(receive), sending)

    def _note(self, request: Request, session: WebSession | None, status: int) -> None:
        if request.method not in _SAFE or status in _REFUSALS or request.url.path == "/login":
            who = "-" if session is None else session.name
            self._audit.write(
                who=who, client=client_of(request), method=request.method, path=request.url.path, status=status
            )

    def _session(self, request: Request) -> WebSession | None:
        cookie = request.cookies.get(cookie_name(secure=self._secure))
        return None if not cookie else self._access.session(cookie)

    def _refusal(self, request: Request, session: WebSession | None) -> Response | None:
        headers, path = request.headers, request.url.path
        if _host_of(f"//{headers.get('host', '')}") not in self._hosts:
            return _problem(421, "this server does not answer to that name; use the address that it printed")
        if request.method not in _METHODS:
            return _problem(405, f"{request.method} is not used here")
        if _announced(headers) > MAX_BODY_BYTES:
            return _problem(413, _TOO_LARGE)
        if request.method not in _SAFE and not self._same_origin(headers):
            return _problem(403, "the request comes from another site")
        if path in PUBLIC or path.startswith(STATIC):
            return None
        if path == METRICS and hmac.compare_digest(
            headers.get("authorization", "").encode(), f"Bearer {self._metrics_token}".encode()
        ):
            return None
        if session is None:
            if path.startswith("/api/") or request.method != "GET" or "text/html" not in headers.get("accept", ""):
                return _problem(401, "sign in first: open the link that crescendo web printed")
            return RedirectResponse("/login", 303)
        if request.method not in _SAFE and not hmac.compare_digest(
            headers.get(CSRF_HEADER, "").encode(), session.csrf.encode()
        ):
            return _problem(403, f"the header {CSRF_HEADER} is missing or wrong; /api/session has it. Reload the page")
        return None

    @staticmethod
    def _same_origin(headers: Headers) -> bool:
        """Browsers send the origin with every change; programs need not, but must have the token."""
        if headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
            return False
        origin = headers.get("origin")
        return origin is None or origin.partition("://")[2] == headers.get("host")

    def _add_headers(self, headers: MutableHeaders, request: Request) -> None:
        for name, value in _HEADERS.items():
            headers.setdefault(name, value)
        headers.setdefault("content-security-policy", POLICY)
        if not request.url.path.startswith(STATIC):
            headers.setdefault("cache-control", "no-store")
        if self._secure:
            headers.setdefault("strict-transport-security", "max-age=31536000; includeSubDomains")
        if headers.get("content-type", "").startswith("application/json"):
            headers.setdefault("content-disposition", 'attachment; filename="api.json"')  # never shown as a page


def _host_of(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def cookie_name(*, secure: bool) -> str:
    """With TLS, browsers accept the prefix only from this host, for all of it, and never over plain HTTP."""
    return f"__Host-{_COOKIE}" if secure else _COOKIE


def client_of(request: Request) -> str:
    return request.client.host if request.client else "-"


def _announced(headers: Headers) -> int:
    text = headers.get("content-length", "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else MAX_BODY_BYTES + 1


def _limited(receive: Receive) -> Receive:
    taken = 0

    async def limited() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > MAX_BODY_BYTES:
            raise HTTPException(413, _TOO_LARGE)  # passes through the application, which answers with it
        return message

    return limited


def _problem(status: int, sentence: str) -> Response:
    content: dict[str, Any] = {"error": sentence}
    return JSONResponse(content, status)
