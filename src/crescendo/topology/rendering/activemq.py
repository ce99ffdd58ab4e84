"""What is in the activemq.xml of an ActiveMQ Classic broker of a network?

Transport connectors for AMQP and OpenWire, queues, and one network connector per connector, with its options and its
rules per destination. Users are not in it: they belong to the broker's own files.
"""

from typing import Any

from crescendo.model.errors import ConfigError
from crescendo.model.suggestions import listing
from crescendo.topology.generate import OPENWIRE
from crescendo.topology.rendering.access import Access, NodeVariables, refuse_via
from crescendo.topology.templates import fill_template

VIA = ("network-connector",)
OPTIONS = frozenset(
    {
        *("networkTTL", "messageTTL", "consumerTTL", "conduitSubscriptions", "dynamicOnly", "prefetchSize"),
        *("advisoryPrefetchSize", "decreaseNetworkConsumerPriority", "suppressDuplicateQueueSubscriptions"),
        *("suppressDuplicateTopicSubscriptions", "bridgeTempDestinations", "alwaysSyncSend", "staticBridge"),
        *("conduitNetworkQueueSubscriptions", "syncDurableSubs", "dispatchAsync"),
    }
)
RULES = {
    "addresses": "dynamicallyIncludedDestinations",
    "static": "staticallyIncludedDestinations",
    "excluded": "excludedDestinations",
}
_OWN = {"name", "label", "host", "port", "role", "via", "direction"}


def activemq_files(node: NodeVariables, peers: dict[str, str], access: Access) -> dict[str, str]:
    node.check_sections()
    text = fill_template(
        "activemq-network.xml",
        node=node,
        amqp=node.listener(),
        openwire=node.listener(OPENWIRE),
        connectors=[_connector(node, entry, peers.get(str(entry.get("name")), "")) for entry in node.connectors],
        access=access,
        data=f"{access.directory}/data" if access.directory else "${activemq.data}",
        # The web server that inspectors ask; elsewhere that of the installation is used.
        web_host=node.management["host"] if access.home else None,
        web_port=node.management["port"] if access.home else None,
        directory=access.directory,
        home=access.home,
        role=access.role,
    )
    return {"conf/activemq.xml": text}


def _connector(node: NodeVariables, entry: dict[str, Any], program: str) -> dict[str, Any]:
    if entry.get("via") not in {None, *VIA}:
        raise refuse_via(node, entry, VIA)
    if program != "activemq":
        raise ConfigError(
            f"node {node.id}: ActiveMQ joins only ActiveMQ brokers; let {entry.get('name')} ({program}) connect to it"
        )
    options = {key: value for key, value in entry.items() if key not in {*_OWN, *RULES}}
    for key in options:
        if key not in OPTIONS:
            raise ConfigError(
                f"node {node.id}: a network connector has no option {key}; {listing(key, sorted(OPTIONS))}"
            )
    if entry.get("direction", "both") == "in":
        raise ConfigError(f"node {node.id}: a network connector sends; turn the link to {entry.get('name')} around")
    shown = {key: str(value).lower() if isinstance(value, bool) else value for key, value in options.items()}
    rules = {element: [_destination(text) for text in entry.get(key) or ()] for key, element in RULES.items()}
    return {**entry, "options": shown, "duplex": entry.get("direction", "both") == "both", "rules": rules}


def _destination(text: str) -> tuple[str, str]:
    kind, separator, name = str(text).partition("://")
    return (kind, name) if separator and kind in {"queue", "topic"} else ("queue", str(text))
