"""Which links of a running node are not connected?

Each program is asked in its own way: routers over AMQP management, Artemis and ActiveMQ through Jolokia, RabbitMQ
through its HTTP interface. What a program says about a link that does not work is quoted. Starts and repairs nothing.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from crescendo.client.amqp10 import Amqp10Client
from crescendo.inspectors.kinds.qpid_dispatch import ADDRESS, PREFIX, SKUPPER_PREFIX, entities_of, query_of
from crescendo.systems.base import AMQP, MANAGEMENT
from crescendo.systems.kinds.java_broker import jolokia_value, management_document
from crescendo.topology.generate import CLUSTER, FEDERATION, Network
from crescendo.topology.graph import RABBITMQ, ROUTER, GraphNode
from crescendo.topology.listener_ports import port_of
from crescendo.topology.rendering.access import NodeVariables
from crescendo.topology.rendering.artemis import connection_label, via_of

REFUSAL = re.compile(
    r"authentication failure|password is invalid|unable to validate|auth_failure|sasl_auth|ACCESS_REFUSED"
    r"|connection refused|econnrefused|not authori[sz]ed|SecurityException|unable to connect|remote error",
    re.IGNORECASE,
)
"""What programs log about a link that another refuses."""

Endpoints = Mapping[str, str]
Peers = Mapping[str, str]


def unconnected_links(network: Network, node: GraphNode, endpoints: Endpoints) -> list[str]:
    """The links that this node opens and that are not connected, each with the words of the node.

    PeerError: it does not answer.
    """
    values = NodeVariables(node.id, network.variables[node.id])
    if not values.connectors:
        return []
    if node.type == ROUTER:
        return _of_router(network, node, endpoints[AMQP])
    peers = {other.id: other.program for other in network.graph.nodes}
    return _BROKERS[node.program](values, endpoints[MANAGEMENT], peers)


def settling_seconds(network: Network, node: GraphNode) -> float:
    """How long the links of this node must stay connected before they count.

    ActiveMQ and Artemis call a link connected before the other side has let them in. RabbitMQ 3.10 refused a wrong
    password after three seconds, the others at once.
    """
    programs = {other.id: other.program for other in network.graph.nodes}
    to = {programs.get(str(entry.get("name")), "") for entry in network.variables[node.id].get("connector", ())}
    if not to or node.program not in {"artemis", "activemq"}:
        return 0.0
    return 4.0 if RABBITMQ in to else 1.0


def _of_router(network: Network, node: GraphNode, url: str) -> list[str]:
    prefix = SKUPPER_PREFIX if node.program == "skupper-router" else PREFIX
    with Amqp10Client(url) as client:
        answer = client.request(ADDRESS, {"attributeNames": []}, query_of("connector", prefix))
    owners = {
        str(port_of(entry)): name for name, values in network.variables.items() for entry in values.get("listener", ())
    }
    return [
        _named(
            owners.get(str(entity.get("port")), f"{entity.get('host')}:{entity.get('port')}"),
            entity.get("connectionMsg"),
        )
        for entity in entities_of(answer.body)
        if entity.get("connectionStatus") != "SUCCESS"
    ]


def _named(name: str, words: object) -> str:
    states = _words(words)
    return f"{name} ({states})" if states else name


def _of_artemis(node: NodeVariables, url: str, peers: Peers) -> list[str]:
    beans: dict[str, tuple[str, dict[str, Any]]] = {}
    connectors = [{**entry, "via": via_of(entry, peers.get(entry["name"], ""))} for entry in node.connectors]
    for entry in connectors:
        via = entry["via"]
        if via == "bridge":
            beans |= {f"{queue}-to-{entry['label']}": ("bridges", entry) for queue in entry["addresses"]}
        elif via != CLUSTER:
            beans[connection_label(entry, connectors)] = ("broker-connections", entry)
    missing = [
        str(entry["name"])
        for name, (component, entry) in beans.items()
        if _value(url, _artemis_bean(node, component, name), "Connected") is not True
    ]
    members = [entry for entry in connectors if entry["via"] == CLUSTER]
    if members:
        # The addresses of the members that this broker is connected to, by their node ids.
        joined = _value(url, _artemis_bean(node, "cluster-connections", CLUSTER), "Nodes")
        ports = {str(address).rpartition(":")[2] for address in joined.values()} if isinstance(joined, dict) else set()
        missing += [str(entry["name"]) for entry in members if str(port_of(entry)) not in ports]
    return missing


def _artemis_bean(node: NodeVariables, component: str, name: str) -> str:
    return f'org.apache.activemq.artemis:broker="{node.id}",component={component},name="{name}"'


def _value(url: str, bean: str, attribute: str) -> Any:
    return jolokia_value(url, f"/read/{_escaped(bean)}/{attribute}")


def _escaped(bean: str) -> str:
    return bean.replace("!", "!!").replace("/", "!/")  # as Jolokia wants names in a path


def _of_activemq(node: NodeVariables, url: str, _peers: Peers) -> list[str]:
    """A network connector has a bridge for every broker that it is connected to."""
    missing = []
    for entry in node.connectors:
        bean = (
            f"org.apache.activemq:type=Broker,brokerName={node.id},connector=networkConnectors,"
            f"networkConnectorName={entry['label']},networkBridge=*"
        )
        if not jolokia_value(url, f"/search/{_escaped(bean)}"):
            missing.append(str(entry["name"]))
    return missing


def _of_rabbitmq(node: NodeVariables, url: str, _peers: Peers) -> list[str]:
    missing = []
    vias = {entry.get("via") or "shovel" for entry in node.connectors}
    shovels = _states(url, "/api/shovels", "name", "state") if "shovel" in vias else {}
    upstreams = _states(url, "/api/federation-links", "upstream", "status") if FEDERATION in vias else {}
    for entry in node.connectors:
        if (entry.get("via") or "shovel") == FEDERATION:
            found = [upstreams.get(entry["label"], ("missing", ""))]
        else:
            found = [shovels.get(f"{queue}-{entry['label']}", ("missing", "")) for queue in entry["addresses"]]
        missing += [
            " ".join(filter(None, (str(entry["name"]), f"({state})", words)))
            for state, words in found
            if state != "running"
        ]
    return missing


def _states(url: str, path: str, key: str, state: str) -> dict[str, tuple[str, str]]:
    answer = management_document(url, path)
    entries = [entry for entry in answer if isinstance(entry, dict)] if isinstance(answer, list) else []
    return {
        str(entry.get(key)): (str(entry.get(state)), _words(entry.get("reason") or entry.get("error")))
        for entry in entries
    }


def _words(value: object) -> str:
    return "" if value in {None, ""} else str(value)[:300]


def _of_nobody(_node: NodeVariables, _url: str, _peers: Peers) -> list[str]:
    return []


_BROKERS: dict[str, Callable[[NodeVariables, str, Peers], list[str]]] = {
    "artemis": _of_artemis,
    "activemq": _of_activemq,
    "rabbitmq": _of_rabbitmq,
    "qpid-broker-j": _of_nobody,  # it opens none
}
