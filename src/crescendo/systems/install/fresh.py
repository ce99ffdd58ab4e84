"""How does a run get an installation that nobody has used or changed?

A release is unpacked once more, for this run alone. A package of the distribution is compared, file by file, with what
dpkg knows of it: reinstalling it would end what others run. What is part of Crescendo has nothing to install.
"""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from crescendo.model.errors import ConfigError
from crescendo.systems.base import SystemKind
from crescendo.systems.install.maven import Release

_VERIFY_TIMEOUT_S = 120.0
_CONFIGURATION_MARK = " c "  # of a configuration file, which our instances do not read


class FreshInstallation(NamedTuple):
    """Where it is, if it is somewhere else than usual, and what was done."""

    home: Path | None
    how: str


def install_fresh(
    kind: SystemKind, version: str | None, directory: Path, progress: Callable[[str], None]
) -> FreshInstallation:
    """`directory` does not exist yet, and belongs to the run."""
    release, package = getattr(kind, "release", None), getattr(kind, "package", None)
    if isinstance(release, Release):
        home = release.install_into(directory, version, progress)
        return FreshInstallation(home, "unpacked for this run")
    if package is not None:
        progress(f"comparing the files of {package} with the package")
        _verify(package)
        return FreshInstallation(None, f"every file of {package} is as packaged")
    return FreshInstallation(None, "part of Crescendo")


def _verify(package: str) -> None:
    try:
        done = subprocess.run(
            ["dpkg", "--verify", package], capture_output=True, text=True, timeout=_VERIFY_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as err:
        raise ConfigError(f"system.fresh: {package} cannot be compared with its package: {err}; leave it out") from err
    changed = [line for line in done.stdout.splitlines() if _CONFIGURATION_MARK not in line]
    if changed or (done.returncode and not done.stdout):
        what = changed[0].split()[-1] if changed else done.stderr.strip()
        raise ConfigError(f"system.fresh: {package} was changed: {what}; run: apt-get install --reinstall {package}")
