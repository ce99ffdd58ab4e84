"""What do the brokers on a JVM share in how they are found, planned and probed?

All come from a Maven archive and need Java; all serve their management over HTTP, which starts last. ActiveMQ Classic
and Artemis also share their files for users, logs and Jolokia, and how Jolokia answers. What distinguishes a broker is
in its own module; the JVM itself is in `install/java.py`.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from crescendo.client.amqp10 import pass_a_message
from crescendo.model.errors import PeerError
from crescendo.systems.base import (
    AMQP,
    MANAGEMENT,
    Blueprint,
    Installation,
    Launch,
    SystemSettings,
    TlsSettings,
    node_name,
    numbered,
)
from crescendo.systems.install.java import PROBE_QUEUE, PROBE_TIMEOUT_S, escape_property, get_management, with_java
from crescendo.systems.install.maven import Release
from crescendo.systems.settings import endpoint
from crescendo.systems.templates import render
from crescendo.systems.tls import secure_endpoints

ROLE = "crescendo"
"""The role of the only user."""


class JavaBroker(ABC):
    """A broker from its Maven archive or an existing directory."""

    name: str
    release: Release

    @abstractmethod
    def minimum_java(self, version: str) -> int:
        """The oldest Java that runs this version of the broker."""

    @abstractmethod
    def check_management(self, url: str) -> None:
        """Raise PeerError unless its management reports that it serves."""

    def find(self, home: Path | None, version: str | None) -> Installation:
        return self._with_java(self.release.find(home, version))

    def install(self, version: str | None, progress: Callable[[str], None]) -> Installation:
        return self._with_java(self.release.install(version, progress))

    def probe(self, endpoints: Mapping[str, str], settings: SystemSettings) -> None:
        # The management interface starts last, and inspectors poll it at once: probe it too.
        self.check_management(endpoints[MANAGEMENT])
        if AMQP in endpoints:
            pass_a_message(endpoints[AMQP], PROBE_QUEUE, PROBE_TIMEOUT_S)

    def blueprint(
        self,
        settings: SystemSettings,
        directory: Path,
        ports: Mapping[str, int],
        *,
        protocols: list[str],
        files: Mapping[str, str],
        argv: Sequence[tuple[str, ...]],
        management_path: str = "",
        env: Mapping[str, str] | None = None,
        secrets: frozenset[str] = frozenset(),
        stands_by: tuple[str, ...] = (),
        beside: tuple[Launch, ...] = (),
        account: str | None = None,
    ) -> Blueprint:
        """One JVM, or one per node, with an endpoint for each protocol, with and without TLS, and one for management.

        `beside` are processes that must run before; `stands_by` is what a node logs when it waits for its turn.
        """

        def urls(number: int) -> dict[str, str]:
            plain = {name: endpoint(name, settings, ports[numbered(name, number)]) for name in protocols}
            management = endpoint("http", settings, ports[numbered(MANAGEMENT, number)])
            return {**plain, MANAGEMENT: management + management_path}

        launches = [Launch(name=self.name, argv=argv[0], env=env or {})]
        if len(argv) > 1:
            listeners = [ports[numbered(protocols[0], number)] for number in range(1, len(argv) + 1)]
            names = [node_name(number) for number in range(1, len(argv) + 1)]
            launches = [
                Launch(
                    name,
                    command,
                    env or {},
                    listens_on=port,
                    listens_at=settings.listen,
                    stands_by=stands_by,
                    node=name,
                )
                for name, command, port in zip(names, argv, listeners, strict=True)
            ]
        return Blueprint(
            files=files,
            launches=(*beside, *launches),
            endpoints={**urls(1), **secure_endpoints(settings, directory, ports)},
            secrets=secrets,
            needs_keystore=True,
            account=account,
            serving=len(beside),
            further_nodes=tuple(urls(number) for number in range(2, len(argv) + 1)),
        )

    def _with_java(self, installation: Installation) -> Installation:
        return with_java(installation, self.minimum_java(installation.version))


def users_file(folder: str) -> str:
    return f"{folder}/users.properties"


def jaas_and_log_files(folder: str, settings: SystemSettings, login_module: str) -> dict[str, str]:
    """The files for one user in one role, for access to Jolokia, and for the log."""
    user, password = escape_property(settings.user), escape_property(settings.password or "")
    return {
        f"{folder}/login.config": render("login.config", module=login_module),
        users_file(folder): f"{user} = {password}\n",
        f"{folder}/groups.properties": f"{ROLE} = {user}\n",
        f"{folder}/jolokia-access.xml": render("jolokia-access.xml", host=settings.listen),
        f"{folder}/log4j2.properties": render("log4j2.properties"),
    }


def log_options(folder: Path) -> tuple[str, ...]:
    return f"-Dlog4j2.configurationFile={folder}/log4j2.properties", "-Dlog4j2.disableJmx=true"


def client_certificate_option(tls: TlsSettings) -> str | None:
    """The option of a TLS listener that asks clients for certificates; None if it does not ask."""
    if tls.client_certificates is None:
        return None
    return "needClientAuth" if tls.client_certificates == "required" else "wantClientAuth"


def jolokia_value(url: str, path: str) -> Any:
    """The value that Jolokia reads at this path; PeerError unless it answers."""
    try:
        return management_document(url, path).get("value")
    except AttributeError as err:
        raise PeerError("its Jolokia did not answer in JSON") from err


def management_document(url: str, path: str) -> Any:
    """What a management interface answers in JSON; PeerError unless it does."""
    try:
        return json.loads(get_management(url, path))
    except ValueError as err:
        raise PeerError(f"its management did not answer {path} in JSON") from err
