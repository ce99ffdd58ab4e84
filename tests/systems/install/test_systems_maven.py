"""Is a release either installed completely, with its record, or not at all?"""

import hashlib
import io
import re
import subprocess
import tarfile
from importlib import import_module
from pathlib import Path

import msgspec
import pytest

from crescendo.model.errors import ConfigError
from crescendo.systems.install import maven
from crescendo.systems.install.data_directory import data_directory
from crescendo.systems.install.maven import RECORD, InstallRecord, unpack
from crescendo.systems.install.maven_project import CHECKSUMS, check_jars, java_project
from crescendo.systems.kinds.artemis import RELEASE as ARTEMIS_RELEASE
from crescendo.systems.kinds.qpid_broker_j import RELEASE


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A separate data directory, without the user's own brokers."""
    monkeypatch.setenv("CRESCENDO_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("QPID_HOME", raising=False)
    return tmp_path / "data"


def given_home(directory: Path, *jars: str) -> Path:
    (directory / "lib").mkdir(parents=True)
    for jar in jars:
        (directory / "lib" / jar).touch()
    return directory


def archive(path: Path, **files: bytes) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def installed(data: Path, version: str) -> Path:
    """A release as an earlier installation left it."""
    directory = data / "systems" / "qpid-broker-j" / version
    given_home(directory / "home", f"qpid-broker-core-{version}.jar")
    (directory / RECORD).write_bytes(msgspec.json.encode(InstallRecord(version, "maven g:a:v", "0" * 64)))
    return directory


def test_maven_fetches_a_release_and_its_checksum_is_kept(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sums: list[str] = []

    def hash_and_unpack(fetched: Path, target: Path) -> None:
        sums.append(subprocess.run(["sha256sum", fetched], capture_output=True, text=True, check=True).stdout[:64])
        unpack(fetched, target)

    monkeypatch.setattr(maven, "unpack", hash_and_unpack)
    left = data / "systems" / "qpid-broker-j" / ".partial-of-a-killed-one"
    (left / "unpacked").mkdir(parents=True)
    steps: list[str] = []
    found = RELEASE.install(None, steps.append)
    assert len(steps) == 2
    assert sorted(path.name for path in data.rglob("qpid-broker-j/*")) == [".lock", RELEASE.default]
    assert found.home.joinpath("lib", f"qpid-broker-core-{found.version}.jar").stat().st_size > 0
    assert sums == [found.sha256]

    monkeypatch.setenv("PATH", "/nowhere")  # so that Maven cannot run again
    assert RELEASE.install(None, steps.append) == found
    assert len(steps) == 2


def fetched(data: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """Maven delivers an archive of our own making."""

    def deliver(*_: object, **__: object) -> Path:
        (partial,) = data.rglob(".partial-*")
        name = f"lib/qpid-broker-core-{version}.jar"
        return archive(partial / "x.tar.gz", **{name: b"", "top/a": b"", "top/b": b""})

    monkeypatch.setattr(maven, "fetch", deliver)


def test_an_archive_with_another_checksum_is_refused_and_leaves_nothing(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched(data, monkeypatch, RELEASE.default)
    with pytest.raises(
        ConfigError, match=rf"has the SHA-256 [0-9a-f]{{64}}, but qpid-broker-j {RELEASE.default} has bf"
    ):
        RELEASE.install(None, print)
    assert [path.name for path in data.rglob("qpid-broker-j/*")] == [".lock"]


def test_a_version_whose_checksum_is_not_known_is_installed_and_said_to_be_so(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched(data, monkeypatch, "8.8.8")
    steps: list[str] = []
    found = RELEASE.install("8.8.8", steps.append)
    assert f"the SHA-256 of apache-qpid-broker-j 8.8.8 is not known here; this archive has {found.sha256}" in steps


@pytest.mark.parametrize("kind", ["activemq", "artemis", "qpid_broker_j"])
def test_the_checksum_of_every_default_version_is_known(kind: str) -> None:
    release = import_module(f"crescendo.systems.kinds.{kind}").RELEASE
    assert re.fullmatch(r"[0-9a-f]{64}", release.sha256[release.default])


def test_an_unpublished_version_is_refused_and_leaves_nothing(data: Path) -> None:
    with pytest.raises(ConfigError, match=r"no Maven repository has .*:0\.0\.1 as tar\.gz; request another version"):
        RELEASE.install("0.0.1", print)
    assert [path.name for path in data.rglob("qpid-broker-j/*")] == [".lock"]


@pytest.mark.parametrize("version", ["../../etc", "9.2.1:jar", "-Dx"])
def test_an_invalid_version_never_reaches_maven_or_the_disk(version: str, data: Path) -> None:
    with pytest.raises(ConfigError, match="is not a valid version"):
        RELEASE.install(version, print)
    assert not data.exists()


def test_a_failure_while_unpacking_leaves_nothing(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> Path:
        (partial,) = data.rglob(".partial-*")
        (partial / "x.tar.gz").write_bytes(b"this is not an archive")
        return partial / "x.tar.gz"

    monkeypatch.setattr(maven, "fetch", broken)
    with pytest.raises(ConfigError, match="cannot be unpacked"):
        RELEASE.install("8.8.8", print)  # whose checksum is not known
    assert [path.name for path in data.rglob("qpid-broker-j/*")] == [".lock"]


@pytest.mark.parametrize("name", ["../outside", "a/../../outside"])
def test_an_archive_cannot_write_outside_its_target(name: str, tmp_path: Path) -> None:
    hostile = archive(tmp_path / "hostile.tar.gz", **{name: b"gotcha"})
    with pytest.raises(ConfigError, match="cannot be unpacked"):
        unpack(hostile, tmp_path / "target")
    assert not (tmp_path / "outside").exists()


def test_an_archive_cannot_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maven, "MAX_UNPACKED_BYTES", 1_000)
    big = archive(tmp_path / "big.tar.gz", first=bytes(600), second=bytes(600))
    with pytest.raises(ConfigError, match="more than"):
        unpack(big, tmp_path / "target")
    assert not (tmp_path / "target" / "second").exists()


def test_the_version_of_a_given_home_is_read_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = given_home(tmp_path / "qpid", "qpid-broker-core-8.0.6.jar", "guava-33.jar")
    assert (RELEASE.find(home, None).version, RELEASE.find(home, None).origin) == ("8.0.6", "given")
    monkeypatch.setenv("QPID_HOME", str(home))
    assert RELEASE.find(None, None).home == home
    with pytest.raises(ConfigError, match=r"9\.2\.1 is not installed, 8\.0\.6 is"):
        RELEASE.find(None, "9.2.1")


@pytest.mark.parametrize("jars", [(), ("qpid-broker-core-1.0.jar", "qpid-broker-core-2.0.jar")])
def test_a_directory_that_is_not_a_home_is_refused(jars: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a qpid-broker-j home"):
        RELEASE.find(given_home(tmp_path / "qpid", *jars), None)


def test_the_error_for_a_missing_release_names_the_command_that_installs_it() -> None:
    with pytest.raises(ConfigError, match=r"run: crescendo system install qpid-broker-j --version 8\.0\.6,"):
        RELEASE.find(None, "8.0.6")


def test_without_the_default_version_the_newest_installed_one_is_used(data: Path) -> None:
    installed(data, "8.0.6")
    installed(data, "8.0.10")
    assert RELEASE.find(None, None).version == "8.0.10"
    assert RELEASE.find(None, "8.0.6").version == "8.0.6"
    installed(data, RELEASE.default)
    assert RELEASE.find(None, None).version == RELEASE.default


def test_a_damaged_record_is_named_with_its_cure(data: Path) -> None:
    directory = installed(data, RELEASE.default)
    (directory / RECORD).write_text("{")
    with pytest.raises(ConfigError, match=r"remove .* and install it again"):
        RELEASE.find(None, None)


def test_a_data_directory_that_cannot_be_written_is_named(data: Path) -> None:
    data.write_text("a file where a directory should be")
    with pytest.raises(ConfigError, match="set CRESCENDO_DATA to another directory"):
        RELEASE.install(None, print)


def test_releases_are_in_the_xdg_data_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CRESCENDO_DATA")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert data_directory() == tmp_path / "crescendo"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_directory() == tmp_path / ".local" / "share" / "crescendo"


# -- jars that belong together ---------------------------------------------------------------------------------------


def test_jars_that_differ_from_their_list_are_refused(tmp_path: Path) -> None:
    digest = hashlib.sha256(b"jar").hexdigest()
    (tmp_path / "a-1.jar").write_bytes(b"jar")
    check_jars(tmp_path, f"{digest}  a-1.jar\n", "project")
    for checksums, wrong in (
        (f"{'0' * 64}  a-1.jar\n", f"a-1.jar has the SHA-256 {digest} instead of 0+"),
        ("", "a-1.jar is not part of it"),
        (f"{digest}  a-1.jar\n{digest}  b-1.jar\n", "b-1.jar is missing"),
    ):
        with pytest.raises(ConfigError, match=f"project: {wrong}; do not use it"):
            check_jars(tmp_path, checksums, "project")


@pytest.mark.parametrize("project", ["jms-clients", "activemq-6.1.7"])
def test_every_jar_of_a_project_is_pinned(project: str) -> None:
    lines = (java_project(project) / CHECKSUMS).read_text(encoding="ascii").splitlines()
    assert len(lines) >= 20
    assert all(re.fullmatch(r"[0-9a-f]{64}  [\w.-]+\.jar", line) for line in lines)


def test_a_release_that_moved_is_fetched_from_its_new_group(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def deliver(group: str, artifact: str, version: str, directory: Path, **_: object) -> Path:
        asked.append(group)
        raise ConfigError("not here")

    monkeypatch.setattr(maven, "fetch", deliver)
    for version in ("2.44.0", "2.49.1", "2.50.0", "2.56.0", "3.0.0"):
        with pytest.raises(ConfigError, match="not here"):
            ARTEMIS_RELEASE.install(version, print)
    assert asked == ["org.apache.activemq"] * 2 + ["org.apache.artemis"] * 3
