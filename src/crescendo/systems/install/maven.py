"""How is a release installed from a Maven repository, and where is it afterwards?

Maven itself downloads it and verifies the checksum of its repository, so the user's mirrors and proxies apply; the
archives of known versions must also have the SHA-256 that is written in the module of their kind. Runs no script of a
release and changes nothing in it.
"""

import contextlib
import re
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct

from crescendo.model.errors import ConfigError
from crescendo.record.documents import write_document
from crescendo.systems.base import Installation
from crescendo.systems.install.data_directory import data_directory, install_once, make_whole
from crescendo.systems.install.maven_command import run_maven
from crescendo.systems.install.maven_project import CHECKSUMS, fetch_jars, java_project, sha256_of_file, wrong_checksum
from crescendo.systems.install.packages import check_version, home_from_environment

RECORD = "installation.json"
HOME = "home"
ASSEMBLED = "maven, assembled from"
"""How the origin of a release begins that is made of jars: it has a lib directory and nothing else."""

MAX_FILES = 20_000
MAX_UNPACKED_BYTES = 2 * 2**30
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
_VERSION = re.compile(r"[0-9][A-Za-z0-9._-]{0,63}")


class InstallRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """The file next to an installed release: where it came from."""

    version: str
    origin: str
    sha256: str


@dataclass(frozen=True)
class Release:
    """A system that is published as one archive."""

    kind: str
    group: str
    artifact: str
    default: str  # the version to install when none is requested
    variable: str  # the environment variable that points to an existing installation
    jar: str  # its name up to the version: a jar under lib/ that every version has
    sha256: Mapping[str, str] = field(default_factory=dict)  # of the archives that were tried, by version
    moved: tuple[int, int, str] | None = None  # from this major and minor version on it is published by this group
    assembled: frozenset[str] = frozenset()  # versions made of jars, by the project java/KIND-VERSION

    def find(self, home: Path | None, version: str | None) -> Installation:
        """The release in `home`, in the directory that the environment names, or where `install` put it."""
        given = home or home_from_environment(self.variable)
        if given is None:
            return self._installed(version)
        found = self._version_in(given)
        check_version(self.kind, found, version)
        return Installation(version=found, home=given.absolute(), origin="given")

    def install(self, version: str | None, progress: Callable[[str], None]) -> Installation:
        """Download and unpack the release, unless it is already installed."""
        version = _checked_version(version or self.default)
        directory = self._release_dir(version)
        make = partial(self._fetch, version, progress)
        install_once(f"{self.kind} {version}", directory, make, proof=RECORD)
        return self._installed(version)

    def install_into(self, directory: Path, version: str | None, progress: Callable[[str], None]) -> Path:
        """Unpack the release once more, into a directory that does not exist yet; returns its home."""
        version = _checked_version(version or self.default)
        try:
            make_whole(directory, partial(self._fetch, version, progress))
        except OSError as err:
            raise ConfigError(
                f"{self.kind} {version} cannot be installed in {directory}: {err.strerror or err}; free some space"
            ) from err
        return directory / HOME

    def _fetch(self, version: str, progress: Callable[[str], None], scratch: Path) -> Path:
        progress(f"fetching {self.artifact} {version} with Maven")
        release = scratch / "release"
        release.mkdir()
        put = self._assemble if version in self.assembled else self._unpack
        record = put(version, scratch, release / HOME, progress)
        self._version_in(release / HOME)
        write_document(release / RECORD, record)
        return release

    def _unpack(self, version: str, scratch: Path, home: Path, progress: Callable[[str], None]) -> InstallRecord:
        """The archive of this version becomes the home."""
        group = self._group(version)
        archive = fetch(group, self.artifact, version, scratch, progress=progress)
        sha256 = self._checked_sha256(archive, version, progress)
        progress(f"unpacking {archive.name}")
        unpack(archive, scratch / "unpacked")
        _unwrapped(scratch / "unpacked").rename(home)
        return InstallRecord(version, f"maven {group}:{self.artifact}:{version}", sha256)

    def _assemble(self, version: str, scratch: Path, home: Path, progress: Callable[[str], None]) -> InstallRecord:
        """The jars of this version become the home's lib directory."""
        project = java_project(f"{self.kind}-{version}")
        fetch_jars(project, scratch / "build", home / "lib", progress)
        sha256 = sha256_of_file(project / CHECKSUMS)
        return InstallRecord(version, f"{ASSEMBLED} {self.group}:*:{version}", sha256)

    def _group(self, version: str) -> str:
        if self.moved is not None and _version_key(Path(version)) >= self.moved[:2]:
            return self.moved[2]
        return self.group

    def _checked_sha256(self, archive: Path, version: str, progress: Callable[[str], None]) -> str:
        """The checksum of the archive, which must be the one that we know. Says so when we know none."""
        found = sha256_of_file(archive)
        known = self.sha256.get(version)
        if known is None:
            progress(f"the SHA-256 of {self.artifact} {version} is not known here; this archive has {found}")
        elif found != known:
            raise wrong_checksum(archive, found, f"{self.kind} {version}", known)
        return found

    def _installed(self, version: str | None) -> Installation:
        wanted = _checked_version(version or self.default)
        directory = self._release_dir(wanted)
        if version is None and not directory.exists():
            directory = max(self._installed_dirs(), key=_version_key, default=directory)
        try:
            record = msgspec.json.decode((directory / RECORD).read_bytes(), type=InstallRecord)
        except FileNotFoundError:
            option = f" --version {version}" if version is not None else ""
            raise ConfigError(
                f"{self.kind} {wanted} is not installed; run: crescendo system install {self.kind}{option}, "
                f"or point --home or {self.variable} to an existing one"
            ) from None
        except (OSError, msgspec.MsgspecError) as err:
            raise ConfigError(
                f"{directory / RECORD} cannot be read: {err}; remove {directory} and install it again"
            ) from err
        self._version_in(directory / HOME)
        return Installation(record.version, directory / HOME, record.origin, sha256=record.sha256)

    def _installed_dirs(self) -> Iterator[Path]:
        with contextlib.suppress(OSError):
            for directory in self._release_dir(self.default).parent.iterdir():
                if _VERSION.fullmatch(directory.name) and (directory / RECORD).exists():
                    yield directory

    def _release_dir(self, version: str) -> Path:
        return data_directory() / "systems" / self.kind / version

    def _version_in(self, home: Path) -> str:
        name = re.compile(re.escape(self.jar) + r"-(\d.*)\.jar")
        with contextlib.suppress(OSError):
            found = [match[1] for jar in (home / "lib").iterdir() if (match := name.fullmatch(jar.name))]
            if len(found) == 1:
                return found[0]
        raise ConfigError(f"{home} is not a {self.kind} home: it needs exactly one lib/{self.jar}-VERSION.jar")


def fetch(
    group: str,
    artifact: str,
    version: str,
    directory: Path,
    *,
    classifier: str = "bin",
    packaging: str = "tar.gz",
    progress: Callable[[str], None],
) -> Path:
    """Download one artifact into a directory with Maven. Without a pom.xml there, Maven does nothing else."""
    run_maven(
        f"{_PLUGIN}:copy",
        f"-Dartifact={':'.join(filter(None, (group, artifact, version, packaging, classifier)))}",
        f"-DoutputDirectory={directory}",
        directory=directory,
        what=f"{artifact} {version}",
        missing=f"no Maven repository has {group}:{artifact}:{version} as {packaging}; request another version",
        progress=progress,
    )
    archive = directory / f"{'-'.join(filter(None, (artifact, version, classifier)))}.{packaging}"
    if not archive.exists():
        raise ConfigError(f"Maven could not fetch {artifact} {version}: it fetched nothing")
    return archive


def unpack(archive: Path, target: Path) -> None:
    """Unpack an untrusted archive: nothing outside the target, no devices, within the size limits."""
    try:
        with tarfile.open(archive) as tar:
            count = size = 0
            for member in tar:
                count, size = count + 1, size + member.size
                if count > MAX_FILES or size > MAX_UNPACKED_BYTES:
                    limits = f"{MAX_FILES} files or {MAX_UNPACKED_BYTES} bytes"
                    raise ConfigError(f"{archive.name} unpacks to more than {limits}")
                tar.extract(member, target, filter="data")
    except (tarfile.TarError, EOFError, ValueError) as err:
        raise ConfigError(f"{archive.name} cannot be unpacked: {err}; fetch it again") from err


def _unwrapped(directory: Path) -> Path:
    """The directory with the content: archives wrap it in one directory or two."""
    while len(entries := list(directory.iterdir())) == 1 and entries[0].is_dir():
        directory = entries[0]
    return directory


def _checked_version(version: str) -> str:
    if _VERSION.fullmatch(version) is None:
        raise ConfigError(f"{version!r} is not a valid version; write one such as 2.44.0")
    return version


def _version_key(directory: Path) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", directory.name))
