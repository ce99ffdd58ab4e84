"""Is the Java of a broker found and checked before anything starts?"""

from pathlib import Path

import pytest

from crescendo.model.errors import ConfigError
from crescendo.systems.base import Installation
from crescendo.systems.install.java import with_java

SOMEWHERE = Installation("1.0", Path("/opt/broker"), "given")


def fake_java(home: Path, output: str) -> None:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text(f"#!/bin/sh\necho '{output}' >&2\n")
    (home / "bin" / "java").chmod(0o755)


def test_java_home_comes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, 'openjdk version "21.0.2" 2024-01-16')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    found = with_java(SOMEWHERE, 17)
    assert (found.java, found.java_version) == (tmp_path / "bin" / "java", "21.0.2")


def test_an_old_java_is_refused_by_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, 'java version "1.8.0_392"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r"is Java 1\.8\.0_392, and this system needs 17"):
        with_java(SOMEWHERE, 17)


def test_a_command_that_is_not_java_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "mute", "hello")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "mute"))
    with pytest.raises(ConfigError, match="does not report its version"):
        with_java(SOMEWHERE, 17)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "empty"))
    with pytest.raises(ConfigError, match="cannot be run"):
        with_java(SOMEWHERE, 17)
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="no java on the PATH"):
        with_java(SOMEWHERE, 17)
