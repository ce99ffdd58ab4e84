"""How does a broker on a JVM get the JDBC driver of PostgreSQL?

Maven fetches it; its jar must have the SHA-256 that is written next to its project, `java/postgresql-driver`. Starts
nothing.
"""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from crescendo.model.errors import ConfigError
from crescendo.systems.base import Installation
from crescendo.systems.install.maven import data_directory, install_lock
from crescendo.systems.install.maven_project import CHECKSUMS, check_jars, fetch_jars, java_project

NAME = "postgresql-driver"


def driver_directory() -> Path:
    """The directory with the jar. A ConfigError names the cure when it is not installed."""
    directory = _directory()
    if not directory.is_dir():
        raise ConfigError(f"the JDBC driver of PostgreSQL is not installed; run: crescendo system install {NAME}")
    return directory


def install_postgresql_driver(progress: Callable[[str], None]) -> Installation:
    """Fetch the driver, unless that is done already."""
    directory = _directory()
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with install_lock(directory.parent) as partial_prefix:
            if not directory.is_dir():
                _fetch(directory, partial_prefix, progress)
    except OSError as err:
        raise ConfigError(
            f"{NAME} cannot be installed under {directory.parent}: {err.strerror or err}; free some space or set "
            "CRESCENDO_DATA to another directory"
        ) from err
    checksums = (java_project(NAME) / CHECKSUMS).read_text(encoding="ascii")
    check_jars(directory, checksums, NAME)
    return Installation(directory.name, directory, "maven org.postgresql:postgresql", sha256=checksums.split()[0])


def _fetch(directory: Path, partial_prefix: str, progress: Callable[[str], None]) -> None:
    partial = Path(tempfile.mkdtemp(prefix=partial_prefix, dir=directory.parent))
    try:
        progress("fetching the JDBC driver of PostgreSQL with Maven")
        fetch_jars(java_project(NAME), partial / "build", partial / "jars", progress)
        (partial / "jars").rename(directory)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _directory() -> Path:
    """Named after the version, which is in the name of the jar."""
    jar = (java_project(NAME) / CHECKSUMS).read_text(encoding="ascii").split()[1]
    return data_directory() / "systems" / NAME / jar.removeprefix("postgresql-").removesuffix(".jar")
