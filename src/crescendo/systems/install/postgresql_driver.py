"""How does a broker on a JVM get the JDBC driver of PostgreSQL?

Maven fetches it; its jar must have the SHA-256 that is written next to its project, `java/postgresql-driver`. Starts
nothing.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from crescendo.model.errors import ConfigError
from crescendo.systems.base import Installation
from crescendo.systems.install.data_directory import data_directory, install_once
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
    install_once(NAME, directory, partial(_fetch, progress))
    checksums = (java_project(NAME) / CHECKSUMS).read_text(encoding="ascii")
    check_jars(directory, checksums, NAME)
    return Installation(directory.name, directory, "maven org.postgresql:postgresql", sha256=checksums.split()[0])


def _fetch(progress: Callable[[str], None], scratch: Path) -> Path:
    progress("fetching the JDBC driver of PostgreSQL with Maven")
    fetch_jars(java_project(NAME), scratch / "build", scratch / "jars", progress)
    return scratch / "jars"


def _directory() -> Path:
    """Named after the version, which is in the name of the jar."""
    jar = (java_project(NAME) / CHECKSUMS).read_text(encoding="ascii").split()[1]
    return data_directory() / "systems" / NAME / jar.removeprefix("postgresql-").removesuffix(".jar")
