"""How is Apache Qpid Broker-J started?

From one JSON document that describes the whole broker: a listener for AMQP 1.0 and one for AMQP 0-9-1, one user,
one virtual host with its store, HTTP management with REST, all at one address. The broker reads it once and never
writes it back. Queues are created on first use. Topics are exchanges and must be named in the settings: from a client's
plain name alone, the broker would create a queue.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from crescendo.model.errors import PeerError
from crescendo.model.protocols import secure_schemes
from crescendo.systems.base import (
    AMQP,
    AMQP091,
    MANAGEMENT,
    Blueprint,
    Installation,
    SystemSettings,
    TlsSettings,
)
from crescendo.systems.install.java import (
    PROBE_QUEUE,
    JavaSettings,
    check_names,
    get_management,
    jvm_command,
)
from crescendo.systems.install.maven import Release
from crescendo.systems.kinds.java_broker import JavaBroker
from crescendo.systems.settings import speaks
from crescendo.systems.tls import KEY_STORE, STORE_PASSWORD, TRUST_STORE

MINIMUM_JAVA = 11
RELEASE = Release(
    kind="qpid-broker-j",
    group="org.apache.qpid",
    artifact="apache-qpid-broker-j",
    default="9.2.1",
    variable="QPID_HOME",
    jar="qpid-broker-core",
    sha256={"9.2.1": "bfbfbcffc6a8ad904f97edc6dcebc688f232b582843b9cb1f240decb8b8a181a"},
)
VIRTUAL_HOST = "default"
_VERSIONS = {AMQP: ["AMQP_1_0"], AMQP091: ["AMQP_0_9_1"]}
_MODEL_VERSION = "8.0"
_PROBED_OBJECTS = ("virtualhost", "port")


class BrokerJSettings(JavaSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of Broker-J: `threads` serve the connections, `store` keeps durable messages."""

    store: Literal["BDB", "DERBY"] = "BDB"
    topics: list[str] = msgspec.field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.threads == 1:
            raise ValueError("threads: it needs at least 2, a selector thread and a worker thread")
        check_names("topics", self.topics)
        for name in set(self.queues) & set(self.topics):
            raise ValueError(f"topics: {name!r} is already a queue")
        if not self.persistence and self.store != "BDB":
            raise ValueError("store: without persistence there is no store; leave one of the two out")


class BrokerJ(JavaBroker):
    """Qpid Broker-J, from its Maven archive or an existing directory."""

    name = "qpid-broker-j"
    summary = "Apache Qpid Broker-J: AMQP 1.0 and 0-9-1 on a JVM"
    settings: type[SystemSettings] = BrokerJSettings
    ports = (AMQP, AMQP091, MANAGEMENT)
    declares = ("queues", "topics")
    release = RELEASE

    def minimum_java(self, version: str) -> int:
        return MINIMUM_JAVA

    def plan(
        self, settings: BrokerJSettings, installation: Installation, directory: Path, ports: Mapping[str, int]
    ) -> Blueprint:
        protocols = [name for name in _VERSIONS if speaks(settings, name)]
        document = _broker(settings, directory, protocols, ports)
        return self.blueprint(
            settings,
            directory,
            ports,
            protocols=protocols,
            files={"broker.json": json.dumps(document, indent=2)},
            argv=[
                (
                    *jvm_command(installation, settings, directory),
                    "-classpath",
                    f"{installation.home}/lib/*",
                    "org.apache.qpid.server.Main",
                    *("--store-type", "Memory"),
                    *("--initial-config-path", f"{directory}/broker.json"),
                    *("--config-property", f"qpid.work_dir={directory}/data"),
                )
            ],
            env={"QPID_WORK": f"{directory}/data"},
        )

    def check_management(self, url: str) -> None:
        for category in _PROBED_OBJECTS:
            answer = get_management(url, f"/api/latest/{category}")
            try:
                states = {part["name"]: part["state"] for part in json.loads(answer)}
            except (ValueError, TypeError, KeyError) as err:
                raise PeerError("its REST interface gave an unexpected answer") from err
            # The broker starts even if it could not open a port or a store.
            inactive = [f"{name} is {state}" for name, state in states.items() if state != "ACTIVE"]
            if inactive or not states:
                raise PeerError(f"not every {category} is active: {', '.join(inactive)[:200] or 'there is none'}")


def _broker(
    settings: BrokerJSettings, directory: Path, protocols: list[str], ports: Mapping[str, int]
) -> dict[str, Any]:
    listeners = [_amqp_port(name, name, ports, settings) for name in protocols]
    if settings.secure is not None:
        secure = _secure(settings.secure)
        listeners += [_amqp_port(secure_schemes()[name], name, ports, settings) | secure for name in protocols]
    return {
        "name": "crescendo",
        "modelVersion": _MODEL_VERSION,
        "authenticationproviders": [
            {
                "name": "users",
                "type": "Plain",
                # Load without TLS authenticates too; the password is valid for this instance only.
                "secureOnlyMechanisms": [],
                "users": [{"name": settings.user, "type": "managed", "password": _literal(settings.password or "")}],
            }
        ],
        "brokerloggers": [
            {
                "name": "console",
                "type": "Console",
                "brokerloginclusionrules": [
                    _rule("everything", "ROOT", "WARN"),
                    _rule("broker", "org.apache.qpid.*", "INFO"),
                ],
            }
        ],
        "ports": [
            *listeners,
            {
                "name": "http",
                "type": "HTTP",
                "port": ports[MANAGEMENT],
                "bindingAddress": settings.listen,
                "protocols": ["HTTP"],
                "authenticationProvider": "users",
            },
        ],
        "plugins": [{"name": "management", "type": "MANAGEMENT-HTTP", "httpBasicAuthenticationEnabled": True}],
        "virtualhostnodes": [
            {
                "name": VIRTUAL_HOST,
                "type": "JSON",
                "storePath": f"{directory}/data/host",
                "defaultVirtualHostNode": True,
                "virtualHostInitialConfiguration": json.dumps(_virtual_host(settings, directory)),
            }
        ],
        **(_key_stores(directory) if settings.secure is not None else {}),
    }


def _key_stores(directory: Path) -> dict[str, Any]:
    password = {"password": STORE_PASSWORD}
    key = {"name": "key", "type": "FileKeyStore", "keyStoreType": "PKCS12", "storeUrl": f"{directory / KEY_STORE}"}
    ca = {"name": "ca", "type": "FileTrustStore", "trustStoreType": "PKCS12", "storeUrl": f"{directory / TRUST_STORE}"}
    return {"keystores": [key | password], "truststores": [ca | password]}


def _secure(tls: TlsSettings) -> dict[str, Any]:
    listener: dict[str, Any] = {"transports": ["SSL"], "keyStore": "key"}
    if tls.client_certificates is not None:
        client_auth = "needClientAuth" if tls.client_certificates == "required" else "wantClientAuth"
        listener |= {"trustStores": ["ca"], client_auth: True}
    return listener


def _amqp_port(name: str, protocol: str, ports: Mapping[str, int], settings: BrokerJSettings) -> dict[str, Any]:
    listener: dict[str, Any] = {
        "name": name,
        "type": "AMQP",
        "port": ports[name],
        "bindingAddress": settings.listen,
        "protocols": _VERSIONS[protocol],
        "authenticationProvider": "users",
        "virtualhostaliases": [
            # Clients that name the host, or nothing, get the only virtual host.
            {"name": "byName", "type": "nameAlias"},
            {"name": "byDefault", "type": "defaultAlias"},
            {"name": "byHost", "type": "hostnameAlias"},
        ],
    }
    if settings.threads is not None:
        listener["threadPoolSize"] = settings.threads
        listener["numberOfSelectors"] = _selectors(settings.threads)
    return listener


def _virtual_host(settings: BrokerJSettings, directory: Path) -> dict[str, Any]:
    host: dict[str, Any] = {
        "name": VIRTUAL_HOST,
        "type": settings.store if settings.persistence else "Memory",
        "modelVersion": _MODEL_VERSION,
        "nodeAutoCreationPolicies": [
            _policy(re.escape(PROBE_QUEUE), {"lifetimePolicy": "DELETE_ON_CONNECTION_CLOSE"}),
            _policy(_all_but(settings.topics), {}),
        ],
        "exchanges": [{"name": name, "type": "fanout", "durable": settings.persistence} for name in settings.topics],
        "queues": [{"name": name, "type": "standard", "durable": settings.persistence} for name in settings.queues],
    }
    if settings.persistence:
        host["storePath"] = f"{directory}/data/messages"
    if settings.threads is not None:
        host["connectionThreadPoolSize"] = settings.threads
        host["numberOfSelectors"] = _selectors(settings.threads)
    return host


def _all_but(names: list[str]) -> str:
    """A pattern for queue names. Without the exception, a receiver on a topic would create a queue of that name."""
    return f"(?!(?:{'|'.join(re.escape(name) for name in names)})$).*" if names else ".*"


def _policy(pattern: str, attributes: dict[str, Any]) -> dict[str, Any]:
    return {
        "pattern": pattern,
        "createdOnPublish": True,
        "createdOnConsume": True,
        "nodeType": "queue",
        "attributes": attributes,
    }


def _rule(name: str, logger: str, level: str) -> dict[str, str]:
    return {"name": name, "type": "NameAndLevel", "loggerName": logger, "level": level}


def _selectors(threads: int) -> int:
    """The threads that wait for the network: the broker needs at least one, and at least one other that works."""
    return max(1, threads // 8)


def _literal(text: str) -> str:
    # Broker-J expands ${name} in its configuration; $$ is a literal dollar.
    return text.replace("$", "$$")


QPID_BROKER_J = BrokerJ()
