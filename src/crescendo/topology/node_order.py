"""What must another process know to start one node of a network?

One JSON document: the network, which node, and who is let in. It holds a password, so it travels through a pipe or a
private file. Starts nothing.
"""

import msgspec
from msgspec import Struct

from crescendo.model.errors import ConfigError
from crescendo.topology.generate import Network
from crescendo.topology.graph import Graph, GraphNode
from crescendo.topology.local_node import LocalNode


class NodeOrder(Struct, frozen=True):
    """One node of a network, as the process that starts it needs it."""

    network: Network
    node: str
    user: str
    password: str

    @property
    def graph_node(self) -> GraphNode:
        return self.network.graph.by_id()[self.node]

    @property
    def kind(self) -> LocalNode:
        """The kind of system that the node is."""
        return LocalNode(self.network, self.graph_node, self.user, self.password)

    def without_others(self) -> "NodeOrder":
        """The same without what was written for other nodes: of them, only the programs matter for its files."""
        topology, graph = self.network.topology, self.network.graph
        nodes = tuple(
            each if each.id == self.node else msgspec.structs.replace(each, sections={}) for each in graph.nodes
        )
        alone = msgspec.structs.replace(topology, graph=Graph(nodes, (), graph.directed), inventory=None)
        own = Network(alone, {self.node: self.network.variables[self.node]})
        return msgspec.structs.replace(self, network=own)

    def encoded(self) -> bytes:
        return msgspec.json.encode(self, order="deterministic")


def read_order(document: bytes, source: str) -> NodeOrder:
    """The order in a document; ConfigError if this version cannot read it."""
    try:
        order = msgspec.json.decode(document, type=NodeOrder)
    except msgspec.DecodeError as err:
        raise ConfigError(f"{source}: written by another version of Crescendo: {err}") from err
    if order.node not in order.network.variables:
        raise ConfigError(f"{source}: there is no node {order.node} in it")
    return order
