"""Which version is a java command?

From the file that every Java has next to its `bin`, or else by running it.
"""

import re
import subprocess
from contextlib import suppress
from pathlib import Path

from crescendo.model.errors import ConfigError

_TIMEOUT_S = 20.0


def java_version_of(java: Path, cure: str) -> str:
    """The full version, such as 17.0.9 or 1.8.0_292. `cure` ends the sentence when there is none."""
    with suppress(OSError):
        text = (java.parent.parent / "release").read_text("utf-8", "replace")
        if written := re.search(r'^JAVA_VERSION="([^"]+)"', text, re.M):
            return written[1]
    try:
        done = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as err:
        raise ConfigError(f"{java} cannot be run: {err}; {cure}") from err
    printed = done.stderr + done.stdout
    if found := re.search(r'version "((?:1\.)?\d+[^"]*)"', printed):
        return found[1]
    lines = printed.strip().splitlines() or [f"nothing, exit code {done.returncode}"]
    raise ConfigError(f"{java} does not report its version but {lines[0]!r}; {cure}")


def major_version(version: str) -> int:
    """17 of 17.0.9, 8 of 1.8.0_292, 24 of 24-ea."""
    return int(re.match(r"(?:1\.)?(\d+)", version)[1])  # type: ignore[index]
