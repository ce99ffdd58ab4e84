"""Signing in and out, accounts, one-time links, the audit log."""

from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse, RedirectResponse, Response

from crescendo.model.errors import ConfigError
from crescendo.web.gatekeeper import client_of, cookie_name
from crescendo.web.page_routes import action, page, render, services_of, session_of
from crescendo.web.verdict_webhook import Webhook
from crescendo.web.web_access import SESSION_S, Role, TooManyAttemptsError

ROUTES = APIRouter(tags=["access"])
_AUDITED = 200


class SignInBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(max_length=100)
    password: str = Field(max_length=300)


class AccountBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$")
    role: str = Field(max_length=20)
    password: str = Field(max_length=300)


class PasswordBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    current: str = Field(max_length=300)
    password: str = Field(max_length=300, description="the new one")


class WebhookBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    address: str = Field(max_length=2000, description="empty: none")


@ROUTES.get("/login", include_in_schema=False)
def login(request: Request, token: str = "") -> Response:
    """Public: redeems the one-time token of the printed link, or shows the form."""
    services = services_of(request)
    problem, status = "", 200
    if token:
        try:
            return _signed_in(request, services.access.redeem(token, client_of(request)), RedirectResponse("/", 303))
        except ConfigError as err:
            problem, status = str(err), 429 if isinstance(err, TooManyAttemptsError) else 401
    if session_of(request) is not None:
        return RedirectResponse("/", 303)
    data = {"problem": problem, "accounts": bool(services.access.accounts)}
    return render(request, "login.html.j2", data, status)


@ROUTES.post("/api/login", response_model=None)
def sign_in(request: Request, body: SignInBody) -> Response:
    """Public: sign in with an account."""
    access = services_of(request).access
    try:
        cookie = access.sign_in(body.name, body.password, client_of(request))
    except ConfigError as err:
        return JSONResponse({"error": str(err)}, 429 if isinstance(err, TooManyAttemptsError) else 401)
    return _signed_in(request, cookie, JSONResponse({"location": "/"}))


@action(ROUTES, "GET", "/api/session", Role.VIEWER)
def session(request: Request) -> dict[str, Any]:
    """The person of this session, and the token that changes need in the header X-CSRF-Token."""
    found = session_of(request)
    return {} if found is None else {"name": found.name, "role": found.role, "csrf": found.csrf}


@action(ROUTES, "POST", "/api/sign-out", Role.VIEWER)
def sign_out(request: Request) -> Response:
    """End this session."""
    name = cookie_name(secure=_is_secure(request))
    services_of(request).access.sign_out(request.cookies.get(name, ""))
    response = JSONResponse({"location": "/login"})
    response.delete_cookie(name, secure=_is_secure(request), httponly=True, samesite="strict")
    return response


@page(ROUTES, "/account", "account.html.j2")
def account(request: Request) -> dict[str, Any]:
    """The person of this session."""
    found = session_of(request)
    known = {one.name for one in services_of(request).access.accounts}
    name = "" if found is None else found.name
    return {"name": name, "role": "" if found is None else found.role, "has_password": name in known}


@action(ROUTES, "POST", "/api/account/password", Role.VIEWER)
def change_password(request: Request, body: PasswordBody) -> Response:
    """Replace one's own password. All sessions of the account end."""
    found = session_of(request)
    name = "" if found is None else found.name
    try:
        services_of(request).access.change_password(name, body.current, body.password, client_of(request))
    except TooManyAttemptsError as err:
        return JSONResponse({"error": str(err)}, 429)
    return JSONResponse({"location": "/login"})


@page(ROUTES, "/access", "access.html.j2", Role.ADMIN)
def access(request: Request) -> dict[str, Any]:
    services = services_of(request)
    return {
        "accounts": [{"name": one.name, "role": one.role} for one in services.access.accounts],
        "roles": [role.name.lower() for role in Role],
        "audit": services.audit.latest(_AUDITED),
        "metrics_token": services.metrics_token,
        "origin": services.origin,
        "webhook_host": Webhook(services.directory.own).host,
    }


@action(ROUTES, "POST", "/api/links", Role.ADMIN)
def new_link(request: Request) -> dict[str, Any]:
    """A link that signs one more browser or program in, once."""
    services = services_of(request)
    return {"link": f"{services.origin}/login?token={services.access.new_link()}"}


@action(ROUTES, "POST", "/api/accounts", Role.ADMIN)
def set_account(request: Request, body: AccountBody) -> dict[str, Any]:
    """Add an account, or replace its role and password and end its sessions."""
    services_of(request).access.set_account(body.name, body.role, body.password)
    return {"location": "/access"}


@action(ROUTES, "POST", "/api/accounts/{name}/remove", Role.ADMIN)
def remove_account(request: Request, name: str) -> dict[str, Any]:
    """Forget an account and end its sessions."""
    session = session_of(request)
    if session is not None and session.name == name:
        raise ConfigError("this is the account that you are signed in with; another admin can remove it")
    services_of(request).access.remove_account(name)
    return {"location": "/access"}


@action(ROUTES, "POST", "/api/webhook", Role.ADMIN)
def set_webhook(request: Request, body: WebhookBody) -> dict[str, Any]:
    """Notify this address when a run of the queue ends; it must answer to a test."""
    Webhook(services_of(request).directory.own).set(body.address)
    return {"location": "/access"}


def _signed_in(request: Request, cookie: str, response: Response) -> Response:
    secure = _is_secure(request)
    response.set_cookie(
        cookie_name(secure=secure), cookie, max_age=SESSION_S, httponly=True, samesite="strict", secure=secure, path="/"
    )
    return response


def _is_secure(request: Request) -> bool:
    return services_of(request).origin.startswith("https:")
