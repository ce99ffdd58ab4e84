"""What is in the configuration files of a RabbitMQ broker of a network?

Listeners and plugins, and a definitions file with user, queues, and one parameter per connector and queue: a shovel,
which takes messages to any AMQP broker, or a federation upstream with its policy, which fetches them.
"""

import base64
import hashlib
import json
import re
from typing import Any
from urllib.parse import quote

from crescendo.model.errors import ConfigError
from crescendo.topology.rendering.access import Access, NodeVariables, refuse_via

VIA = ("shovel", "federation")
VIRTUAL_HOST = "/"
DIRECTORY = "/etc/rabbitmq"
_PLUGINS = ("rabbitmq_management", "rabbitmq_amqp1_0")
_OWN = {"name", "label", "host", "port", "role", "via", "direction", "addresses"}


def rabbitmq_files(node: NodeVariables, peers: dict[str, str], access: Access) -> dict[str, str]:
    node.check_sections()
    parameters, policies, used = [], [], set()
    for entry in node.connectors:
        via = entry.get("via") or "shovel"
        if via not in VIA:
            raise refuse_via(node, entry, VIA)
        used |= {f"rabbitmq_{via}", f"rabbitmq_{via}_management"}  # the second reports the state of each link
        _check(node, entry, via, peers.get(str(entry.get("name")), ""))
        for key in set(entry) - _OWN:
            raise ConfigError(f"node {node.id}: a link via {via} has no option {key}; it has none")
        if via == "shovel":
            parameters += [_shovel(node, entry, queue, peers, access) for queue in entry["addresses"]]
        else:
            parameters.append(_upstream(entry, access))
            policies.append(_policy(entry))
    plugins = [*_PLUGINS, *sorted(used)]
    definitions: dict[str, Any] = {
        "vhosts": [{"name": VIRTUAL_HOST}],
        **(_users(node, access) if access.user else {}),
        "queues": [
            {"name": name, "vhost": VIRTUAL_HOST, "durable": node.persistence, "auto_delete": False, "arguments": {}}
            for name in node.queues
        ],
        "parameters": parameters,
        "policies": policies,
    }
    return {
        "rabbitmq.conf": _configuration(node, access),
        "definitions.json": json.dumps(definitions, indent=1) + "\n",
        "enabled_plugins": f"[{','.join(plugins)}].\n",
    }


def _configuration(node: NodeVariables, access: Access) -> str:
    listener, management = node.listener(), node.management
    lines = [
        f"load_definitions = {access.directory or DIRECTORY}/definitions.json",
        f"listeners.tcp.1 = {listener['host']}:{listener['port']}",
        f"management.tcp.ip = {management['host']}",
        f"management.tcp.port = {management['port']}",
        "log.console = true",
        "log.console.level = info",
        "disk_free_limit.absolute = 50MB",
    ]
    return "\n".join(lines) + "\n"


def _users(node: NodeVariables, access: Access) -> dict[str, Any]:
    # The salt comes from the name of the node, so that the same topology gives the same files.
    salt = hashlib.sha256(node.id.encode()).digest()[:4]
    hashed = base64.b64encode(salt + hashlib.sha256(salt + access.password.encode()).digest()).decode()
    user = {"name": access.user, "password_hash": hashed, "hashing_algorithm": "rabbit_password_hashing_sha256"}
    allowed = dict.fromkeys(("configure", "write", "read"), ".*")
    return {
        "users": [{**user, "tags": "administrator"}],
        "permissions": [{"user": access.user, "vhost": VIRTUAL_HOST, **allowed}],
    }


def _check(node: NodeVariables, entry: dict[str, Any], via: str, program: str) -> None:
    direction, name = entry.get("direction", "both"), entry.get("name")
    if direction == "both":
        raise ConfigError(
            f"node {node.id}: {via} carries messages one way, so the link to {name} needs a direction: "
            "set directed: true in the graph"
        )
    if not entry.get("addresses"):
        raise ConfigError(f"node {node.id}: the link to {name} needs addresses, the queues that cross it")
    if via == "federation" and (direction != "in" or program != "rabbitmq"):
        raise ConfigError(
            f"node {node.id}: federation fetches messages from RabbitMQ brokers; use via: shovel to {name}"
        )


def _uri(host: str, port: int, access: Access, options: str = "") -> str:
    sign_in = f"{quote(access.user, safe='')}:{quote(access.password, safe='')}@" if access.user else ""
    return f"amqp://{sign_in}{host}:{port}{options}"


def check_password(access: Access) -> None:
    """Refuse what RabbitMQ's shovel over AMQP 1.0 cannot sign in with: it does not decode its URI."""
    if quote(access.user + access.password, safe="") != access.user + access.password:
        raise ConfigError(
            "RabbitMQ's shovels sign in only with letters, digits and any of . _ - ~ in user and password; "
            "choose another password"
        )


def _shovel(
    node: NodeVariables, entry: dict[str, Any], queue: str, peers: dict[str, str], access: Access
) -> dict[str, Any]:
    listener = node.listener()
    here = "127.0.0.1" if listener["host"] == "0.0.0.0" else listener["host"]  # noqa: S104
    own = _end(_uri(here, listener["port"], access), "amqp091", queue)
    if peers.get(entry["name"]) == "rabbitmq":
        other = _end(_uri(entry["host"], entry["port"], access), "amqp091", queue)
    else:
        other = _end(_uri(entry["host"], entry["port"], access, "?sasl=plain" if access.user else ""), "amqp10", queue)
    source, target = (own, other) if entry.get("direction") == "out" else (other, own)
    value: dict[str, Any] = {f"src-{key}": content for key, content in source.items()}
    value |= {f"dest-{key}": content for key, content in target.items()}
    value |= {"ack-mode": "on-confirm", "reconnect-delay": 1}
    return {"component": "shovel", "vhost": VIRTUAL_HOST, "name": f"{queue}-{entry['label']}", "value": value}


def _end(uri: str, protocol: str, queue: str) -> dict[str, str]:
    return {"protocol": protocol, "uri": uri, "queue" if protocol == "amqp091" else "address": queue}


def _upstream(entry: dict[str, Any], access: Access) -> dict[str, Any]:
    value = {"uri": _uri(entry["host"], entry["port"], access), "reconnect-delay": 1}
    return {"component": "federation-upstream", "vhost": VIRTUAL_HOST, "name": entry["label"], "value": value}


def _policy(entry: dict[str, Any]) -> dict[str, Any]:
    names = "|".join(re.escape(queue) for queue in entry["addresses"])
    return {
        "vhost": VIRTUAL_HOST,
        "name": f"from-{entry['label']}",
        "pattern": f"^({names})$",
        "apply-to": "queues",
        "priority": 1,
        "definition": {"federation-upstream": entry["label"]},
    }
