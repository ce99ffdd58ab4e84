"""How is RabbitMQ configured, and when does it serve?

Every instance has its own port mapper (epmd), cookie, plugins and definitions. Its nodes and the port mapper use the
loopback interface, whatever the address of its clients. It neither reads nor writes anything in /etc or /var. It serves
when it delivers a message over AMQP 1.0, or, without AMQP 1.0, when its own health checks pass. The nodes of a cluster
share port mapper and cookie.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import httpx

from crescendo.client.amqp10 import pass_a_message
from crescendo.model.errors import ConfigError, PeerError
from crescendo.systems import base
from crescendo.systems.base import (
    AMQP,
    AMQP091,
    MANAGEMENT,
    MQTT,
    STOMP,
    Blueprint,
    Installation,
    Launch,
    node_name,
    numbered,
)
from crescendo.systems.install import packages
from crescendo.systems.instance_dir import DATA
from crescendo.systems.kinds.node_secret import node_secret
from crescendo.systems.kinds.rabbitmq_cluster import cluster_formation, declare_quorum_queues
from crescendo.systems.kinds.rabbitmq_files import (
    CONFIGURATION,
    COOKIE,
    DEFINITIONS,
    ENVIRONMENT,
    PLUGINS,
    SECRETS,
    configuration,
    definitions,
    plugins,
)
from crescendo.systems.ports import HOST
from crescendo.systems.settings import endpoint, speaks
from crescendo.systems.tls import secure_endpoints

PACKAGE = "rabbitmq-server"
HOME_VARIABLE = "RABBITMQ_HOME"
EPMD, DISTRIBUTION = "epmd", "distribution"
_PACKAGED = Path("/usr/lib/rabbitmq/lib")
_PROBE_QUEUE, _PROBE_TIMEOUT_S = "crescendo-proof", 5.0
_VERSION = re.compile(r"rabbit-(\d+(?:\.\d+)+)")


class RabbitMQSettings(base.SystemSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of RabbitMQ. With three `nodes` they are a cluster, and `queues` are its quorum queues."""

    nodes: Literal[1, 3, 5] = 1

    def __post_init__(self) -> None:
        self._check_cluster()
        if not self.user:
            raise ValueError("user: rabbitmq refuses clients without a user name")
        if not self.persistence and not self.queues:
            # Durability belongs to a queue, not to the broker; a client that declares a queue decides it.
            raise ValueError("persistence: in rabbitmq it is a property of each queue, so name them: queues: [perf]")

    def _check_cluster(self) -> None:
        if self.nodes == 1:
            return
        if self.secure is not None:
            raise ValueError("tls: the nodes of a cluster are not encrypted; leave it out")
        if not self.persistence:
            raise ValueError("persistence: quorum queues are always durable; leave it out")
        if not self.queues:
            raise ValueError("queues: name the queues that the cluster shall replicate: queues: [perf]")

    @property
    def extra_ports(self) -> tuple[str, ...]:
        """Those of every node after the first; they share the port mapper."""
        own = [name for name in RabbitMQ.ports if name != EPMD]
        return tuple(numbered(name, number) for number in range(2, self.nodes + 1) for name in own)

    @property
    def node_names(self) -> tuple[str, ...]:
        return tuple(node_name(number) for number in range(1, self.nodes + 1)) if self.nodes > 1 else ()

    @property
    def node_data(self) -> Mapping[str, str]:
        return {name: name for name in self.node_names}


class RabbitMQ:
    """RabbitMQ as a kind of system."""

    name = "rabbitmq"
    package = PACKAGE
    summary = "RabbitMQ, a broker in Erlang"
    settings = RabbitMQSettings
    ports = (AMQP, AMQP091, STOMP, MQTT, MANAGEMENT, EPMD, DISTRIBUTION)
    declares = ()  # the first client of a queue declares it and decides its durability

    def find(self, home: Path | None, version: str | None) -> Installation:
        given = home or packages.home_from_environment(HOME_VARIABLE)
        directory = given or max(_PACKAGED.glob("rabbitmq_server-*"), key=_version_key, default=None)
        if directory is None:
            raise ConfigError(f"rabbitmq is not installed; {packages.how_to_install(self.name, PACKAGE)}")
        if not _script(directory).is_file():
            raise ConfigError(f"{directory} is not a RabbitMQ home: there is no sbin/rabbitmq-server in it")
        for command in ("erl", "epmd"):
            if packages.find_command(command) is None:
                raise ConfigError(f"rabbitmq needs Erlang, and {command} is not on the PATH; install erlang-base")
        return packages.packaged_installation(
            self.name, PACKAGE, directory, found=_version_of(directory), wanted=version, given=given is not None
        )

    def install(self, version: str | None, progress: Callable[[str], None]) -> Installation:
        return packages.find_or_install(self.find, PACKAGE, version, progress)

    def plan(
        self, settings: RabbitMQSettings, installation: Installation, directory: Path, ports: Mapping[str, int]
    ) -> Blueprint:
        files = {
            DEFINITIONS: definitions(settings, directory),
            PLUGINS: plugins(settings),
            COOKIE: node_secret(settings, directory),
            ENVIRONMENT: "",  # replaces the one in /etc
        }
        mapper_env = {"ERL_EPMD_PORT": str(ports[EPMD]), "ERL_EPMD_ADDRESS": HOST}
        launches = [Launch(EPMD, (str(packages.find_command("epmd") or "epmd"),), mapper_env, listens_on=ports[EPMD])]
        urls: list[dict[str, str]] = []
        members = [_erlang_name(ports, number) for number in range(1, settings.nodes + 1)]
        for number in range(1, settings.nodes + 1):
            own = {name: ports[numbered(name, number)] for name in self.ports if name != EPMD}
            own |= {name: port for name, port in ports.items() if number == 1 and name not in own}  # those of TLS
            file = CONFIGURATION if number == 1 else f"{node_name(number)}.conf"
            files[file] = configuration(settings, directory, own) + cluster_formation(members)
            data = directory / DATA / settings.node_data.get(node_name(number), "")
            environment = mapper_env | _environment(settings, directory, data, own, file)
            script = (str(_script(installation.home)),)
            if settings.nodes == 1:
                launches.append(Launch(self.name, script, environment, ends_slowly=True))
            else:
                name = node_name(number)
                launches.append(
                    Launch(
                        name,
                        script,
                        environment,
                        listens_on=own[MANAGEMENT],
                        listens_at=settings.listen,
                        node=name,
                        ends_slowly=True,
                    )
                )
            spoken = {name: endpoint(name, settings, own[name]) for name in self.ports[:4] if speaks(settings, name)}
            urls.append({**spoken, MANAGEMENT: endpoint("http", settings, own[MANAGEMENT])})
        endpoints = {**urls[0], **secure_endpoints(settings, directory, ports)}
        return Blueprint(
            files,
            tuple(launches),
            endpoints,
            SECRETS,
            serving=1,
            called=_called(settings),
            further_nodes=tuple(urls[1:]),
        )

    def probe(self, endpoints: Mapping[str, str], settings: RabbitMQSettings) -> None:
        _request_management(endpoints, "GET", "/api/health/checks/local-alarms")
        _request_management(endpoints, "GET", "/api/health/checks/virtual-hosts")
        for name, url in endpoints.items():  # management may be up before the listeners of the protocols
            if name != MANAGEMENT:
                _request_management(endpoints, "GET", f"/api/health/checks/port-listener/{urlsplit(url).port}")
        if settings.nodes > 1:
            declare_quorum_queues(endpoints[MANAGEMENT], settings.queues, settings.nodes)
        if speaks(settings, AMQP):
            try:
                pass_a_message(endpoints[AMQP], _PROBE_QUEUE, _PROBE_TIMEOUT_S)
            finally:
                _request_management(
                    endpoints, "DELETE", f"/api/queues/%2F/{_PROBE_QUEUE}"
                )  # so that inspectors do not see it


def _called(settings: RabbitMQSettings) -> dict[str, dict[str, str]]:
    """To these protocols a plain name means a queue that they declare, and a quorum queue is none that they would."""
    declared = {name: f"/amq/queue/{name}" for name in settings.queues}
    return {AMQP: declared, STOMP: declared} if settings.nodes > 1 else {}


def _erlang_name(ports: Mapping[str, int], number: int) -> str:
    return f"crescendo-{ports[numbered(DISTRIBUTION, number)]}@localhost"


def _environment(
    settings: RabbitMQSettings, directory: Path, data: Path, ports: Mapping[str, int], configuration_file: str
) -> dict[str, str]:
    arguments = "-kernel inet_dist_use_interface {127,0,0,1}"
    if settings.threads is not None:
        arguments += f" +S {settings.threads}:{settings.threads}"
    return {
        "RABBITMQ_NODENAME": _erlang_name(ports, 1),
        "RABBITMQ_DIST_PORT": str(ports[DISTRIBUTION]),
        "RABBITMQ_CONFIG_FILE": str(directory / configuration_file),
        "RABBITMQ_CONFIG_FILES": str(directory / "no-conf.d"),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(directory / "no-advanced.config"),
        "RABBITMQ_CONF_ENV_FILE": str(directory / ENVIRONMENT),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / PLUGINS),
        "RABBITMQ_MNESIA_BASE": str(data),
        "RABBITMQ_LOG_BASE": str(directory / "logs"),
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": arguments,
        # With input allowed, the start script execs the Erlang VM instead of waiting for it as a child, which would
        # outlive the script. The VM itself is then started without input.
        "RABBITMQ_ALLOW_INPUT": "true",
        "RABBITMQ_SERVER_START_ARGS": "-noinput +Bi",
    }


def _request_management(endpoints: Mapping[str, str], method: str, path: str) -> None:
    try:
        with httpx.stream(method, endpoints[MANAGEMENT] + path, timeout=_PROBE_TIMEOUT_S, trust_env=False) as answer:
            if answer.status_code not in {200, 204, 404}:
                raise PeerError(f"rabbitmq answers {answer.status_code} to {method} {path}")
    except httpx.HTTPError as err:
        raise PeerError(f"rabbitmq does not answer {method} {path}: {err}") from err


def _script(home: Path) -> Path:
    return home / "sbin" / "rabbitmq-server"


def _version_key(home: Path) -> list[int]:
    """A sort key: 3.9 comes before 3.10."""
    return [int(number) for number in re.findall(r"\d+", home.name)]


def _version_of(home: Path) -> str:
    for plugin in sorted((home / "plugins").glob("rabbit-*")):
        if match := _VERSION.match(plugin.name):
            return match[1]
    raise ConfigError(f"{home} is not a RabbitMQ home: there is no plugins/rabbit-VERSION that names its version")


RABBITMQ = RabbitMQ()
