"""How does a release that Maven repositories carry get onto this machine, and where is it then?

Maven itself fetches, so that a person's mirrors and proxies hold here too, and checks what it fetched. A release is
unpacked beside its final place and renamed when it is complete: there is never half of one. Runs no script of a release
and changes nothing in it.
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
from crescendo.systems.install.packages import check_version, home_from, install_package

RECORD = "installation.json"
HOME = "home"
MAX_FILES = 20_000
MAX_UNPACKED_BYTES = 2 * 2**30
_FETCH_TIMEOUT_S = 900.0
_PARTIAL = ".partial-"
_VERSION = re.compile(r"[0-9][A-Za-z0-9._-]{0,63}")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class InstallRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """What lies beside a release that was fetched: where it came from."""

    version: str
    origin: str
    sha256: str


@dataclass(frozen=True)
class Release:
    """A system that is published as one archive."""

    kind: str
    group: str
    artifact: str
    default: str  # the version that one gets who asks for none
    variable: str  # the environment variable that points to one that is there already
    jar: str  # its name up to the version: the jar under lib/ that every version of it has

    def find(self, home: Path | None, version: str | None) -> Installation:
        """Where the release is: as told, as the environment says, or where `install` has put it."""
        told = home or home_from(self.variable)
        if told is None:
            return self._installed(version)
        found = self._version_in(told)
        check_version(self.kind, found, version)
        return Installation(version=found, home=told.absolute(), origin="given")

    def install(self, version: str | None, progress: Callable[[str], None]) -> Installation:
        """Fetch it, unless it is there."""
        version = _checked(version or self.default)
        place = self._place(version)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with _alone_in(place.parent):
                if not (place / RECORD).exists():
                    self._fetch(version, place, progress)
        except OSError as err:
            raise ConfigError(
                f"{self.kind} {version} cannot be installed under {place.parent}: {err.strerror or err}; "
                "make room or set CRESCENDO_DATA to another directory"
            ) from err
        return self._installed(version)

    def _fetch(self, version: str, place: Path, progress: Callable[[str], None]) -> None:
        partial = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=place.parent))
        try:
            progress(f"fetching {self.artifact} {version} with Maven")
            archive = fetch(self.group, self.artifact, version, partial, progress=progress)
            progress(f"unpacking {archive.name}")
            unpack(archive, partial / "unpacked")
            (partial / "release").mkdir()
            _top_of(partial / "unpacked").rename(partial / "release" / HOME)
            self._version_in(partial / "release" / HOME)
            origin = f"maven {self.group}:{self.artifact}:{version}"
            with archive.open("rb") as file:
                record = InstallRecord(version, origin, hashlib.file_digest(file, "sha256").hexdigest())
            (partial / "release" / RECORD).write_bytes(msgspec.json.encode(record))
            (partial / "release").rename(place)
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def _installed(self, version: str | None) -> Installation:
        wanted = _checked(version or self.default)
        place = self._place(wanted)
        if version is None and not place.exists():
            place = max(self._places(), key=_order, default=place)
        try:
            record = msgspec.json.decode((place / RECORD).read_bytes(), type=InstallRecord)
        except FileNotFoundError:
            asked = f" --version {version}" if version is not None else ""
            raise ConfigError(
                f"{self.kind} {wanted} is not installed; run: crescendo system install {self.kind}{asked}, "
                f"or point --home or {self.variable} to one that is there"
            ) from None
        except (OSError, msgspec.MsgspecError) as err:
            raise ConfigError(f"{place / RECORD} cannot be read: {err}; remove {place} and install it again") from err
        self._version_in(place / HOME)
        return Installation(record.version, place / HOME, record.origin, sha256=record.sha256)

    def _places(self) -> Iterator[Path]:
        with contextlib.suppress(OSError):
            for place in self._place(self.default).parent.iterdir():
                if _VERSION.fullmatch(place.name) and (place / RECORD).exists():
                    yield place

    def _place(self, version: str) -> Path:
        return data_directory() / "systems" / self.kind / version

    def _version_in(self, home: Path) -> str:
        name = re.compile(re.escape(self.jar) + r"-(\d.*)\.jar")
        with contextlib.suppress(OSError):
            found = [match[1] for jar in (home / "lib").iterdir() if (match := name.fullmatch(jar.name))]
            if len(found) == 1:
                return found[0]
        raise ConfigError(f"{home} is no {self.kind}: it needs exactly one lib/{self.jar}-VERSION.jar; name its home")


def data_directory() -> Path:
    """Where releases are kept from one day to the next."""
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
    """One artifact into a directory, by Maven. The directory holds no pom.xml, so Maven finds nothing else to do."""
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
    words = _COLOURS.sub("", (done.stdout + done.stderr).decode(errors="replace"))
    if re.search(r"(?i)could not find artifact|was not found in", words):
        what = f"{group}:{artifact}:{version} as {packaging}"
        raise ConfigError(f"no Maven repository has {what}; ask for another version")
    complaints = [line.removeprefix("[ERROR]").strip() for line in words.splitlines() if line.startswith("[ERROR]")]
    complaint = complaints[0][:400] if complaints else f"exit code {done.returncode}"
    raise ConfigError(f"Maven could not fetch {artifact} {version}: {complaint}")


def find_maven(progress: Callable[[str], None]) -> str:
    """The mvn command, installed when it is missing and we may."""
    if shutil.which("mvn") is None:
        install_package("maven", None, progress)
    if (found := shutil.which("mvn")) is None:
        raise ConfigError("fetching this needs Maven, and there is no mvn on the PATH; install the package maven")
    return found


def unpack(archive: Path, target: Path) -> None:
    """Unpack an archive that may be hostile: nothing outside the target, no devices, no more than fits."""
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


def _top_of(directory: Path) -> Path:
    """Archives wrap their content in a directory, or in two."""
    while len(entries := list(directory.iterdir())) == 1 and entries[0].is_dir():
        directory = entries[0]
    return directory


@contextlib.contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """One installation of a kind at a time; whoever holds the lock may clear away what a killed one has left."""
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in directory.glob(f"{_PARTIAL}*"):
            shutil.rmtree(left, ignore_errors=True)
        yield


def _checked(version: str) -> str:
    if _VERSION.fullmatch(version) is None:
        raise ConfigError(f"{version!r} is no version; write one such as 2.44.0")
    return version


def _order(place: Path) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", place.name))
