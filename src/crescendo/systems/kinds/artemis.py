"""How is Apache ActiveMQ Artemis started?

As a separate instance: an acceptor for each requested protocol, one user, one role, the console's web server for
Jolokia, all at one address, and the JVM started directly, without its scripts. Durable messages go to its journal
through NIO. A plain name is an anycast queue, created on first use. As a pair, two brokers share their journal, or the
second has a copy of it; no broker gives its role back to one that returns.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from crescendo.model.errors import PeerError
from crescendo.model.protocols import secure_schemes
from crescendo.systems.base import (
    AMQP,
    CORE,
    MANAGEMENT,
    MQTT,
    OPENWIRE,
    STOMP,
    Blueprint,
    Installation,
    SystemSettings,
    TlsSettings,
    node_name,
    numbered,
)
from crescendo.systems.install.java import PROBE_QUEUE, jvm_command
from crescendo.systems.install.maven import Release
from crescendo.systems.instance_dir import DATA
from crescendo.systems.kinds.broker_pair import PairSettings, node_directory, pair_ports
from crescendo.systems.kinds.java_broker import (
    ROLE,
    JavaBroker,
    client_certificate_option,
    jaas_and_log_files,
    jolokia_value,
    log_options,
    users_file,
)
from crescendo.systems.kinds.node_secret import node_secret
from crescendo.systems.settings import speaks
from crescendo.systems.templates import render
from crescendo.systems.tls import KEY_STORE, STORE_PASSWORD, TRUST_STORE, VERSIONS

MINIMUM_JAVA = 17
RELEASE = Release(
    kind="artemis",
    group="org.apache.activemq",
    artifact="apache-artemis",
    default="2.44.0",
    variable="ARTEMIS_HOME",
    jar="artemis-server",
    sha256={
        "2.44.0": "1030320a8d1af6376361cd750bef12ef3cf7babc7a363bc6097340961d1e3e29",
        "2.56.0": "df469079b6388c8c6276197388a0f5ee0d64d0ca42d7f0e2ca5e392e21b955de",
    },
    moved=(2, 50, "org.apache.artemis"),
)
_LOGIN_MODULE = "org.apache.activemq.artemis.spi.core.security.jaas.PropertiesLoginModule"
_PERMISSIONS = (
    *("createAddress", "deleteAddress", "createDurableQueue", "deleteDurableQueue", "createNonDurableQueue"),
    *("deleteNonDurableQueue", "consume", "browse", "send", "manage"),
)
_OPTIONS = {
    AMQP: {"protocols": "AMQP"},
    # The prefixes that STOMP clients use for queues and topics with other brokers.
    STOMP: {"protocols": "STOMP", "anycastPrefix": "/queue/", "multicastPrefix": "/topic/"},
    MQTT: {"protocols": "MQTT"},
    OPENWIRE: {"protocols": "OPENWIRE"},
    CORE: {"protocols": "CORE"},
}
_CLUSTER, _SHARED = "cluster", "shared"
_STANDS_BY = {
    # It waits for the lock of the store; it has announced itself to the other broker.
    "shared-store": ("AMQ221034", "AMQ221031"),
    "replication": ("AMQ221024",),  # it has a copy of everything
}
_HEALTH = '/read/org.apache.activemq.artemis:broker="crescendo"/Started'


class ArtemisSettings(PairSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of Artemis: `threads` are the I/O threads of each acceptor; with `failover` there are two brokers."""

    failover: Literal["shared-store", "replication"] | None = None

    @property
    def extra_ports(self) -> tuple[str, ...]:
        return () if self.failover is None else (_CLUSTER, *pair_ports((*Artemis.ports, _CLUSTER)))

    @property
    def node_data(self) -> Mapping[str, str]:
        return {name: name if self.failover == "replication" else _SHARED for name in self.node_names}


class Artemis(JavaBroker):
    """ActiveMQ Artemis, from its Maven archive or an existing directory."""

    name = "artemis"
    summary = "Apache ActiveMQ Artemis: AMQP 1.0, STOMP, MQTT, OpenWire and Core on a JVM"
    settings: type[SystemSettings] = ArtemisSettings
    ports = (AMQP, STOMP, MQTT, OPENWIRE, CORE, MANAGEMENT)
    declares = ("queues",)
    release = RELEASE

    def minimum_java(self, version: str) -> int:
        return MINIMUM_JAVA

    def plan(
        self, settings: ArtemisSettings, installation: Installation, directory: Path, ports: Mapping[str, int]
    ) -> Blueprint:
        protocols = [name for name in _OPTIONS if speaks(settings, name)]
        files: dict[str, str] = {}
        for number in settings.node_numbers:
            base = node_directory(directory, number)
            own = {
                "etc/broker.xml": render(
                    "artemis-broker.xml",
                    settings=settings,
                    acceptors=_acceptors(protocols, ports, settings, directory, number),
                    permissions=_PERMISSIONS,
                    role=ROLE,
                    probe_queue=PROBE_QUEUE,
                    data=_data(settings, directory, number),
                    is_backup=number > 1,
                    cluster=None if settings.failover is None else _cluster(settings, directory, ports, number),
                ),
                "etc/bootstrap.xml": render(
                    "artemis-bootstrap.xml",
                    broker_xml=(base / "etc/broker.xml").as_uri(),
                    host=settings.listen,
                    port=ports[numbered(MANAGEMENT, number)],
                ),
                "etc/management.xml": render("artemis-management.xml", role=ROLE),
                **jaas_and_log_files("etc", settings, _LOGIN_MODULE),
            }
            files |= {str((base / path).relative_to(directory)): text for path, text in own.items()}
        return self.blueprint(
            settings,
            directory,
            ports,
            protocols=protocols,
            files=files,
            argv=tuple(_argv(settings, installation, directory, number) for number in settings.node_numbers),
            management_path="/console/jolokia",
            secrets=frozenset(path for path in files if path.endswith(users_file("etc"))),
            stands_by=_STANDS_BY.get(settings.failover or "", ()),
        )

    def check_management(self, url: str) -> None:
        if jolokia_value(url, _HEALTH) is not True:
            raise PeerError("its Jolokia reports that the broker has not started")


def _data(settings: ArtemisSettings, directory: Path, number: int) -> Path | str:
    """Where a broker keeps its messages: both in one place, or each in its own."""
    if settings.failover is None:
        return DATA
    return directory / DATA / settings.node_data[node_name(number)]


def _cluster(settings: ArtemisSettings, directory: Path, ports: Mapping[str, int], number: int) -> dict[str, str]:
    """How a broker is reached by the other one, and reaches it."""
    own, other = (f"tcp://{settings.listen}:{ports[numbered(_CLUSTER, each)]}" for each in (number, 3 - number))
    # An account of its own: the one of the cluster may do everything.
    account = {"user": f"{settings.user}-cluster", "password": node_secret(settings, directory)}
    return {"own": own, "other": other, **account}


def _acceptors(
    protocols: list[str], ports: Mapping[str, int], settings: ArtemisSettings, directory: Path, number: int
) -> list[dict[str, str]]:
    """One acceptor per protocol, and another per protocol for TLS."""
    acceptors = []
    for name in protocols:
        options = dict(_OPTIONS[name])
        if settings.threads is not None:
            options["remotingThreads"] = str(settings.threads)
        acceptors.append({"name": name, "uri": _acceptor(settings, ports[numbered(name, number)], options)})
        if settings.secure is not None:
            scheme = secure_schemes()[name]
            options |= _secure(settings.secure, directory)
            acceptors.append({"name": scheme, "uri": _acceptor(settings, ports[scheme], options)})
    if settings.failover is not None:
        acceptors.append(
            {"name": _CLUSTER, "uri": _acceptor(settings, ports[numbered(_CLUSTER, number)], _OPTIONS[CORE])}
        )
    return acceptors


def _acceptor(settings: ArtemisSettings, port: int, options: Mapping[str, str]) -> str:
    return f"tcp://{settings.listen}:{port}?" + ";".join(f"{key}={value}" for key, value in options.items())


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
    if client_certificates := client_certificate_option(tls):
        options[client_certificates] = "true"
    return options


def _argv(settings: ArtemisSettings, installation: Installation, directory: Path, number: int) -> tuple[str, ...]:
    home, base = installation.home, node_directory(directory, number)
    etc = base / "etc"
    return (
        *jvm_command(installation, settings, directory),
        "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
        f"-Djava.security.auth.login.config={etc}/login.config",
        "-Dhawtio.realm=crescendo",
        f"-Dhawtio.roles={ROLE}",
        "-Dhawtio.rolePrincipalClasses=org.apache.activemq.artemis.spi.core.security.jaas.RolePrincipal",
        "-Dhawtio.offline=true",
        "-Dhawtio.disableProxy=true",
        f"-Djolokia.policyLocation={(etc / 'jolokia-access.xml').as_uri()}",
        *log_options(etc),
        f"-Dartemis.home={home}",
        f"-Dartemis.instance={base}",
        f"-Dartemis.instance.etc={etc}",
        f"-Ddata.dir={directory}/data",
        "-classpath",
        f"{home}/lib/artemis-boot.jar",
        "org.apache.activemq.artemis.boot.Artemis",
        "run",
    )


ARTEMIS = Artemis()
