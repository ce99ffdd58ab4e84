"""How is Apache ActiveMQ Artemis started?

As a separate instance: an acceptor on the loopback interface for each requested protocol, one user, one role, the
console's web server for Jolokia, and the JVM started directly, without its scripts. Durable messages go to its journal
through NIO. A plain name is an anycast queue, created on first use.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import quote

from crescendo.client.amqp10 import pass_a_message
from crescendo.model.errors import PeerError
from crescendo.model.protocols import secure_schemes
from crescendo.systems.base import (
    AMQP,
    MANAGEMENT,
    MQTT,
    STOMP,
    Blueprint,
    Installation,
    Launch,
    SystemSettings,
    TlsSettings,
)
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

MINIMUM_JAVA = 17
RELEASE = Release(
    kind="artemis",
    group="org.apache.activemq",
    artifact="apache-artemis",
    default="2.44.0",
    variable="ARTEMIS_HOME",
    jar="artemis-server",
)
_ROLE = "crescendo"
_SECRETS = frozenset({"etc/users.properties"})
_PERMISSIONS = (
    *("createAddress", "deleteAddress", "createDurableQueue", "deleteDurableQueue", "createNonDurableQueue"),
    *("deleteNonDurableQueue", "consume", "browse", "send", "manage"),
)
_OPTIONS = {
    AMQP: {"protocols": "AMQP"},
    # The prefixes that STOMP clients use for queues and topics with other brokers.
    STOMP: {"protocols": "STOMP", "anycastPrefix": "/queue/", "multicastPrefix": "/topic/"},
    MQTT: {"protocols": "MQTT"},
}
_HEALTH = '/read/org.apache.activemq.artemis:broker="crescendo"/Started'


class ArtemisSettings(JavaSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of Artemis: `threads` are the I/O threads of each acceptor."""


class Artemis:
    """ActiveMQ Artemis, from its Maven archive or an existing directory."""

    name = "artemis"
    summary = "Apache ActiveMQ Artemis: AMQP 1.0, STOMP and MQTT on a JVM"
    settings: type[SystemSettings] = ArtemisSettings
    ports = (AMQP, STOMP, MQTT, MANAGEMENT)
    declares = ("queues",)

    def find(self, home: Path | None, version: str | None) -> Installation:
        return with_java(RELEASE.find(home, version), MINIMUM_JAVA)

    def install(self, version: str | None, progress: Callable[[str], None]) -> Installation:
        return with_java(RELEASE.install(version, progress), MINIMUM_JAVA)

    def plan(
        self, settings: ArtemisSettings, installation: Installation, directory: Path, ports: Mapping[str, int]
    ) -> Blueprint:
        protocols = [name for name in _OPTIONS if speaks(settings, name)]
        user, password = escape_property(settings.user), escape_property(settings.password or "")
        files = {
            "etc/broker.xml": render(
                "artemis-broker.xml",
                settings=settings,
                acceptors=_acceptors(protocols, ports, settings, directory),
                permissions=_PERMISSIONS,
                role=_ROLE,
                probe_queue=PROBE_QUEUE,
            ),
            "etc/bootstrap.xml": render(
                "artemis-bootstrap.xml", broker_xml=(directory / "etc/broker.xml").as_uri(), port=ports[MANAGEMENT]
            ),
            "etc/management.xml": render("artemis-management.xml", role=_ROLE),
            "etc/jolokia-access.xml": render("jolokia-access.xml"),
            "etc/login.config": render(
                "login.config", module="org.apache.activemq.artemis.spi.core.security.jaas.PropertiesLoginModule"
            ),
            "etc/users.properties": f"{user} = {password}\n",
            "etc/groups.properties": f"{_ROLE} = {user}\n",
            "etc/log4j2.properties": render("log4j2.properties"),
        }
        launch = Launch(name=self.name, argv=_argv(settings, installation, directory))
        endpoints = {name: endpoint(name, settings, ports[name]) for name in protocols}
        endpoints |= secure_endpoints(settings, directory, ports)
        endpoints[MANAGEMENT] = endpoint("http", settings, ports[MANAGEMENT]) + "/console/jolokia"
        return Blueprint(files=files, launches=(launch,), endpoints=endpoints, secrets=_SECRETS, needs_keystore=True)

    def probe(self, endpoints: Mapping[str, str], settings: SystemSettings) -> None:
        # The management interface starts last, and inspectors poll it at once: probe it too.
        answer = get_management(endpoints[MANAGEMENT], _HEALTH)
        try:
            started = json.loads(answer).get("value")
        except (ValueError, AttributeError) as err:
            raise PeerError("its Jolokia did not answer in JSON") from err
        if started is not True:
            raise PeerError("its Jolokia reports that the broker has not started")
        if AMQP in endpoints:
            pass_a_message(endpoints[AMQP], PROBE_QUEUE, PROBE_TIMEOUT_S)


def _acceptors(
    protocols: list[str], ports: Mapping[str, int], settings: ArtemisSettings, directory: Path
) -> list[dict[str, str]]:
    """One acceptor per protocol, and another per protocol for TLS."""
    acceptors = []
    for name in protocols:
        options = dict(_OPTIONS[name])
        if settings.threads is not None:
            options["remotingThreads"] = str(settings.threads)
        acceptors.append({"name": name, "uri": _acceptor(ports[name], options)})
        if settings.secure is not None:
            scheme = secure_schemes()[name]
            options |= _secure(settings.secure, directory)
            acceptors.append({"name": scheme, "uri": _acceptor(ports[scheme], options)})
    return acceptors


def _acceptor(port: int, options: Mapping[str, str]) -> str:
    return f"tcp://127.0.0.1:{port}?" + ";".join(f"{key}={value}" for key, value in options.items())


def _secure(tls: TlsSettings, directory: Path) -> dict[str, str]:
    options = {
        "sslEnabled": "true",
        "enabledProtocols": ",".join(VERSIONS),
        "keyStoreType": "PKCS12",
        "keyStorePath": quote(str(directory / KEY_STORE)),
        "keyStorePassword": STORE_PASSWORD,
        "trustStoreType": "PKCS12",
        "trustStorePath": quote(str(directory / TRUST_STORE)),
        "trustStorePassword": STORE_PASSWORD,
    }
    if tls.client_certificates is not None:
        options["needClientAuth" if tls.client_certificates == "required" else "wantClientAuth"] = "true"
    return options


def _argv(settings: ArtemisSettings, installation: Installation, directory: Path) -> tuple[str, ...]:
    home, etc = installation.home, directory / "etc"
    return (
        *jvm_command(installation, settings, directory),
        "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
        f"-Djava.security.auth.login.config={etc}/login.config",
        "-Dhawtio.realm=crescendo",
        f"-Dhawtio.roles={_ROLE}",
        "-Dhawtio.rolePrincipalClasses=org.apache.activemq.artemis.spi.core.security.jaas.RolePrincipal",
        "-Dhawtio.offline=true",
        "-Dhawtio.disableProxy=true",
        f"-Djolokia.policyLocation={(etc / 'jolokia-access.xml').as_uri()}",
        f"-Dlog4j2.configurationFile={etc}/log4j2.properties",
        "-Dlog4j2.disableJmx=true",
        f"-Dartemis.home={home}",
        f"-Dartemis.instance={directory}",
        f"-Dartemis.instance.etc={etc}",
        f"-Ddata.dir={directory}/data",
        "-classpath",
        f"{home}/lib/artemis-boot.jar",
        "org.apache.activemq.artemis.boot.Artemis",
        "run",
    )


ARTEMIS = Artemis()
