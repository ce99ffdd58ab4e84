"""How are the JMS clients of the vendors installed, and how is a JVM started with them?

Maven fetches them and compiles the small program that drives them, `java/jms-clients`. Every jar must have the SHA-256
that is written next to its sources. An installation belongs to the sources it was built from: when they change, it has
to be made again. Starts nothing itself.
"""

import hashlib
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from crescendo.model.errors import ConfigError
from crescendo.record.documents import write_document
from crescendo.systems.base import Installation
from crescendo.systems.install.data_directory import data_directory, install_once
from crescendo.systems.install.java import with_java
from crescendo.systems.install.maven import HOME, RECORD, InstallRecord
from crescendo.systems.install.maven_project import CHECKSUMS, fetch_jars, java_project
from crescendo.systems.install.packages import install_package

NAME = "jms-clients"
SUMMARY = "activemq-client 6.1 (OpenWire), artemis-jakarta-client 2.44 (Core), qpid-jms-client 2.8 (AMQP 1.0)"
MINIMUM_JAVA = 17
_MAIN = "crescendo.jms.Main"
_DIGEST_CHARACTERS = 12
_GOALS = ("compiler:compile", "jar:jar")
_INSTALL = f"run: crescendo system install {NAME}"


def jms_command() -> list[str]:
    """The command that starts a JVM with the clients. A ConfigError names the cure when they are not installed."""
    installation = find_jms_clients()
    return [str(installation.java), "-cp", f"{installation.home}/*", _MAIN]


def find_jms_clients() -> Installation:
    """The installation that was built from the present sources."""
    directory = _directory(_source_digest())
    try:
        record = msgspec.json.decode((directory / RECORD).read_bytes(), type=InstallRecord)
    except FileNotFoundError:
        raise ConfigError(f"client jms: the JMS clients are not installed; {_INSTALL}") from None
    except (OSError, msgspec.MsgspecError) as err:
        raise ConfigError(f"{directory / RECORD} cannot be read: {err}; remove {directory} and {_INSTALL}") from err
    found = Installation(record.version, directory / HOME, record.origin, sha256=record.sha256)
    return with_java(found, MINIMUM_JAVA)


def install_jms_clients(progress: Callable[[str], None]) -> Installation:
    """Fetch the clients and build the program, unless that is done already."""
    digest = _source_digest()
    install_once(NAME, _directory(digest), partial(_build, digest, progress), proof=RECORD)
    return find_jms_clients()


def _build(digest: str, progress: Callable[[str], None], scratch: Path) -> Path:
    if shutil.which("javac") is None:
        install_package("openjdk-17-jdk-headless", None, progress)
    progress("fetching the JMS clients and building their driver with Maven")
    release = scratch / "release"
    jars = release / HOME
    build = fetch_jars(java_project(NAME), scratch / "build", jars, progress, goals=_GOALS)
    (built,) = (build / "target").glob("jms-clients-*.jar")
    built.rename(jars / built.name)
    record = InstallRecord(digest[:_DIGEST_CHARACTERS], "maven, built from java/jms-clients", digest)
    write_document(release / RECORD, record)
    return release


def _directory(digest: str) -> Path:
    return data_directory() / "systems" / NAME / digest[:_DIGEST_CHARACTERS]


def _source_digest() -> str:
    """The SHA-256 of all sources, with their names."""
    root = java_project(NAME)
    files = [root / "pom.xml", root / CHECKSUMS, *sorted((root / "src").rglob("*.java"))]
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.relative_to(root)}\n".encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()
