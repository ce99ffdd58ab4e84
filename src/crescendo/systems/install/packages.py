"""Where is a system that the distribution packages, and how does it get here?

Looks it up with dpkg, installs it with apt-get when we are root and otherwise says what to install. A package that is
installed for the lab must not start a service of its own: the hook that Debian has for this answers no meanwhile.
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from crescendo.model.errors import ConfigError

POLICY = Path("/usr/sbin/policy-rc.d")
_DENY = "#!/bin/sh\nexit 101\n"  # 101: this action is forbidden by policy
_SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")  # daemons live here, and the PATH of most people does not reach it
_QUERY_TIMEOUT_S = 20
_INSTALL_TIMEOUT_S = 900
_LAST_WORDS_CHARS = 300


def command(name: str) -> Path | None:
    """Where the command is, on the PATH or where daemons are."""
    found = shutil.which(name) or shutil.which(name, path=os.pathsep.join(_SBIN))
    return Path(found) if found else None


def home_from(variable: str) -> Path | None:
    """The directory that the environment names, if it names one."""
    value = os.environ.get(variable)
    return Path(value) if value else None


def package_version(package: str) -> str | None:
    """The version of the package that is installed; None when none is, or this is no Debian."""
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
    """The cure, for the end of a sentence."""
    return f"try: crescendo system install {kind} (the package {package}), or name a directory with --home"


def check_version(kind: str, found: str, wanted: str | None) -> None:
    """Refuse another version than the one that was asked for; 3.10 is satisfied by 3.10.8."""
    if wanted is not None and found != wanted and not found.startswith((f"{wanted}.", f"{wanted}-")):
        raise ConfigError(
            f"{kind}: version {wanted} is not here, {found} is; name the directory of another with --home"
        )


def install_package(package: str, version: str | None, progress: Callable[[str], None]) -> None:
    """Install it, and let it start nothing."""
    named = package if version is None else f"{package}={version}"
    if shutil.which("apt-get") is None:
        raise ConfigError(f"this machine has no apt-get; install {package} with its own package manager")
    if os.geteuid() != 0:
        raise ConfigError(f"only root may install packages; ask for: apt-get install --no-install-recommends {named}")
    with _nothing_starts():
        progress(f"installing the package {named}")
        if _apt_get("install", "--yes", "--no-install-recommends", named).returncode == 0:
            return
        progress("fetching the list of packages, and trying again")  # a fresh machine has none, an old one an old one
        _apt_get("update")
        answer = _apt_get("install", "--yes", "--no-install-recommends", named)
    if answer.returncode != 0:
        words = " ".join(answer.stderr.split())[-_LAST_WORDS_CHARS:]
        raise ConfigError(f"the package {named} could not be installed; apt-get says: {words}")


@contextlib.contextmanager
def _nothing_starts() -> Iterator[None]:
    """While this holds, no package starts its service. What was there before is put back."""
    kept = POLICY.with_name(f"{POLICY.name}.kept-by-crescendo-{os.getpid()}") if POLICY.exists() else None
    if kept is not None:
        POLICY.rename(kept)
    try:
        POLICY.write_text(_DENY)
        POLICY.chmod(0o755)
        yield
    finally:
        POLICY.unlink(missing_ok=True)
        if kept is not None:
            kept.rename(POLICY)


def _apt_get(*arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["apt-get", "--quiet", *arguments],
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"},
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
