"""How is Maven run, and what did it say when it failed?

In a directory of the caller's, with the user's own mirrors and proxies, without questions, and with the checksums of
the repository enforced. Of its output an error keeps one sentence. Knows no artifact by name.
"""

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from crescendo.model.errors import ConfigError
from crescendo.systems.install.packages import install_package

_FETCH_TIMEOUT_S = 900.0
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def run_maven(
    *arguments: str, directory: Path, what: str, progress: Callable[[str], None], missing: str | None = None
) -> None:
    """Run Maven in a directory; `what` it fetches, and `missing` is the error when no repository has it."""
    argv = [find_maven(progress), "--batch-mode", "--quiet", "--strict-checksums", *arguments]
    try:
        done = subprocess.run(
            argv, cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, timeout=_FETCH_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as err:
        raise ConfigError(f"Maven did not fetch {what} within {_FETCH_TIMEOUT_S:.0f} s") from err
    if done.returncode == 0:
        return
    output = _COLOURS.sub("", (done.stdout + done.stderr).decode(errors="replace"))
    if missing is not None and re.search(r"(?i)could not find artifact|was not found in", output):
        raise ConfigError(missing)
    errors = [line.removeprefix("[ERROR]").strip() for line in output.splitlines() if line.startswith("[ERROR]")]
    reason = errors[0][:400] if errors else f"exit code {done.returncode}"
    raise ConfigError(f"Maven could not fetch {what}: {reason}")


def find_maven(progress: Callable[[str], None]) -> str:
    """The mvn command; installs it when it is missing and we are root."""
    if shutil.which("mvn") is None:
        install_package("maven", None, progress)
    if (found := shutil.which("mvn")) is None:
        raise ConfigError("this download needs Maven, and there is no mvn on the PATH; install the package maven")
    return found
