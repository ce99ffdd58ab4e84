"""Are the programs of another PostgreSQL installed completely and unchanged, or not at all?"""

from pathlib import Path

import pytest

from crescendo.mlmq.postgres import binaries
from crescendo.model.errors import ConfigError
from crescendo.systems.install import postgresql


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A separate data directory."""
    monkeypatch.setenv("CRESCENDO_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.mark.soak  # the set-up of the suite fetches another version
def test_a_version_is_fetched_once_and_then_found_by_its_number(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    found = postgresql.install_postgresql("14", steps.append)
    assert [path.parent.name for path in postgresql.installed_programs()] == [found.version]
    assert found.version.startswith("14.")
    cluster = data / "cluster"
    cluster.mkdir()
    (cluster / "PG_VERSION").write_text("14\n")
    assert binaries.find(cluster) == found.home / "bin"
    monkeypatch.setenv("PATH", "/nowhere")  # so that Maven cannot run again
    assert postgresql.install_postgresql(found.version, steps.append) == found
    assert len(steps) == 1


def test_an_archive_with_another_checksum_is_refused_and_leaves_nothing(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deliver(*_: object, **__: object) -> Path:
        (partial,) = data.rglob(".partial-*")
        jar = partial / "other.jar"
        jar.write_bytes(b"other")
        return jar

    monkeypatch.setattr(postgresql, "fetch", deliver)
    with pytest.raises(ConfigError, match="SHA-256"):
        postgresql.install_postgresql("13", lambda text: None)
    assert postgresql.installed_programs() == []
    assert [path.name for path in data.rglob("postgresql/*")] == [".lock"]


def test_unknown_versions_and_machines_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"9\.6 is not known here; choose from 13\."):
        postgresql.install_postgresql("9.6", lambda text: None)
    monkeypatch.setattr("platform.machine", lambda: "s390x")
    with pytest.raises(ConfigError, match="x86_64 only"):
        postgresql.install_postgresql("13", lambda text: None)
