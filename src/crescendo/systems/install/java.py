"""What do all brokers on a Java virtual machine have in common?

The machine itself, with a heap of a known size, its temporary files inside the instance and none outside it; user names
that their property files can hold; and an HTTP page that says whether they are well. Knows no broker by name.
"""

import os
import re
import shutil
import subprocess
from base64 import b64encode
from dataclasses import replace
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from crescendo.model.errors import ConfigError, PeerError
from crescendo.systems.base import Installation, SystemSettings

HEAP_BYTES = 2**30
"""The heap of a broker for which no memory was set."""

PROOF = "crescendo.proof"
"""The queue through which a broker proves that it serves."""

PROOF_TIMEOUT_S = 5.0
_MIN_HEAP_BYTES = 64 * 2**20
_MAX_ANSWER_BYTES = 2**20
_USER = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
_PASSWORD = re.compile(r"[!-~]{1,128}")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,199}")


class JavaSettings(SystemSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings of a broker on a JVM: memory is its heap. Names are what its configuration files can hold."""

    def __post_init__(self) -> None:
        if self.memory is not None and self.memory < _MIN_HEAP_BYTES:
            raise ValueError(f"memory: {self.memory} bytes are no heap; write at least 64MiB")
        if _USER.fullmatch(self.user) is None:
            raise ValueError("user: a name of letters, digits and any of . _ @ - is needed")
        if self.password is not None and _PASSWORD.fullmatch(self.password) is None:
            raise ValueError("password: up to 128 printable ASCII characters without spaces are needed")
        check_names("queues", self.queues)


def check_names(key: str, names: list[str]) -> None:
    """Refuse names to which a broker gives a meaning of their own: wildcards, options, several in one."""
    for name in names:
        if _NAME.fullmatch(name) is None:
            raise ValueError(f"{key}: {name!r} has characters other than letters, digits and any of . _ / -")


def with_java(installation: Installation, minimum: int) -> Installation:
    """The same installation with the java that it will run on: that of JAVA_HOME, else that of the PATH."""
    cure = f"install Java {minimum} or newer (Debian, Ubuntu: openjdk-17-jre-headless), or set JAVA_HOME to it"
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if found is None:
        raise ConfigError(f"this system needs Java and there is no java on the PATH; {cure}")
    try:
        answer = subprocess.run([found, "-version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as err:
        raise ConfigError(f"{found} cannot be run: {err}; {cure}") from err
    match = re.search(r'version "((?:1\.)?(\d+)[^"]*)"', answer.stderr + answer.stdout)
    if match is None:
        words = (answer.stderr + answer.stdout).strip().splitlines() or [f"nothing, exit code {answer.returncode}"]
        raise ConfigError(f"{found} does not say its version but {words[0]!r}; {cure}")
    if int(match[2]) < minimum:
        raise ConfigError(f"{found} is Java {match[1]}, and this system needs {minimum}; {cure}")
    # Resolved: what the PATH names is a link that may point elsewhere tomorrow.
    return replace(installation, java=Path(found).resolve(), java_version=match[1])


def jvm(installation: Installation, settings: SystemSettings, directory: Path) -> tuple[str, ...]:
    """The first words of the command: java, and how it is to treat memory and files."""
    if installation.java is None:
        raise ConfigError(f"{installation.home} was found without a Java to run it")
    heap_kib = (settings.memory or HEAP_BYTES) // 1024
    return (
        str(installation.java),
        f"-Xms{heap_kib}k",
        f"-Xmx{heap_kib}k",
        "-XX:+UseG1GC",  # left alone, a JVM takes another collector on a small machine, and memory areas change names
        "-XX:-UsePerfData",  # nothing under the system's /tmp
        f"-XX:ErrorFile={directory}/logs/hs_err.log",
        f"-Djava.io.tmpdir={directory / 'tmp'}",
        f"-Duser.home={directory}",
        "-Djava.awt.headless=true",
        "-Djava.net.preferIPv4Stack=true",
    )


def property_text(text: str) -> str:
    """A key or a value as a .properties file holds it. The settings allow printable ASCII only."""
    return re.sub(r"([\\:=#!])", r"\\\1", text)


def answer_of(url: str, path: str) -> bytes:
    """What the broker's management says, or PeerError. The credentials are those of the URL; messages hold none."""
    where = urlsplit(url)
    credentials = f"{unquote(where.username or '')}:{unquote(where.password or '')}".encode()
    connection = HTTPConnection(where.hostname or "", where.port, timeout=PROOF_TIMEOUT_S)
    try:
        headers = {"Authorization": f"Basic {b64encode(credentials).decode()}"}
        connection.request("GET", where.path + quote(path, safe="/:=,"), headers=headers)
        response = connection.getresponse()
        answer = response.read(_MAX_ANSWER_BYTES)
    except (OSError, HTTPException) as err:
        raise PeerError(f"its management on port {where.port} does not answer: {type(err).__name__}") from err
    finally:
        connection.close()
    if response.status != HTTPStatus.OK:
        raise PeerError(f"its management on port {where.port} answered {response.status}")
    return answer
