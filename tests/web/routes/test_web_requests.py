"""The real server as programs and attackers see it, on runs with known answers."""

import asyncio
import csv
import http.client
import io
import json
import socket
import sqlite3
import ssl
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.responses import HTMLResponse
from fastapi.routing import APIRoute
from msgspec import structs

from crescendo.model.errors import ConfigError
from crescendo.processes.ref import process_ref
from crescendo.record.campaign_journal import JournalFactor, write_journal
from crescendo.record.documents import write_document
from crescendo.report.page import write_report
from crescendo.systems.certificates import Authority
from crescendo.web import sql_process
from crescendo.web.application import routes_of
from crescendo.web.audit_log import AuditLog
from crescendo.web.experiment_store import ExperimentStore
from crescendo.web.gatekeeper import MAX_BODY_BYTES
from crescendo.web.jobs import LIVE, JobFiles, Jobs
from crescendo.web.page_routes import RoleCheck, Services
from crescendo.web.run_index import RunIndex
from crescendo.web.run_queue import RunQueue
from crescendo.web.sql_process import SqlQuestion, answer_to
from crescendo.web.web_access import Role, WebAccess
from crescendo.web.web_directory import WebDirectory
from crescendo.web.web_server import WebOptions, checked_access
from report_samples import SAMPLES, write_sample
from web_lab import WebLab, web_lab
from web_samples import planted_campaign

SCRIPT = "<script>alert(1)</script>"
ESCAPES = ("..%2f..%2fetc%2fpasswd", "%2e%2e", "..%5c..", "%00", "a%0ab", "....//", "%c0%ae%c0%ae")
YAML = "name: mine\nsystem: {kind: loopback}\nworkload: {rate: 100}\nphases: {measure: 5s}\n"
PUBLIC = {"/login", "/api/login", "/static/{name}"}
EVERYWHERE = "0.0.0.0"  # noqa: S104 - refused, or with TLS and accounts
BY_FASTAPI = {"/api/openapi.json", "/docs/oauth2-redirect"}  # behind the gatekeeper like everything


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebLab]:
    runs = tmp_path_factory.mktemp("web") / "runs"
    for name in ("passing", "failing"):
        write_report(write_sample(runs / name, SAMPLES[name]))
    (runs / "passing" / "logs").mkdir()
    (runs / "passing" / "logs" / "sender-0.log").write_text("a line\n")
    (runs / "passing" / "logs" / "passwd").symlink_to("/etc/passwd")
    journal = planted_campaign(runs / "evil-campaign")
    factors = [JournalFactor(SCRIPT, [SCRIPT, "b"], [SCRIPT]), *journal.factors[1:]]
    points = [structs.replace(point, levels=[SCRIPT, *point.levels[1:]]) for point in journal.points]
    write_journal(
        runs / "evil-campaign", structs.replace(journal, name=SCRIPT, factors=factors, points=points, ending=SCRIPT)
    )
    WebAccess(WebDirectory(runs).own).set_account("vera", "viewer", "long enough password")
    RunIndex(WebDirectory(runs)).refresh(at_once=True)
    with closing(sqlite3.connect(runs / ".web" / "index.sqlite")) as index, index:
        index.execute("UPDATE runs SET outcome = 'wrong'")  # only --reindex finds out
    with web_lab(runs, "--reindex") as lab:
        yield lab


@pytest.fixture(scope="module")
def owner(lab: WebLab) -> Iterator[httpx.Client]:
    with lab.client() as client:
        yield client


@pytest.fixture(scope="module")
def stranger(lab: WebLab) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=lab.origin, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def viewer(lab: WebLab) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=lab.origin, timeout=60) as client:
        answer = client.post("/api/login", json={"name": "vera", "password": "long enough password"})
        assert answer.status_code == 200
        client.headers["x-csrf-token"] = client.get("/api/session").json()["csrf"]
        yield client


@pytest.fixture(scope="module")
def routes(tmp_path_factory: pytest.TempPathFactory) -> list[APIRoute]:
    """Every route of the application, from the application itself."""
    directory = WebDirectory(tmp_path_factory.mktemp("routes"))
    services = Services(
        directory, ExperimentStore(directory), RunIndex(directory), RunQueue(directory), WebAccess(directory.own),
        AuditLog(directory.own / "audit.log"), "http://127.0.0.1:1", "token",
    )  # fmt: skip
    return list(_flat(routes_of(services).routes))


def _flat(found: Any) -> Iterator[APIRoute]:
    for route in found:
        inner = getattr(route, "routes", None) or getattr(getattr(route, "original_router", None), "routes", None)
        if isinstance(route, APIRoute):
            yield route
        elif inner:
            yield from _flat(inner)


def _filled(path: str, value: str = "passing") -> str:
    return "/".join(
        part[: part.index("{")] + value + part[part.index("}") + 1 :] if "{" in part else part
        for part in path.split("/")
    )


# -- every route ---------------------------------------------------------------------------------------------------


def test_no_route_is_without_its_check(routes: list[APIRoute], stranger: httpx.Client) -> None:
    assert len(routes) > 40
    for route in routes:
        checks = [one for one in route.dependencies if isinstance(one.dependency, RoleCheck)]
        assert bool(checks) != (route.path in PUBLIC), route.path
        for method in route.methods:
            answer = stranger.request(method, _filled(route.path), headers={"x-csrf-token": "forged"})
            if route.path not in PUBLIC:
                assert answer.status_code == 401, f"{method} {route.path}"
                assert answer.json()["error"].startswith("sign in first")
    for path in BY_FASTAPI:
        assert stranger.get(path).status_code == 401


def test_every_change_needs_the_token_of_its_session(routes: list[APIRoute], lab: WebLab, owner: httpx.Client) -> None:
    for route in routes:
        for method in route.methods - {"GET", "HEAD"}:
            if route.path in PUBLIC:
                continue
            for forged in ("", "x" * 43, owner.headers["x-csrf-token"][:-1]):
                answer = owner.request(method, _filled(route.path), headers={"x-csrf-token": forged}, json={})
                assert answer.status_code == 403, f"{method} {route.path}"
            for foreign in ({"origin": "https://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}):
                answer = owner.request(method, _filled(route.path), headers=foreign, json={})
                assert answer.status_code == 403, f"{method} {route.path} {foreign}"
                assert "another site" in answer.json()["error"]


def test_a_viewer_changes_nothing_and_sees_no_administration(routes: list[APIRoute], viewer: httpx.Client) -> None:
    for route in routes:
        role = next((one.dependency.role for one in route.dependencies if isinstance(one.dependency, RoleCheck)), None)
        if role is None or role <= Role.VIEWER:
            continue
        for method in route.methods:
            answer = viewer.request(method, _filled(route.path), json={})
            assert answer.status_code == 403, f"{method} {route.path}"


def test_every_page_has_its_json_twin_and_the_description_of_the_api_has_it(
    routes: list[APIRoute], owner: httpx.Client
) -> None:
    described = owner.get("/api/openapi.json").json()["paths"]
    pages = [route.path for route in routes if route.response_class is HTMLResponse]
    assert len(pages) >= 10
    for path in pages:
        assert f"/api{path}" in described, path
    changes = [(path, method) for path, methods in described.items() for method in methods if method != "get"]
    assert len(changes) >= 12


def test_bodies_are_json_and_nothing_is_uploaded(owner: httpx.Client) -> None:
    described = owner.get("/api/openapi.json").json()["paths"]
    bodies = [about["requestBody"]["content"] for path in described.values() for about in path.values()
              if "requestBody" in about]  # fmt: skip
    assert len(bodies) > 8
    assert {kind for content in bodies for kind in content} == {"application/json"}
    picture = {"picture": ("x.svg", b"<svg onload='alert(1)'/>", "image/svg+xml")}
    for path in ("/api/experiments", "/api/runs/passing/note", "/api/campaigns"):
        assert owner.post(path, files=picture).status_code == 400


def test_redirects_lead_to_pages_of_this_server(owner: httpx.Client, stranger: httpx.Client) -> None:
    foreign = "https://evil.example"
    for client in (owner, stranger):
        for path in ("/", f"/?next={foreign}", f"/login?next={foreign}", "/runs/", f"/{foreign}",
                     "/%2f%2fevil.example", "/\\evil.example"):  # fmt: skip
            answer = client.get(path, headers={"accept": "text/html"})
            assert answer.headers.get("location", "/login") in {"/", "/login", "/experiments"}, path


@pytest.mark.parametrize("escape", ESCAPES)
def test_a_path_in_a_parameter_leads_nowhere(routes: list[APIRoute], owner: httpx.Client, escape: str) -> None:
    for route in routes:
        if "{" not in route.path:
            continue
        for method in route.methods:
            answer = owner.request(method, _filled(route.path, escape), json={})
            assert answer.status_code in {400, 404}, f"{method} {route.path} {answer.status_code}"
            assert "root:" not in answer.text
    for query in (f"/runs/passing/tables?table={escape}", f"/api/compare?run={escape}", f"/runs?tag={escape}",
                  f"/api/history?experiment={escape}"):  # fmt: skip
        assert "root:" not in owner.get(query).text


SLOW = {"/api/runs/{name}/log-analysis"}
"""Each request starts a program, so all fields of its form are hostile at once."""
COUNTED = {"/api/login", "/api/account/password"}
"""Attempts here are counted and end in a refusal for a while."""


@pytest.mark.parametrize("hostile", ["../../../../etc/passwd", "<script>alert(1)</script>"])
def test_a_hostile_text_in_any_query_or_body_is_refused_or_harmless(
    lab: WebLab, owner: httpx.Client, hostile: str
) -> None:
    """Every text that the API says it takes, one at a time, and every page that a query leads to."""
    described = owner.get("/api/openapi.json").json()
    before = sorted(path for path in lab.runs.rglob("*") if ".web" not in path.parts)
    tried = 0
    for path, methods in described["paths"].items():
        for method, about in methods.items():
            url = _filled(path)
            for name in (one["name"] for one in about.get("parameters", ()) if one["in"] == "query"):
                for page in {url, url.removeprefix("/api")}:
                    answer = owner.get(page, params={name: hostile}, headers={"accept": "text/html"})
                    _assert_harmless(answer, hostile)
                    tried += 1
            content = about.get("requestBody", {}).get("content", {}).get("application/json", {})
            texts = list(_texts(content.get("schema", {}), described["components"]["schemas"], hostile))
            for body in [dict(part for text in texts for part in text.items())] if path in SLOW else texts:
                if path not in COUNTED:
                    _assert_harmless(owner.request(method, url, json=body), hostile)
                    tried += 1
    assert tried > 40
    assert sorted(path for path in lab.runs.rglob("*") if ".web" not in path.parts) == before
    assert owner.post("/api/runs/passing/note", json={"text": "", "tags": ""}).status_code == 200


def _assert_harmless(answer: httpx.Response, hostile: str) -> None:
    assert answer.status_code < 500, f"{answer.request.method} {answer.request.url}"
    assert "root:" not in answer.text
    if answer.headers["content-type"].startswith("text/html"):
        assert "<script>" not in hostile or hostile not in answer.text


def _texts(schema: Any, known: Any, hostile: str) -> Iterator[dict[str, Any]]:
    """Bodies of which one text is hostile; what else must be there is a harmless one."""
    found = known[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    properties = found.get("properties", {})
    needed = {name: "x" for name in found.get("required", ()) if properties[name].get("type") == "string"}
    for name, about in properties.items():
        for kind in about.get("anyOf", [about]):
            if kind.get("type") == "string":
                yield needed | {name: hostile}
            elif kind.get("type") == "array":
                yield needed | {name: [hostile]}
            elif "$ref" in kind:
                for inner in _texts(kind, known, hostile):
                    yield needed | {name: inner}


def test_what_a_name_says_is_never_part_of_the_page(owner: httpx.Client) -> None:
    as_html = {"accept": "text/html"}
    for path in (f"/runs?experiment={SCRIPT}", f"/runs?tag={SCRIPT}", f"/runs?outcome={SCRIPT}", f"/runs/{SCRIPT}",
                 f"/experiments/{SCRIPT}", f"/jobs/{SCRIPT}", f"/compare?run={SCRIPT}",
                 f"/runs/passing/tables?table={SCRIPT}", f"/login?token={SCRIPT}", f"/history?experiment={SCRIPT}",
                 f"/campaigns/{SCRIPT}", "/campaigns", "/campaigns/evil-campaign"):  # fmt: skip
        answer = owner.get(path, headers=as_html)
        assert SCRIPT not in answer.text, path
        assert "script-src 'self';" in answer.headers["content-security-policy"]
    for body in ({"experiment": SCRIPT}, {"experiment": "mine", "cluster": SCRIPT}):
        assert owner.post("/api/jobs", json=body).status_code == 404
    assert "&lt;script&gt;" in owner.get("/campaigns/evil-campaign", headers=as_html).text  # a name of a file
    note = {"text": f"</textarea>{SCRIPT}", "tags": "good"}
    assert owner.post("/api/runs/passing/note", json=note).status_code == 200
    page = owner.get("/runs/passing", headers=as_html).text
    assert SCRIPT not in page
    assert "&lt;script&gt;" in page
    assert owner.post("/api/runs/passing/note", json={"tags": SCRIPT}).status_code == 400
    assert owner.post("/api/experiments", json={"text": YAML.replace("mine", f"'{SCRIPT}'")}).status_code == 400


# -- sessions ------------------------------------------------------------------------------------------------------


def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(lab: WebLab, owner: httpx.Client) -> None:
    link = owner.post("/api/links").json()["link"]
    with httpx.Client(timeout=60) as other:
        answer = other.get(link)
        assert answer.status_code == 303
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert other.get(link).status_code == 303  # signed in: it goes on to the pages, without the used link
    assert httpx.get(link, timeout=60).status_code == 401
    assert httpx.get(f"{lab.origin}/api/runs", cookies={"crescendo": "forged"}, timeout=60).status_code == 401
    assert httpx.get(f"{lab.origin}/runs", headers={"accept": "text/html"}, timeout=60).headers["location"] == "/login"


def test_signing_out_ends_the_session_on_the_server(lab: WebLab, owner: httpx.Client) -> None:
    with lab.client(owner.post("/api/links").json()["link"]) as client:
        cookie = client.cookies["crescendo"]
        assert client.post("/api/sign-out").status_code == 200
        assert httpx.get(f"{lab.origin}/api/runs", cookies={"crescendo": cookie}, timeout=60).status_code == 401


def test_a_page_that_resolves_to_this_server_is_not_served(lab: WebLab, owner: httpx.Client) -> None:
    for foreign in ("evil.example", "[::1", "127.0.0.1.evil.example:80", "@127.0.0.2"):
        assert owner.get("/runs", headers={"host": foreign}).status_code == 421, foreign


def test_every_answer_has_its_headers(owner: httpx.Client) -> None:
    for path in ("/runs", "/api/runs", "/nothing", "/static/web.js"):
        headers = owner.get(path).headers
        assert headers["x-content-type-options"] == "nosniff", path
        assert headers["referrer-policy"] == "no-referrer"
        assert "frame-ancestors" in headers["content-security-policy"]
        assert "server" not in headers
        assert "charset=utf-8" in headers["content-type"] or headers["content-type"] == "application/json", path
        assert ("no-store" in headers["cache-control"]) != path.startswith("/static/")
    assert owner.get("/api/runs").headers["content-disposition"] == 'attachment; filename="api.json"'
    report = owner.get("/runs/passing/report.html").headers["content-security-policy"]
    assert report.startswith("sandbox allow-scripts")
    assert "allow-same-origin" not in report


def test_other_methods_are_refused_and_noted(lab: WebLab, owner: httpx.Client) -> None:
    for method in ("DELETE", "PATCH", "OPTIONS", "TRACE"):
        assert owner.request(method, "/api/runs").status_code == 405, method
        noted = json.loads((lab.runs / ".web" / "audit.log").read_text().splitlines()[-1])
        assert (noted["method"], noted["status"], noted["who"]) == (method, 405, "owner")


def test_a_body_has_a_limit_whether_announced_or_not(lab: WebLab, owner: httpx.Client) -> None:
    address = httpx.URL(lab.origin)
    head = {"Cookie": f"crescendo={owner.cookies['crescendo']}", "X-CSRF-Token": owner.headers["x-csrf-token"]}
    announced = http.client.HTTPConnection(address.host, address.port, timeout=20)
    announced.putrequest("POST", "/api/experiments")
    for name, value in (*head.items(), ("Content-Length", str(2**30)), ("Content-Type", "application/json")):
        announced.putheader(name, value)
    announced.endheaders()
    assert announced.getresponse().status == 413  # without having been sent a byte of it
    announced.close()

    def endless() -> Iterator[bytes]:
        for _ in range(4 * MAX_BODY_BYTES // 2**16):
            yield b" " * 2**16

    try:
        answer = owner.post("/api/experiments", content=endless(), headers={"content-type": "application/json"})
        assert answer.status_code == 413
    except httpx.TransportError:
        pass  # it answered, and closed the connection before all was sent
    for odd in (b"-1", b"1e9", b"\xb2"):
        with socket.create_connection((address.host, address.port or 0), 20) as raw:
            raw.sendall(b"POST /api/login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: " + odd + b"\r\n\r\n")
            assert raw.recv(100).split(b" ")[1] in {b"400", b"413"}
    assert owner.get("/api/runs").status_code == 200


def test_a_run_may_wait_for_its_time(lab: WebLab, owner: httpx.Client) -> None:
    assert owner.post("/api/experiments", json={"text": YAML.replace("mine", "later")}).status_code == 200
    job = owner.post("/api/jobs", json={"experiment": "later", "start_at": "2099-01-31T22:00"}).json()["id"]
    waiting = owner.get(f"/api/jobs/{job}").json()
    assert waiting["state"] == "queued"
    assert datetime.fromtimestamp(waiting["not_before_ns"] / 1e9).isoformat() == "2099-01-31T22:00:00"
    wrong = owner.post("/api/jobs", json={"experiment": "later", "start_at": "tomorrow"})
    assert (wrong.status_code, "write a time such as" in wrong.json()["error"]) == (400, True)
    assert owner.post(f"/api/jobs/{job}/stop", json={}).status_code == 200
    assert owner.get(f"/api/jobs/{job}").json()["state"] == "cancelled"


def test_a_campaign_waits_in_the_queue_and_names_no_file_elsewhere(owner: httpx.Client) -> None:
    assert owner.post("/api/experiments", json={"text": YAML.replace("mine", "varied")}).status_code == 200
    asked = {"experiment": "varied", "factors": "workload.rate: [100, 200]\nworkload.size: [100, 1KB]", "repeat": 3,
             "start_at": "2099-01-31T22:00"}  # fmt: skip
    planned = owner.post("/api/campaigns/plan", json=asked).json()
    assert (planned["points"], planned["runs"], planned["directory"]) == (4, 12, "varied-campaign")
    for key, text, problem in (
        ("factors", "workload.rat: [1, 2]", "did you mean 'rate'"),
        ("factors", "system.home: [/etc, /usr]", "--any-file"),
        ("factors", "workload.size: [{file: /etc/passwd}, 100]", "--any-file"),
        ("factors", "{a: {key: topology, levels: [../../x, b.yml]}}", "--any-file"),
        ("factors", "{a: {levels: {b: {topology: /etc/x}, c: {topology: c.yml}}}}", "--any-file"),
        ("factors", "{a: {levels: {b: {system: {kind: mlmq, home: /etc}}, c: {system: {kind: mlmq}}}}}", "--any-file"),
        ("factors", "a: &a [1, 2]\nb: *a", "aliases"),
        ("factors", f"seed: {list(range(999))}\nworkload.rate: [1, 2]", "at most 1,000"),
        ("settings", "experiment: {system: {kind: mlmq, home: /etc}}", "--any-file"),
        ("settings", "name: ../elsewhere", "not a valid name"),
        ("shipped", "../quick--campaign", "no campaign"),
    ):
        for path in ("/api/campaigns", "/api/campaigns/plan"):
            answer = owner.post(path, json=asked | {key: text})
            assert (answer.status_code in {400, 404}, problem in answer.json()["error"]) == (True, True), answer.text
    job = owner.post("/api/campaigns", json=asked).json()["id"]
    assert (owner.get(f"/api/jobs/{job}").json()["campaign"], job) == ("varied-campaign", job)
    assert "in the queue already" in owner.post("/api/campaigns", json=asked).json()["error"]
    assert owner.post(f"/api/jobs/{job}/stop", json={}).status_code == 200
    assert owner.get(f"/api/jobs/{job}").json()["state"] == "cancelled"
    elsewhere = owner.post("/api/campaigns/evil-campaign/continue", json={})
    assert (elsewhere.status_code, "command line" in elsewhere.json()["error"]) == (400, True)


def test_malformed_bodies_are_explained(owner: httpx.Client) -> None:
    for body in (b"{", b"[]", b'{"text": 1}', b'{"more": 1}', b"\xff"):
        answer = owner.post("/api/experiments", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 400, body
        assert answer.json()["error"]


def test_the_audit_log_names_changes_and_refusals_but_no_secret(lab: WebLab, owner: httpx.Client) -> None:
    owner.post("/api/experiments/check", json={"text": YAML})
    httpx.post(f"{lab.origin}/api/jobs", json={}, timeout=60)
    httpx.post(f"{lab.origin}/api/login", json={"name": "vera", "password": "a wrong password"}, timeout=60)
    text = (lab.runs / ".web" / "audit.log").read_text()
    entries = [json.loads(line) for line in text.splitlines()]
    assert {"who": "owner", "method": "POST", "path": "/api/experiments/check", "status": 200}.items() <= entries[
        -3
    ].items()
    assert {"who": "-", "path": "/api/jobs", "status": 401}.items() <= entries[-2].items()
    assert {"who": "-", "path": "/api/login", "status": 401}.items() <= entries[-1].items()
    for secret in (owner.cookies["crescendo"], owner.headers["x-csrf-token"], "a wrong password", lab.link[-20:]):
        assert secret not in text
    assert (lab.runs / ".web" / "audit.log").stat().st_mode & 0o077 == 0


def test_guessing_tokens_is_limited(lab: WebLab, owner: httpx.Client) -> None:
    with httpx.Client(
        base_url=lab.origin, timeout=60, transport=httpx.HTTPTransport(local_address="127.0.0.2")
    ) as guesser:
        codes = [guesser.get(f"/login?token={number}").status_code for number in range(7)]
    assert codes == [401] * 5 + [429] * 2


# -- results -------------------------------------------------------------------------------------------------------


def test_pages_say_what_the_runs_on_disk_say(owner: httpx.Client, lab: WebLab) -> None:
    found = {run["name"]: run["outcome"] for run in owner.get("/api/runs").json()["runs"]}
    assert found == {"passing": "pass", "failing": "fail"}
    assert owner.get("/api/runs?outcome=fail").json()["runs"][0]["name"] == "failing"
    run = owner.get("/api/runs/passing").json()
    assert run["summary"]["verdict"]["outcome"] == "pass"
    assert run["report"]
    compared = owner.get("/api/compare?run=passing&run=failing").json()
    assert [one["name"] for one in compared["runs"]] == ["passing", "failing"]
    rate = next(row for row in compared["metrics"] if row["metric"] == "rate")
    assert rate["values"][0] == run["summary"]["rate"]["sustained"]
    (judged,) = compared["judged"]
    assert (judged["baseline"], judged["run"], judged["outcome"]) == ("passing", "failing", "worse")
    assert str(lab.runs) not in json.dumps(compared)
    six = "&".join(["run=passing"] * 6)
    assert owner.get(f"/api/compare?{six}").status_code == 400


def test_tables_are_there_as_json_and_csv(owner: httpx.Client, lab: WebLab) -> None:
    (table, *_) = owner.get("/api/runs/passing/tables").json()["tables"]
    rows = owner.get(f"/api/runs/passing/tables/{table}?limit=5").json()
    text = owner.get(f"/runs/passing/tables/{table}.csv").text
    parsed = list(csv.reader(io.StringIO(text)))
    assert parsed[0] == rows["columns"]
    assert len(parsed) == rows["count"] + 1
    assert len(rows["rows"]) == min(5, rows["count"])


def test_a_zip_has_the_files_of_the_run_and_nothing_else(owner: httpx.Client, lab: WebLab) -> None:
    whole = zipfile.ZipFile(io.BytesIO(owner.get("/runs/passing/download/everything.zip").content))
    assert whole.testzip() is None
    assert whole.read("passing/manifest.json") == (lab.runs / "passing" / "manifest.json").read_bytes()
    logs = zipfile.ZipFile(io.BytesIO(owner.get("/runs/passing/download/logs.zip").content))
    assert logs.namelist() == ["passing/logs/sender-0.log", "passing/left-out.txt"]
    assert logs.read("passing/logs/sender-0.log") == b"a line\n"
    assert b"outside the recording" in logs.read("passing/left-out.txt")
    assert owner.get("/runs/passing/download/others.zip").status_code == 404


def test_a_viewer_sees_experiments_without_their_passwords(owner: httpx.Client, viewer: httpx.Client) -> None:
    text = YAML.replace("mine", "secretive").replace("{kind: loopback}", "{url: 'amqp://u:hunter2@127.0.0.1'}")
    assert owner.post("/api/experiments", json={"text": text}).status_code == 200
    assert "hunter2" in owner.get("/api/experiments/secretive").text
    assert "hunter2" not in viewer.get("/api/experiments/secretive").text
    assert "hunter2" not in viewer.get("/api/experiments").text


def test_metrics_are_for_a_session_or_the_token_and_keep_the_last_sample(
    lab: WebLab, owner: httpx.Client, viewer: httpx.Client
) -> None:
    assert httpx.get(f"{lab.origin}/metrics", timeout=60).status_code == 401
    assert httpx.get(f"{lab.origin}/metrics", headers={"authorization": "Bearer x"}, timeout=60).status_code == 401
    token = (lab.runs / ".web" / "metrics-token").read_text().strip()
    files = _under_way(lab)
    answer = httpx.get(f"{lab.origin}/metrics", headers={"authorization": f"Bearer {token}"}, timeout=60)
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    lines = answer.text.splitlines()
    assert 'crescendo_runs{outcome="pass"} 1' in lines
    assert 'crescendo_live_rate{experiment="followed",role="sender"} 250' in lines
    assert 'crescendo_live_messages_total{experiment="followed",role="receiver"} 7' in lines
    assert lines[-1] == "# EOF"
    assert viewer.get("/metrics").status_code == 200
    (files.directory / "result.json").write_text('{"state": "done", "run": "", "outcome": ""}')


def test_events_continue_where_the_browser_stopped(lab: WebLab, owner: httpx.Client) -> None:
    files = _under_way(lab)
    (files.directory / "result.json").write_text('{"state": "failed", "problem": "p"}')
    url = f"/api/jobs/{files.directory.name}/live"
    whole = owner.get(url).text
    assert whole.count("event: live") == 3
    assert whole.count("event: end") == 1
    ids = [int(line.removeprefix("id: ")) for line in whole.splitlines() if line.startswith("id: ")]
    second = ids[2]  # the first event is the state, before any line
    rest = owner.get(url, headers={"last-event-id": str(second)}).text
    assert rest.count("event: live") == 1
    assert owner.get(url, headers={"last-event-id": "-7 x"}).text == whole


def _under_way(lab: WebLab) -> JobFiles:
    """A job of a process that lives, with lines as a run process writes them."""
    jobs = Jobs(WebDirectory(lab.runs))
    job_id = jobs.add("followed", YAML, by="test", not_before_ns=2**62)
    files = jobs.get(job_id)
    role = {"rate": 250.0, "messages": 7, "p99_ns": 2_000_000, "cpu": 0.1, "p90_ns": None}
    entry = {"kind": "sample", "sender": role, "receiver": role, "peers": [], "elapsed_s": 1.0}
    (files.directory / LIVE).write_text("".join(json.dumps(entry) + "\n" for _ in range(3)))
    write_document(files.directory / "claim.json", process_ref("run", lab.process.pid))
    return files


# -- starting ------------------------------------------------------------------------------------------------------


def _refused(*options: str) -> str:
    command = [sys.executable, "-m", "crescendo.cli.main", "web", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_second_server_on_the_same_directory_is_refused(lab: WebLab) -> None:
    assert f"process {lab.process.pid}" in _refused("--out", str(lab.runs), "--port", "0")


def test_beyond_loopback_tls_and_accounts_are_demanded(tmp_path: Path) -> None:
    pem = tmp_path / "pem"
    pem.write_text("x")
    options = WebOptions(tmp_path, host=EVERYWHERE)
    for missing, more in (("TLS", {}), ("--name", {"certificate": pem, "key": pem}), ("accounts", {"names": ("lab",)})):
        options = replace(options, **more)
        with pytest.raises(ConfigError, match=missing):
            checked_access(options)
    with pytest.raises(ConfigError, match="go together"):
        checked_access(replace(options, key=None))


def test_beyond_loopback_people_sign_in_over_tls(tmp_path: Path) -> None:
    authority = Authority()
    pair = authority.server("127.0.0.1", "localhost")
    (tmp_path / "certificate.pem").write_bytes(pair.certificate)
    (tmp_path / "key.pem").write_bytes(pair.key)
    (tmp_path / "ca.pem").write_bytes(authority.certificate)
    command = [sys.executable, "-m", "crescendo.cli.main", "web", "--out", str(tmp_path), "--add-account", "ada"]
    added = subprocess.run(
        [*command, "--role", "admin"],
        input="long enough password\n", text=True, capture_output=True, check=True,
    )  # fmt: skip
    assert "ada" in added.stdout
    files = ("--certificate", str(tmp_path / "certificate.pem"), "--key", str(tmp_path / "key.pem"))
    with web_lab(tmp_path, "--host", EVERYWHERE, "--name", "localhost", *files) as lab:
        assert lab.link.startswith("https://localhost:")
        assert lab.link.endswith("/login")  # no token: it would be an account without a password
        trusted = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        with httpx.Client(base_url=lab.link.removesuffix("/login"), verify=trusted, timeout=60) as client:
            wrong = client.post("/api/login", json={"name": "ada", "password": "not this password"})
            assert wrong.status_code == 401
            answer = client.post("/api/login", json={"name": "ada", "password": "long enough password"})
            assert answer.status_code == 200
            cookie = answer.headers["set-cookie"].lower()
            assert cookie.startswith("__host-crescendo=")
            assert {"secure", "path=/"} <= set(cookie.split("; "))
            assert "includeSubDomains" in answer.headers["strict-transport-security"]
            session = client.get("/api/session").json()
            assert session["role"] == "admin"
            change = {"current": "long enough password", "password": "a better password"}
            client.headers["x-csrf-token"] = session["csrf"]
            assert client.post("/api/account/password", json=change | {"current": "x"}).status_code == 400
            assert client.post("/api/account/password", json=change).status_code == 200
            assert client.get("/api/session").status_code == 401  # all its sessions ended
            again = {"name": "ada", "password": "a better password"}
            assert client.post("/api/login", json=again).status_code == 200
        raw = socket.create_connection(("127.0.0.1", httpx.URL(lab.link).port or 0))
        with trusted.wrap_socket(raw, server_hostname="localhost") as wrapped:
            assert wrapped.version() == "TLSv1.3"


# -- SQL -----------------------------------------------------------------------------------------------------------


def _asked(owner: httpx.Client, sql: str) -> httpx.Response:
    return owner.post("/api/runs/passing/sql", json={"sql": sql})


def test_sql_reads_the_tables_of_the_run(owner: httpx.Client) -> None:
    counted = owner.get("/api/runs/passing/tables/throughput").json()["count"]
    assert _asked(owner, "SELECT count(*) AS n FROM throughput").json() == {
        "columns": ["n"], "rows": [[counted]], "more": False, "problem": "",
    }  # fmt: skip
    refused = _asked(owner, "SELECT * FROM read_text('/etc/passwd')")
    assert refused.status_code == 400
    assert "root:" not in refused.text


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM no_such_table",
        "SELECT * FROM '/etc/passwd'",
        "FROM read_csv('http://127.0.0.1:1/x.csv')",
        "COPY (SELECT 1) TO '{runs}/passing/written.csv'",
        "ATTACH 'other.db'",
        "SET enable_external_access = true",
        "SELECT 1; SELECT 2",
        "INSTALL httpfs",
        "DROP VIEW throughput",
        "SELECT * FROM glob('/etc/*')",
        "SELECT * FROM read_blob('{runs}/failing/summary.json')",
        "",
    ],
)
def test_sql_reads_nothing_else_and_changes_nothing(lab: WebLab, sql: str) -> None:
    """In this process, as the process of its own does it: starting a dozen of them takes long."""
    before = sorted((lab.runs / "passing").rglob("*"))
    answer = answer_to(SqlQuestion(str(lab.runs / "passing"), sql.replace("{runs}", str(lab.runs))))
    assert answer.problem
    assert answer.rows == []
    assert sorted((lab.runs / "passing").rglob("*")) == before


def test_sql_ends_with_its_limit_of_time(lab: WebLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_process, "TIMEOUT_S", 0.2)
    endless = "SELECT count(*) FROM range(1000000000) a, range(1000000000) b"
    with pytest.raises(ConfigError, match="took longer than"):
        asyncio.run(sql_process.ask(lab.runs / "passing", endless, tmp_path))


def test_sql_ends_with_its_limits(owner: httpx.Client) -> None:
    greedy = _asked(owner, "SELECT list(a.i) FROM range(400000000) a(i)")
    assert greedy.status_code == 400
    assert owner.get("/api/runs").status_code == 200
