"""Safeguards that need no server: how people sign in, and what the code of the pages and of the server never does."""

import ast
import base64
import re
import time
from pathlib import Path

import pytest
from msgspec.structs import fields

import crescendo.web
from crescendo.model.errors import ConfigError
from crescendo.web.routes.access_routes import SignInBody
from crescendo.web.run_index import RunIndex
from crescendo.web.web_access import Account, WebAccess
from crescendo.web.web_directory import WebDirectory
from report_samples import SAMPLES, write_sample

WEB = Path(crescendo.web.__file__).parent
SCRIPTS = {path.name: path.read_text() for path in (WEB / "static").glob("*.js")}
PASSWORD, OTHER = "long enough password", "another good password"
YEARS_S = 10 * 365 * 86400.0


def test_passwords_do_not_expire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    access = WebAccess(tmp_path)
    access.set_account("ada", "viewer", PASSWORD)
    later_s = time.time() + YEARS_S
    monkeypatch.setattr(time, "time", lambda: later_s)
    assert access.session(access.sign_in("ada", PASSWORD, "here")) is not None


def test_a_lost_password_is_replaced_by_an_administrator(tmp_path: Path) -> None:
    access = WebAccess(tmp_path)
    access.set_account("ada", "viewer", PASSWORD)
    cookie = access.sign_in("ada", PASSWORD, "here")
    access.set_account("ada", "viewer", OTHER)
    assert access.session(cookie) is None
    with pytest.raises(ConfigError, match="wrong"):
        access.sign_in("ada", PASSWORD, "here")
    assert access.session(access.sign_in("ada", OTHER, "here")) is not None


def test_an_account_is_a_name_a_role_and_a_hash() -> None:
    """No hint, no secret question, and no address or number to which somebody else could have a code sent."""
    assert [field.name for field in fields(Account)] == ["name", "role", "salt", "key"]
    assert set(SignInBody.model_fields) == {"name", "password"}


def test_cookies_and_links_have_256_random_bits(tmp_path: Path) -> None:
    access = WebAccess(tmp_path)
    links = [access.new_link() for _ in range(20)]
    secrets = [*links, *(access.redeem(link, "here") for link in links)]
    assert {len(base64.urlsafe_b64decode(f"{secret}=")) for secret in secrets} == {32}
    assert len(set(secrets)) == 40


def test_password_fields_can_be_pasted_into_and_filled_by_a_manager() -> None:
    templates = "".join(path.read_text() for path in (WEB / "templates").glob("*.j2"))
    found = [tag for tag in re.findall(r"<input[^>]*>", templates) if re.search(r'name="(password|current)"', tag)]
    assert len(found) == 4
    for tag in found:
        assert 'type="password"' in tag
        assert re.search(r'autocomplete="(current|new)-password"', tag)
    assert not [name for name, text in SCRIPTS.items() if "paste" in text]


def test_scripts_evaluate_nothing_and_write_text_only() -> None:
    forbidden = (
        r"\beval\(|\bFunction\(|innerHTML|outerHTML|insertAdjacentHTML|document\.write|set(?:Timeout|Interval)\([\"']"
    )
    for name, text in SCRIPTS.items():
        assert not re.search(forbidden, text), name
    assert any("JSON.parse(" in text for text in SCRIPTS.values())


def test_the_browser_stores_the_theme_alone() -> None:
    text = "".join(SCRIPTS.values())
    assert re.findall(r"localStorage\.setItem\((\S+),", text) == ['"theme"']
    assert not re.search(r"sessionStorage|indexedDB|document\.cookie|caches\.", text)


def test_no_text_of_a_request_becomes_part_of_a_query(tmp_path: Path) -> None:
    directory = WebDirectory(tmp_path)
    write_sample(tmp_path / "one", SAMPLES["passing"])
    index = RunIndex(directory)
    everything = "' OR ''='"
    assert len(index.runs()) == 1
    assert index.runs(experiment=everything) == index.runs(outcome=everything) == []
    assert index.runs(experiment="'; DROP TABLE runs; --") == []
    assert len(index.runs()) == 1


def test_no_program_is_started_by_a_shell() -> None:
    for path in WEB.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in {"os.system", "os.popen", "asyncio.create_subprocess_shell"}, path.name
                assert not any(keyword.arg == "shell" for keyword in node.keywords), path.name
