"""How is Apache ActiveMQ Classic started?

As a separate instance: a connector for each requested protocol, one user, KahaDB or memory for messages, Jolokia on
its own small web server, all at one address, and the JVM started directly, without its scripts. The web console and the
REST interface for messages are left out. Queues and topics are created on first use. A version that is assembled from
its jars has no web server; there Jolokia is an agent of the JVM, at the same URL. As a pair, two brokers share a store,
and the one that has its lock serves.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from crescendo.model.errors import ConfigError, PeerError
from crescendo.model.protocols import secure_schemes
from crescendo.systems.base import (
    AMQP,
    MANAGEMENT,
    MQTT,
    OPENWIRE,
    STOMP,
    Blueprint,
    Installation,
    SystemSettings,
    numbered,
)
from crescendo.systems.install.java import PROBE_QUEUE, escape_property, jvm_command
from crescendo.systems.install.maven import ASSEMBLED, Release
from crescendo.systems.install.postgresql_driver import driver_directory
from crescendo.systems.kinds.broker_pair import PairSettings, node_directory, pair_ports
from crescendo.systems.kinds.database_beside import DATABASE, plan_database
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

MINIMUM_JAVA = 11
RELEASE = Release(
    kind="activemq",
    group="org.apache.activemq",
    artifact="apache-activemq",
    default="5.18.3",
    variable="ACTIVEMQ_HOME",
    jar="activemq-broker",
    sha256={"5.18.3": "943381aa6d340707de6c42eadbf7b41b7fdf93df604156d972d50c4da783544f"},
    assembled=frozenset({"6.1.7"}),
)
_WEB_USERS = "conf/web-users.properties"
_AGENT = "conf/jolokia-agent.properties"
_AGENT_JAR = "jolokia-agent-jvm-2.1.2-javaagent.jar"
_JOLOKIA_PATH = "/api/jolokia"
_PROTOCOLS = (AMQP, STOMP, MQTT, OPENWIRE)
_STORE = "kahadb"  # as the template calls it
_TRANSPORTS = {OPENWIRE: ("tcp", "nio", "ssl")}
"""The schemes of its own protocol: plain, with a pool of threads, over TLS. Those of others contain their name."""
_STANDS_BY = {
    "shared-store": ("is locked by another server",),
    "jdbc": ("Attempting to acquire the exclusive lock",),
}
_POOL = "org.apache.activemq.transport.nio.SelectorManager"
_HEALTH = "/read/org.apache.activemq:type=Broker,brokerName=crescendo,service=Health/CurrentStatus"


class ActiveMQSettings(PairSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of ActiveMQ Classic. `threads` serve all connections; without it, each connection has its own.

    With `failover` there are two brokers, which share a KahaDB store, or a PostgreSQL that is started with them.
    """

    failover: Literal["shared-store", "jdbc"] | None = None

    @property
    def extra_ports(self) -> tuple[str, ...]:
        if self.failover is None:
            return ()
        return (*pair_ports(ActiveMQ.ports), *((DATABASE,) if self.failover == "jdbc" else ()))

    @property
    def node_data(self) -> Mapping[str, str]:
        """With a database, it is the one that keeps the messages."""
        return dict.fromkeys(self.node_names, _STORE) if self.failover == "shared-store" else {}


class ActiveMQ(JavaBroker):
    """ActiveMQ Classic, from its Maven archive or an existing directory."""

    name = "activemq"
    summary = "Apache ActiveMQ Classic: AMQP 1.0, STOMP, MQTT and OpenWire on a JVM"
    settings: type[SystemSettings] = ActiveMQSettings
    ports = (*_PROTOCOLS, MANAGEMENT)
    declares = ("queues",)
    release = RELEASE

    def minimum_java(self, version: str) -> int:
        return MINIMUM_JAVA if version.startswith("5.") else 17

    def plan(
        self, settings: ActiveMQSettings, installation: Installation, directory: Path, ports: Mapping[str, int]
    ) -> Blueprint:
        protocols = [name for name in _PROTOCOLS if speaks(settings, name)]
        assembled = installation.origin.startswith(ASSEMBLED)
        database = None
        if settings.failover == "jdbc":
            if assembled:
                raise ConfigError("system.settings.failover: jdbc needs the distribution of ActiveMQ 5.18")
            database = plan_database(directory, ports[DATABASE], node_secret(settings, directory))
        files: dict[str, str] = {}
        for number in settings.node_numbers:
            base = node_directory(directory, number)
            own = {
                "conf/activemq.xml": render(
                    "activemq.xml",
                    settings=settings,
                    directory=directory,
                    spool=base / "data" / "spool",
                    home=installation.home,
                    connectors=_connectors(protocols, ports, settings, number),
                    key_stores=_key_stores(directory) if settings.secure is not None else None,
                    web_host=settings.listen,
                    web_port=None if assembled else ports[numbered(MANAGEMENT, number)],
                    role=ROLE,
                    probe_queue=PROBE_QUEUE,
                    database=None if database is None else database.connection,
                ),
                **jaas_and_log_files("conf", settings, "org.apache.activemq.jaas.PropertiesLoginModule"),
            }
            if assembled:
                own[_AGENT] = _agent(settings, base, ports[numbered(MANAGEMENT, number)])
            else:
                own[_WEB_USERS] = (
                    f"{escape_property(settings.user)} = {_jetty_password(settings.password or '')}, {ROLE}\n"
                )
            files |= {str((base / path).relative_to(directory)): text for path, text in own.items()}
        secret = (users_file("conf"), _AGENT if assembled else _WEB_USERS)
        blueprint = self.blueprint(
            settings,
            directory,
            ports,
            protocols=protocols,
            files=files,
            argv=[_argv(settings, installation, directory, number) for number in settings.node_numbers],
            management_path=_JOLOKIA_PATH,
            secrets=frozenset(path for path in files if path.endswith(secret)),
            stands_by=_STANDS_BY.get(settings.failover or "", ()),
            beside=() if database is None else (database.launch,),
        )
        return blueprint if database is None else database.added_to(blueprint)

    def check_management(self, url: str) -> None:
        health = jolokia_value(url, _HEALTH)
        if health != "Good":
            raise PeerError(f"its health is {str(health)[:200]!r}, not 'Good'")


def _connectors(
    protocols: list[str], ports: Mapping[str, int], settings: ActiveMQSettings, number: int
) -> list[dict[str, str]]:
    """One connector per protocol, and another per protocol for TLS."""
    connectors = []
    for name in protocols:
        plain, pooled, over_tls = _TRANSPORTS.get(name, (name, f"{name}+nio", f"{name}+ssl"))
        scheme = plain if settings.threads is None else pooled
        connectors.append({"name": name, "uri": f"{scheme}://{settings.listen}:{ports[numbered(name, number)]}"})
        if settings.secure is not None:
            secure = secure_schemes()[name]
            options = f"transport.enabledProtocols={','.join(VERSIONS)}"
            if client_certificates := client_certificate_option(settings.secure):
                options += f"&transport.{client_certificates}=true"
            # Never NIO: over TLS it has misread the first bytes of a connection.
            connectors.append({"name": secure, "uri": f"{over_tls}://{settings.listen}:{ports[secure]}?{options}"})
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


def _argv(settings: ActiveMQSettings, installation: Installation, directory: Path, number: int) -> tuple[str, ...]:
    home, base = installation.home, node_directory(directory, number)
    conf = base / "conf"
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
        *log_options(conf),
        f"-Dactivemq.home={home}",
        f"-Dactivemq.base={base}",
        f"-Dactivemq.conf={conf}",
        f"-Dactivemq.data={base}/data",
        *_program(installation, base),
        "start",
        *(("--extdir", str(driver_directory())) if settings.failover == "jdbc" else ()),
        f"xbean:{(conf / 'activemq.xml').as_uri()}",
    )


def _program(installation: Installation, directory: Path) -> tuple[str, ...]:
    home = installation.home
    if not installation.origin.startswith(ASSEMBLED):
        return "-jar", f"{home}/bin/activemq.jar"
    agent = f"-javaagent:{home}/lib/{_AGENT_JAR}=config={directory / _AGENT}"
    return agent, "-classpath", f"{home}/lib/*", "org.apache.activemq.console.Main"


def _agent(settings: ActiveMQSettings, directory: Path, port: int) -> str:
    """What the Jolokia agent serves: at one address, for our user, reading only."""
    return render(
        "jolokia-agent.properties",
        host=settings.listen,
        port=port,
        path=_JOLOKIA_PATH,
        user=escape_property(settings.user),
        password=escape_property(settings.password or ""),
        policy=(directory / "conf/jolokia-access.xml").as_uri(),
    )


ACTIVEMQ = ActiveMQ()
