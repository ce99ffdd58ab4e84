"""How are jars fetched that belong together, and where is the project that names them?

A Maven project under `java/` names them, and a file next to it their SHA-256. Maven works on a copy: nothing is written
into the sources. Jars that differ from the list are refused. Knows no project by name.
"""

import hashlib
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import crescendo
from crescendo.model.errors import ConfigError
from crescendo.systems.install.maven_command import run_maven

CHECKSUMS = "checksums.txt"
_FETCH = "dependency:copy-dependencies"


def java_project(name: str) -> Path:
    """The sources of a project: in the installed package, or next to src/ in a checkout."""
    package = Path(crescendo.__file__).parent
    for folder in (package / "java", package.parents[1] / "java"):
        if (folder / name / "pom.xml").exists():
            return folder / name
    raise ConfigError(f"the sources of {name} are missing from this installation of Crescendo; install it again")


def fetch_jars(
    project: Path, scratch: Path, jars: Path, progress: Callable[[str], None], goals: Sequence[str] = ()
) -> Path:
    """Fetch the jars of a project into an empty directory, and check them; before that reach other goals.

    Returns the directory in which Maven worked, which is `scratch`.
    """
    shutil.copytree(project, scratch)
    run_maven(
        *goals, _FETCH, "-DincludeScope=runtime", f"-DoutputDirectory={jars}", directory=scratch, what=project.name,
        progress=progress,
    )  # fmt: skip
    check_jars(jars, (project / CHECKSUMS).read_text(encoding="ascii"), project.name)
    return scratch


def check_jars(directory: Path, checksums: str, what: str) -> None:
    """Refuse jars that differ from this list, as sha256sum prints it: other bytes, one too many, or one missing."""
    wanted = {name: digest for digest, name in (line.split() for line in checksums.splitlines())}
    found = {jar.name: sha256_of_file(jar) for jar in directory.iterdir()}
    for name in sorted(wanted.keys() | found.keys()):
        if name not in found:
            wrong = "is missing"
        elif name not in wanted:
            wrong = "is not part of it"
        elif found[name] != wanted[name]:
            wrong = f"has the SHA-256 {found[name]} instead of {wanted[name]}"
        else:
            continue
        raise ConfigError(
            f"{what}: {name} {wrong}; do not use it, and check the Maven repository or mirror that it came from"
        )


def sha256_of_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def wrong_checksum(archive: Path, found: str, what: str, known: str) -> ConfigError:
    """The error of an archive that is not what it should be."""
    return ConfigError(
        f"{archive.name} has the SHA-256 {found}, but {what} has {known}; do not use it, and "
        "check the Maven repository or mirror that it came from"
    )
