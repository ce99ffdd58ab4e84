"""What is in the initial configuration of a Qpid Broker-J of a network?

One AMQP port for 1.0 and 0-9-1, HTTP management, one virtual host with its queues. This broker opens no connections to
others, so others connect to it.
"""

import json
from typing import Any

from crescendo.model.errors import ConfigError
from crescendo.topology.rendering.access import Access, NodeVariables

_MODEL_VERSION = "8.0"
_PROVIDER = "users"


def broker_j_files(node: NodeVariables, peers: dict[str, str], access: Access) -> dict[str, str]:
    node.check_sections()
    for entry in node.connectors:
        raise ConfigError(
            f"node {node.id}: Broker-J opens no connections to other brokers; let {entry.get('name')} connect to it"
        )
    listener, management = node.listener(), node.management
    document = {
        "name": node.id,
        "modelVersion": _MODEL_VERSION,
        "authenticationproviders": [_provider(access)],
        "brokerloggers": [
            {
                "name": "console",
                "type": "Console",
                "brokerloginclusionrules": [_rule("all", "ROOT", "WARN"), _rule("broker", "org.apache.qpid.*", "INFO")],
            }
        ],
        "ports": [
            {
                "name": "amqp",
                "type": "AMQP",
                "port": listener["port"],
                "bindingAddress": listener["host"],
                "protocols": ["AMQP_1_0", "AMQP_0_9_1"],
                "authenticationProvider": _PROVIDER,
                "virtualhostaliases": [
                    {"name": "byName", "type": "nameAlias"},
                    {"name": "byDefault", "type": "defaultAlias"},
                    {"name": "byHost", "type": "hostnameAlias"},
                ],
            },
            {
                "name": "http",
                "type": "HTTP",
                "port": management["port"],
                "bindingAddress": management["host"],
                "protocols": ["HTTP"],
                "authenticationProvider": _PROVIDER,
            },
        ],
        "plugins": [{"name": "management", "type": "MANAGEMENT-HTTP", "httpBasicAuthenticationEnabled": True}],
        "virtualhostnodes": [
            {
                "name": "default",
                "type": "JSON",
                "storePath": "${qpid.work_dir}/host",
                "defaultVirtualHostNode": True,
                "virtualHostInitialConfiguration": json.dumps(_virtual_host(node)),
            }
        ],
    }
    return {"broker.json": json.dumps(document, indent=2) + "\n"}


def _provider(access: Access) -> dict[str, Any]:
    if not access.user:
        return {"name": _PROVIDER, "type": "Anonymous"}
    password = access.password.replace("$", "$$")  # Broker-J expands ${name}
    return {
        "name": _PROVIDER,
        "type": "Plain",
        "secureOnlyMechanisms": [],
        "users": [{"name": access.user, "type": "managed", "password": password}],
    }


def _virtual_host(node: NodeVariables) -> dict[str, Any]:
    stored = {"type": "BDB", "storePath": "${qpid.work_dir}/messages"} if node.persistence else {"type": "Memory"}
    policy = {
        "pattern": ".*",
        "createdOnPublish": True,
        "createdOnConsume": True,
        "nodeType": "queue",
        "attributes": {},
    }
    return {
        "name": "default",
        "modelVersion": _MODEL_VERSION,
        **stored,
        "nodeAutoCreationPolicies": [policy],
        "queues": [{"name": name, "type": "standard", "durable": node.persistence} for name in node.queues],
    }


def _rule(name: str, logger: str, level: str) -> dict[str, str]:
    return {"name": name, "type": "NameAndLevel", "loggerName": logger, "level": level}
