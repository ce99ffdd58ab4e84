"""What is in the configuration files of a RabbitMQ instance?

Text from settings and ports. The user, the queues and their durability go into the definitions file, because JSON can
quote any name and the password is stored as a hash. Pure.
"""

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from crescendo.model.protocols import secure_schemes
from crescendo.systems.base import AMQP, AMQP091, MANAGEMENT, MQTT, STOMP, SystemSettings
from crescendo.systems.settings import speaks
from crescendo.systems.tls import CA, CERTIFICATE, KEY, VERSIONS

CONFIGURATION, DEFINITIONS, PLUGINS = "rabbitmq.conf", "definitions.json", "enabled_plugins"
ENVIRONMENT = "rabbitmq-env.conf"
COOKIE = ".erlang.cookie"
SECRETS = frozenset({DEFINITIONS, COOKIE})  # a password hash is a secret, too
VIRTUAL_HOST = "/"


def configuration(settings: SystemSettings, directory: Path, ports: Mapping[str, int]) -> str:
    lines = [
        f"load_definitions = {directory / DEFINITIONS}",
        f"management.tcp.ip = {settings.listen}",
        f"management.tcp.port = {ports[MANAGEMENT]}",
        "log.console = true",
        "log.console.level = info",
        "disk_free_limit.absolute = 50MB",
    ]
    listeners = [name for name in (AMQP, AMQP091) if speaks(settings, name)]
    lines += [f"listeners.tcp.{name} = {settings.listen}:{ports[name]}" for name in listeners] or [
        "listeners.tcp = none"
    ]
    if speaks(settings, STOMP):
        lines.append(f"stomp.listeners.tcp.1 = {settings.listen}:{ports[STOMP]}")
    if speaks(settings, MQTT):
        lines += [f"mqtt.listeners.tcp.1 = {settings.listen}:{ports[MQTT]}", "mqtt.allow_anonymous = false"]
    lines += _secure(settings, directory, ports)
    if settings.memory is not None:
        lines.append(f"vm_memory_high_watermark.absolute = {int(settings.memory)}")
    return "\n".join(lines) + "\n"


def _secure(settings: SystemSettings, directory: Path, ports: Mapping[str, int]) -> list[str]:
    tls = settings.secure
    if tls is None:
        return []
    verifies = tls.client_certificates is not None
    lines = [
        f"ssl_options.cacertfile = {directory / CA}",
        f"ssl_options.certfile = {directory / CERTIFICATE}",
        f"ssl_options.keyfile = {directory / KEY}",
        f"ssl_options.verify = {'verify_peer' if verifies else 'verify_none'}",
        f"ssl_options.fail_if_no_peer_cert = {'true' if tls.client_certificates == 'required' else 'false'}",
        *(f"ssl_options.versions.{number} = {name.lower()}" for number, name in enumerate(VERSIONS, 1)),
    ]
    keys = {STOMP: "stomp.listeners.ssl.1", MQTT: "mqtt.listeners.ssl.1"}
    for name, scheme in secure_schemes().items():
        if scheme in ports:
            lines.append(f"{keys.get(name, f'listeners.ssl.{scheme}')} = {settings.listen}:{ports[scheme]}")
    return lines


def definitions(settings: SystemSettings, directory: Path) -> str:
    document = {
        "vhosts": [{"name": VIRTUAL_HOST}],
        "users": [
            {
                "name": settings.user,
                "password_hash": _hashed(settings.password or "", directory),
                "hashing_algorithm": "rabbit_password_hashing_sha256",
                "tags": "administrator",
            }
        ],
        "permissions": [{"user": settings.user, "vhost": VIRTUAL_HOST, "configure": ".*", "write": ".*", "read": ".*"}],
        "queues": [
            {
                "name": name,
                "vhost": VIRTUAL_HOST,
                "durable": settings.persistence,
                "auto_delete": False,
                "arguments": {},
            }
            for name in settings.queues
            if not settings.node_names  # a cluster must be complete before it replicates a queue
        ],
    }
    return json.dumps(document, indent=1)


def plugins(settings: SystemSettings) -> str:
    """An Erlang term: the plugins that the protocols need, and always the management plugin."""
    by_protocol = {AMQP: "rabbitmq_amqp1_0", STOMP: "rabbitmq_stomp", MQTT: "rabbitmq_mqtt"}
    names = ["rabbitmq_management", *(plugin for name, plugin in by_protocol.items() if speaks(settings, name))]
    return f"[{','.join(names)}].\n"


def _hashed(password: str, directory: Path) -> str:
    """RabbitMQ's format: a four-byte salt, then the SHA-256. The salt is derived from the directory: plan is pure."""
    salt = hashlib.sha256(str(directory).encode()).digest()[:4]
    return base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()
