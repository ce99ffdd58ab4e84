"""What do all brokers on a JVM have in common?

The JVM, with a fixed heap size and all temporary files inside the instance's directory; user names that their property
files can hold; and an HTTP management page that reports their health. Knows no broker by name.
"""

import os
import re
import shutil
from base64 import b64encode
from dataclasses import replace
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import quote

from crescendo.model.errors import ConfigError, PeerError
from crescendo.model.urls import parse_url
from crescendo.processes.java_version import java_version_of, major_version
from crescendo.systems.base import Installation, SystemSettings

HEAP_BYTES = 2**30
"""The heap of a broker whose memory is not set."""

PROBE_QUEUE = "crescendo.proof"
"""The queue that the probe sends its message through."""

PROBE_TIMEOUT_S = 5.0
_MIN_HEAP_BYTES = 64 * 2**20
_MAX_ANSWER_BYTES = 2**20
_USER = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
_PASSWORD = re.compile(r"[!-~]{1,128}")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,199}")


class JavaSettings(SystemSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings of a broker on a JVM: memory is its heap. Names are limited to what its files can hold."""

    def __post_init__(self) -> None:
        if self.memory is not None and self.memory < _MIN_HEAP_BYTES:
            raise ValueError(f"memory: a heap of {self.memory} bytes is too small; write at least 64MiB")
        if _USER.fullmatch(self.user) is None:
            raise ValueError("user: use letters, digits and any of . _ @ -")
        if self.password is not None and _PASSWORD.fullmatch(self.password) is None:
            raise ValueError("password: use up to 128 printable ASCII characters without spaces")
        check_names("queues", self.queues)


def check_names(key: str, names: list[str]) -> None:
    """Refuse names with a special meaning for a broker: wildcards, options, lists."""
    for name in names:
        if _NAME.fullmatch(name) is None:
            raise ValueError(f"{key}: {name!r} has characters other than letters, digits and any of . _ / -")


def with_java(installation: Installation, minimum: int) -> Installation:
    """The installation with the java command to run it: from JAVA_HOME, else from the PATH."""
    cure = f"install Java {minimum} or newer (Debian, Ubuntu: openjdk-17-jre-headless), or set JAVA_HOME to it"
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if found is None:
        raise ConfigError(f"this system needs Java and there is no java on the PATH; {cure}")
    java = Path(found).resolve()
    version = java_version_of(java, cure)
    if major_version(version) < minimum:
        raise ConfigError(f"{found} is Java {version}, and this system needs {minimum}; {cure}")
    # Resolved: the PATH often names a symbolic link, whose target may change.
    return replace(installation, java=java, java_version=version)


def jvm_command(installation: Installation, settings: SystemSettings, directory: Path) -> tuple[str, ...]:
    """The start of the command line: java, and its options for memory and files."""
    if installation.java is None:
        raise ConfigError(f"{installation.home} has no Java to run it")
    heap_kib = (settings.memory or HEAP_BYTES) // 1024
    return (
        str(installation.java),
        f"-Xms{heap_kib}k",
        f"-Xmx{heap_kib}k",
        "-XX:+UseG1GC",  # on a small machine the JVM would choose another collector, with other names of memory pools
        "-XX:-UsePerfData",  # writes nothing to the system's /tmp
        f"-XX:ErrorFile={directory}/logs/hs_err.log",
        f"-Djava.io.tmpdir={directory / 'tmp'}",
        f"-Duser.home={directory}",
        "-Djava.awt.headless=true",
        "-Djava.net.preferIPv4Stack=true",
    )


def escape_property(text: str) -> str:
    """A key or a value, escaped for a .properties file. The settings allow printable ASCII only."""
    return re.sub(r"([\\:=#!])", r"\\\1", text)


def get_management(url: str, path: str) -> bytes:
    """The answer of the broker's management, or PeerError. Takes credentials from the URL; errors contain none."""
    parts = parse_url(url)
    credentials = f"{parts.user or ''}:{parts.password or ''}".encode()
    connection = HTTPConnection(parts.host or "", parts.port, timeout=PROBE_TIMEOUT_S)
    try:
        headers = {"Authorization": f"Basic {b64encode(credentials).decode()}"}
        connection.request("GET", parts.path + quote(path, safe="/:=,"), headers=headers)
        response = connection.getresponse()
        answer = response.read(_MAX_ANSWER_BYTES)
    except (OSError, HTTPException) as err:
        raise PeerError(f"its management on port {parts.port} does not answer: {type(err).__name__}") from err
    finally:
        connection.close()
    if response.status != HTTPStatus.OK:
        raise PeerError(f"its management on port {parts.port} answered {response.status}")
    return answer
