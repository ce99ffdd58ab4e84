"""Where is the Java that Spark needs?

JAVA_HOME first, then the PATH. Finds Java; never installs it. Set-up (`make`) installs the distribution's package where
it is allowed to.
"""

import os
import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from crescendo.model.errors import ConfigError

MINIMUM = 17
CURE = f"install Java {MINIMUM} or newer (Debian, Ubuntu: openjdk-17-jre-headless; Fedora: java-17-openjdk-headless)"


def find_java() -> Path:
    """The java command, with its version checked."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not java.exists():
            raise ConfigError(f"JAVA_HOME is {home}, but there is no bin/java; unset it or {CURE}")
    else:
        found = shutil.which("java")
        if found is None:
            raise ConfigError(f"Spark needs Java and none was found; {CURE}")
        java = Path(found).resolve()
    version = java_version(java)
    if version < MINIMUM:
        raise ConfigError(f"{java} is Java {version}, but Spark needs {MINIMUM}; {CURE}, and set JAVA_HOME to it")
    return java


def use_java() -> None:
    """Point Spark to the Java found on this machine."""
    os.environ["JAVA_HOME"] = str(find_java().parent.parent)


def java_version(java: Path) -> int:
    """The major version: from the file that every Java has next to its `bin`, or else by running it."""
    with suppress(OSError):
        written = re.search(
            r'^JAVA_VERSION="(?:1\.)?(\d+)', (java.parent.parent / "release").read_text("utf-8", "replace"), re.M
        )
        if written is not None:
            return int(written[1])
    try:
        result = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as err:
        raise ConfigError(f"{java} cannot be run: {err}; {CURE}") from err
    match = re.search(r'version "(?:1\.)?(\d+)', result.stderr + result.stdout)
    if match is None:
        output = (result.stderr + result.stdout).strip().splitlines() or [f"nothing, exit code {result.returncode}"]
        raise ConfigError(f"{java} does not report its version but {output[0]!r}; {CURE}")
    return int(match[1])
