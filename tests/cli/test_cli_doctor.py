"""Does `doctor` say which systems are there, and how to get the others?"""

import json
from pathlib import Path

import pytest

from crescendo.cli.doctor import doctor
from crescendo.model.errors import ConfigError
from crescendo.run import diagnosis
from crescendo.systems.registry import all_kinds


class _Absent:
    name = "absent"

    def find(self, home: Path | None, version: str | None) -> None:
        raise ConfigError("there is no absentd on the PATH; install the package absent")


def _kinds(*more: object) -> list[object]:
    installed = [kind for kind in all_kinds() if kind.name == "loopback"]
    return [*installed, *more]


def test_every_system_has_its_own_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(diagnosis, "all_kinds", lambda: _kinds(_Absent()))
    assert doctor() == 0, "a system that is not installed is not an error"
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith(" ✓ system     loopback ") for line in lines)
    assert " – system     absent: there is no absentd on the PATH; install the package absent" in lines
    assert lines[-1] == "everything that Crescendo needs is in place; not installed: absent"


def test_a_missing_system_is_not_ok_for_programs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(diagnosis, "all_kinds", lambda: _kinds(_Absent()))
    assert doctor(as_json=True) == 0
    systems = {item["kind"]: item["ok"] for item in json.loads(capsys.readouterr().out) if item["name"] == "system"}
    assert systems == {"loopback": True, "absent": False}


def test_without_missing_systems_everything_is_in_place(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(diagnosis, "all_kinds", _kinds)
    assert doctor() == 0
    assert capsys.readouterr().out.splitlines()[-1] == "everything is in place"
