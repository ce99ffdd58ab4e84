"""How is a release installed from a Maven repository, and where is it afterwards?

Maven itself downloads it and verifies the checksum, so the user's mirrors and proxies apply. A release is unpacked next
to its final directory and renamed when it is complete: there is never half a release. Runs no script of a release and
changes nothing in it.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import Struct

from crescendo.model.errors import ConfigError
from crescendo.systems.base import Installation
from crescendo.systems.install.packages import check_version, home_from_environment, install_package

RECORD = "installation.json"
HOME = "home"
MAX_FILES = 20_000
MAX_UNPACKED_BYTES = 2 * 2**30
_FETCH_TIMEOUT_S = 900.0
_PARTIAL = ".partial-"
_VERSION = re.compile(r"[0-9][A-Za-z0-9._-]{0,63}")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


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
        try:
            directory.parent.mkdir(parents=True, exist_ok=True)
            with _install_lock(directory.parent):
                if not (directory / RECORD).exists():
                    self._fetch(version, directory, progress)
        except OSError as err:
            raise ConfigError(
                f"{self.kind} {version} cannot be installed under {directory.parent}: {err.strerror or err}; "
                "free some space or set CRESCENDO_DATA to another directory"
            ) from err
        return self._installed(version)

    def _fetch(self, version: str, directory: Path, progress: Callable[[str], None]) -> None:
        partial = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=directory.parent))
        try:
            progress(f"fetching {self.artifact} {version} with Maven")
            archive = fetch(self.group, self.artifact, version, partial, progress=progress)
            progress(f"unpacking {archive.name}")
            unpack(archive, partial / "unpacked")
            (partial / "release").mkdir()
            _unwrapped(partial / "unpacked").rename(partial / "release" / HOME)
            self._version_in(partial / "release" / HOME)
            origin = f"maven {self.group}:{self.artifact}:{version}"
            with archive.open("rb") as file:
                record = InstallRecord(version, origin, hashlib.file_digest(file, "sha256").hexdigest())
            (partial / "release" / RECORD).write_bytes(msgspec.json.encode(record))
            (partial / "release").rename(directory)
        finally:
            shutil.rmtree(partial, ignore_errors=True)

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


def data_directory() -> Path:
    """Where installed releases are kept."""
    if own := os.environ.get("CRESCENDO_DATA"):
        return Path(own).absolute()
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "crescendo"


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
    argv = [
        find_maven(progress),
        *("--batch-mode", "--quiet", "--strict-checksums"),
        "dependency:copy",
        f"-Dartifact={group}:{artifact}:{version}:{packaging}:{classifier}",
        f"-DoutputDirectory={directory}",
    ]
    try:
        done = subprocess.run(
            argv, cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, timeout=_FETCH_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as err:
        raise ConfigError(f"Maven did not fetch {artifact} {version} within {_FETCH_TIMEOUT_S:.0f} s") from err
    archive = directory / f"{artifact}-{version}-{classifier}.{packaging}"
    if done.returncode == 0 and archive.exists():
        return archive
    output = _COLOURS.sub("", (done.stdout + done.stderr).decode(errors="replace"))
    if re.search(r"(?i)could not find artifact|was not found in", output):
        coordinates = f"{group}:{artifact}:{version} as {packaging}"
        raise ConfigError(f"no Maven repository has {coordinates}; request another version")
    errors = [line.removeprefix("[ERROR]").strip() for line in output.splitlines() if line.startswith("[ERROR]")]
    reason = errors[0][:400] if errors else f"exit code {done.returncode}"
    raise ConfigError(f"Maven could not fetch {artifact} {version}: {reason}")


def find_maven(progress: Callable[[str], None]) -> str:
    """The mvn command; installs it when it is missing and we are root."""
    if shutil.which("mvn") is None:
        install_package("maven", None, progress)
    if (found := shutil.which("mvn")) is None:
        raise ConfigError("this download needs Maven, and there is no mvn on the PATH; install the package maven")
    return found


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


@contextlib.contextmanager
def _install_lock(directory: Path) -> Iterator[None]:
    """One installation of a kind at a time; the holder of the lock removes what a killed installation left."""
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for partial in directory.glob(f"{_PARTIAL}*"):
            shutil.rmtree(partial, ignore_errors=True)
        yield


def _checked_version(version: str) -> str:
    if _VERSION.fullmatch(version) is None:
        raise ConfigError(f"{version!r} is not a valid version; write one such as 2.44.0")
    return version


def _version_key(directory: Path) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", directory.name))
