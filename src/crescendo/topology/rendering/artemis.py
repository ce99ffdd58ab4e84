"""What is in the broker.xml of an Artemis broker of a network?

Acceptors, queues, and one element per connector: a core bridge, an AMQP connection with bridges, an AMQP connection
with federation, or a cluster connection. It is a whole broker.xml for an instance made by `artemis create`.
"""

from typing import Any

from crescendo.model.errors import ConfigError
from crescendo.model.suggestions import listing
from crescendo.topology.generate import CLUSTER
from crescendo.topology.graph import queue_address
from crescendo.topology.rendering.access import Access, NodeVariables, refuse_via
from crescendo.topology.templates import fill_template

VIA = ("bridge", "amqp-bridge", "federation", CLUSTER)
OPTIONS = frozenset({"priority", "remote-address", "remote-address-prefix", "remote-terminus-capabilities"})
"""Attributes of an AMQP bridge that a link may set, as broker.xml calls them."""

_OWN = {"name", "label", "host", "port", "role", "via", "direction", "addresses"}


def artemis_files(node: NodeVariables, peers: dict[str, str], access: Access) -> dict[str, str]:
    node.check_sections()
    connectors = [_connector(node, entry, peers.get(str(entry.get("name")), "")) for entry in node.connectors]
    text = fill_template(
        "artemis-broker.xml",
        node=node,
        acceptor=node.listener(),
        connectors=connectors,
        connections=_amqp_connections(connectors),
        is_clustered=bool(node.settings.get(CLUSTER)),
        address=_own_address(node),
        access=access,
    )
    return {"etc/broker.xml": text}


def _amqp_connections(connectors: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The connectors that share an AMQP connection.

    All bridges to one broker do: every connection of an Artemis broker has the same container id, and ActiveMQ lets
    only one of them in ("already connected").
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for connector in connectors:
        if connector["via"] in {"amqp-bridge", "federation"}:
            found.setdefault(connection_label(connector, connectors), []).append(connector)
    return list(found.values())


def connection_label(entry: dict[str, Any], connectors: list[dict[str, Any]]) -> str:
    """The name of the AMQP connection that carries this connector, one of those of its broker: that of the first."""
    keys = ("host", "port", "via")
    return next(str(each["label"]) for each in connectors if all(each.get(key) == entry.get(key) for key in keys))


def _own_address(node: NodeVariables) -> str:
    """Where other members of a cluster find this broker."""
    host = node.listener()["host"]
    return str(node.settings["id"]) if host == "0.0.0.0" else str(host)  # noqa: S104


def _connector(node: NodeVariables, entry: dict[str, Any], program: str) -> dict[str, Any]:
    direction, via = entry.get("direction", "both"), via_of(entry, program)
    if via not in VIA:
        raise refuse_via(node, {**entry, "via": via}, VIA)
    if program != "artemis" and via != "amqp-bridge":
        raise ConfigError(f"node {node.id}: only Artemis can be joined via {via}; use via: amqp-bridge with {program}")
    if via in {"bridge", "amqp-bridge"} and direction == "both":
        raise ConfigError(
            f"node {node.id}: a bridge to {entry['name']} in both directions would pass messages back and forth; "
            "set directed: true in the graph, or via: federation between Artemis brokers"
        )
    if via == "bridge" and direction == "in":
        raise ConfigError(
            f"node {node.id}: a core bridge only sends; use via: amqp-bridge to receive from {entry['name']}"
        )
    addresses = entry.get("addresses") or []
    if via in {"bridge", "amqp-bridge"} and not addresses:
        raise ConfigError(f"node {node.id}: a bridge to {entry['name']} needs addresses on its link")
    options = {key: value for key, value in entry.items() if key not in _OWN}
    for key in options:
        if via != "amqp-bridge" or key not in OPTIONS:
            known = listing(key, sorted(OPTIONS)) if via == "amqp-bridge" else "it has none"
            raise ConfigError(f"node {node.id}: a link via {via} has no option {key}; {known}")
    if via == "amqp-bridge" and (prefix := queue_address(program, "")):
        options = {"remote-address-prefix": prefix, **options}
    return {**entry, "via": via, "direction": direction, "addresses": addresses or ["#"], "options": options}


def via_of(entry: dict[str, Any], program: str) -> str:
    """How this connector joins a broker of that program."""
    if entry.get("via"):
        return str(entry["via"])
    # Not a core bridge: our load is AMQP, and an AMQP connection carries it as it is.
    return "federation" if program == "artemis" and entry.get("direction", "both") == "both" else "amqp-bridge"
