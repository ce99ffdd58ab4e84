"""Where is the Java that Spark needs?

JAVA_HOME first, then the PATH. Finds Java; never installs it. Set-up (`make`) installs the distribution's package where
it is allowed to.
"""

import os
import shutil
from pathlib import Path

from crescendo.model.errors import ConfigError
from crescendo.processes.java_version import java_version_of, major_version

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
    """The major version."""
    return major_version(java_version_of(java, CURE))
