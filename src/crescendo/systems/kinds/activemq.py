"""How is Apache ActiveMQ Classic started?

As a separate instance: a connector on the loopback interface for each requested protocol, one user, KahaDB or memory
for messages, Jolokia on its own small web server, and the JVM started directly, without its scripts. The web console
and the REST interface for messages are left out. Queues and topics are created on first use.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from crescendo.client.amqp10 import pass_a_message
from crescendo.model.errors import PeerError
from crescendo.model.protocols import secure_schemes
from crescendo.systems.base import AMQP, MANAGEMENT, MQTT, STOMP, Blueprint, Installation, Launch, SystemSettings
from crescendo.systems.install.java import (
    PROBE_QUEUE,
    PROBE_TIMEOUT_S,
    JavaSettings,
    escape_property,
    get_management,
    jvm_command,
    with_java,
)
from crescendo.systems.install.maven import Release
from crescendo.systems.settings import endpoint, speaks
from crescendo.systems.templates import render
from crescendo.systems.tls import KEY_STORE, STORE_PASSWORD, TRUST_STORE, VERSIONS, secure_endpoints

MINIMUM_JAVA = 11
RELEASE = Release(
    kind="activemq",
    group="org.apache.activemq",
    artifact="apache-activemq",
    default="5.18.3",
    variable="ACTIVEMQ_HOME",
    jar="activemq-broker",
)
_ROLE = "crescendo"
_SECRETS = frozenset({"conf/users.properties", "conf/web-users.properties"})
_PROTOCOLS = (AMQP, STOMP, MQTT)
_POOL = "org.apache.activemq.transport.nio.SelectorManager"
_HEALTH = "/read/org.apache.activemq:type=Broker,brokerName=crescendo,service=Health/CurrentStatus"


class ActiveMQSettings(JavaSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of ActiveMQ Classic. `threads` serve all connections; without it, each connection has its own."""


class ActiveMQ:
    """ActiveMQ Classic, from its Maven archive or an existing directory."""

    name = "activemq"
    summary = "Apache ActiveMQ Classic: AMQP 1.0, STOMP and MQTT on a JVM"
    settings: type[SystemSettings] = ActiveMQSettings
    ports = (*_PROTOCOLS, MANAGEMENT)
    declares = ("queues",)

    def find(self, home: Path | None, version: str | None) -> Installation:
        return _with_java(RELEASE.find(home, version))

    def install(self, version: str | None, progress: Callable[[str], None]) -> Installation:
        return _with_java(RELEASE.install(version, progress))

    def plan(
        self, settings: ActiveMQSettings, installation: Installation, directory: Path, ports: Mapping[str, int]
    ) -> Blueprint:
        protocols = [name for name in _PROTOCOLS if speaks(settings, name)]
        user, password = settings.user, settings.password or ""
        files = {
            "conf/activemq.xml": render(
                "activemq.xml",
                settings=settings,
                directory=directory,
                home=installation.home,
                connectors=_connectors(protocols, ports, settings),
                key_stores=_key_stores(directory) if settings.secure is not None else None,
                web_port=ports[MANAGEMENT],
                role=_ROLE,
                probe_queue=PROBE_QUEUE,
            ),
            "conf/login.config": render("login.config", module="org.apache.activemq.jaas.PropertiesLoginModule"),
            "conf/users.properties": f"{escape_property(user)} = {escape_property(password)}\n",
            "conf/groups.properties": f"{_ROLE} = {escape_property(user)}\n",
            "conf/web-users.properties": f"{escape_property(user)} = {_jetty_password(password)}, {_ROLE}\n",
            "conf/jolokia-access.xml": render("jolokia-access.xml"),
            "conf/log4j2.properties": render("log4j2.properties"),
        }
        launch = Launch(name=self.name, argv=_argv(settings, installation, directory))
        endpoints = {name: endpoint(name, settings, ports[name]) for name in protocols}
        endpoints |= secure_endpoints(settings, directory, ports)
        endpoints[MANAGEMENT] = endpoint("http", settings, ports[MANAGEMENT]) + "/api/jolokia"
        return Blueprint(files=files, launches=(launch,), endpoints=endpoints, secrets=_SECRETS, needs_keystore=True)

    def probe(self, endpoints: Mapping[str, str], settings: SystemSettings) -> None:
        # The management interface starts last, and inspectors poll it at once: probe it too.
        answer = get_management(endpoints[MANAGEMENT], _HEALTH)
        try:
            health = json.loads(answer).get("value")
        except (ValueError, AttributeError) as err:
            raise PeerError("its Jolokia did not answer in JSON") from err
        if health != "Good":
            raise PeerError(f"its health is {str(health)[:200]!r}, not 'Good'")
        if AMQP in endpoints:
            pass_a_message(endpoints[AMQP], PROBE_QUEUE, PROBE_TIMEOUT_S)


def _with_java(installation: Installation) -> Installation:
    newer = not installation.version.startswith("5.")
    return with_java(installation, 17 if newer else MINIMUM_JAVA)


def _connectors(protocols: list[str], ports: Mapping[str, int], settings: ActiveMQSettings) -> list[dict[str, str]]:
    """One connector per protocol, and another per protocol for TLS."""
    connectors = []
    for name in protocols:
        scheme = name if settings.threads is None else f"{name}+nio"
        connectors.append({"name": name, "uri": f"{scheme}://127.0.0.1:{ports[name]}"})
        if settings.secure is not None:
            secure = secure_schemes()[name]
            options = f"transport.enabledProtocols={','.join(VERSIONS)}"
            if settings.secure.client_certificates is not None:
                client_auth = (
                    "needClientAuth" if settings.secure.client_certificates == "required" else "wantClientAuth"
                )
                options += f"&transport.{client_auth}=true"
            # Never NIO: over TLS it has misread the first bytes of a connection.
            connectors.append({"name": secure, "uri": f"{name}+ssl://127.0.0.1:{ports[secure]}?{options}"})
    return connectors


def _key_stores(directory: Path) -> dict[str, str]:
    return {
        "key": (directory / KEY_STORE).as_uri(),
        "trust": (directory / TRUST_STORE).as_uri(),
        "password": STORE_PASSWORD,
    }


def _jetty_password(password: str) -> str:
    # A digest, because commas separate the fields of the file, and a password may contain one.
    return "MD5:" + hashlib.md5(password.encode("ascii"), usedforsecurity=False).hexdigest()


def _argv(settings: ActiveMQSettings, installation: Installation, directory: Path) -> tuple[str, ...]:
    home, conf = installation.home, directory / "conf"
    pool = (
        ()
        if settings.threads is None
        else (
            f"-D{_POOL}.corePoolSize={settings.threads}",
            f"-D{_POOL}.maximumPoolSize={settings.threads}",
        )
    )
    return (
        *jvm_command(installation, settings, directory),
        *pool,
        f"-Djava.security.auth.login.config={conf}/login.config",
        f"-Djolokia.conf={(conf / 'jolokia-access.xml').as_uri()}",
        f"-Dlog4j2.configurationFile={conf}/log4j2.properties",
        "-Dlog4j2.disableJmx=true",
        f"-Dactivemq.home={home}",
        f"-Dactivemq.base={directory}",
        f"-Dactivemq.conf={conf}",
        f"-Dactivemq.data={directory}/data",
        "-jar",
        f"{home}/bin/activemq.jar",
        "start",
        f"xbean:{(conf / 'activemq.xml').as_uri()}",
    )


ACTIVEMQ = ActiveMQ()
