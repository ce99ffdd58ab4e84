"""Which files does every node of a network need?

Pure: variables in, texts out, one directory per node. Writing them, and giving them to programs, is the caller's part.
"""

from collections.abc import Mapping

from crescendo.model.errors import ConfigError
from crescendo.topology.generate import Network
from crescendo.topology.graph import BROKER, CLIENT, ROUTER, GraphNode
from crescendo.topology.rendering.access import Access, NodeVariables
from crescendo.topology.rendering.activemq import activemq_files
from crescendo.topology.rendering.artemis import artemis_files
from crescendo.topology.rendering.qpid_broker_j import broker_j_files
from crescendo.topology.rendering.rabbitmq import check_password, rabbitmq_files
from crescendo.topology.rendering.relay import relay_files
from crescendo.topology.rendering.router_schema import RouterSchema
from crescendo.topology.rendering.routers import FILES, router_files

_BROKERS = {
    "artemis": artemis_files,
    "activemq": activemq_files,
    "rabbitmq": rabbitmq_files,
    "qpid-broker-j": broker_j_files,
}
DEFAULT_ROUTER = "qpid-dispatch"


def render(network: Network, access: Access, schema: RouterSchema | None = None) -> dict[str, str]:
    """All files of the network, by path: the id of the node, then the file's path in its directory."""
    files = {}
    if any(node.program == "rabbitmq" for node in network.graph.nodes):
        check_password(access)
    for node in network.graph.nodes:
        if node.type != CLIENT:
            for path, text in node_files(network, node, access, schema).items():
                files[f"{node.id}/{path}"] = text
    return files


def node_files(
    network: Network, node: GraphNode, access: Access, schema: RouterSchema | None = None
) -> Mapping[str, str]:
    """The files of one node."""
    variables = network.variables[node.id]
    if node.type == BROKER:
        peers = {other.id: other.program for other in network.graph.nodes}
        return _BROKERS[node.program](NodeVariables(node.id, variables), peers, access)
    program = node.program or DEFAULT_ROUTER
    if program in FILES:
        return router_files(program, node.id, variables, access, schema)
    return relay_files(node.id, variables, access)


def routers_of(network: Network) -> set[str]:
    """The router programs of the network whose configuration follows a schema."""
    return {node.program or DEFAULT_ROUTER for node in network.graph.nodes if node.type == ROUTER} & set(FILES)


def needs_user(network: Network) -> bool:
    """Whether a broker is in the network, which must know whom to let in."""
    return any(node.type == BROKER for node in network.graph.nodes)


def access_from(network: Network, user: str | None, password: str | None, *, anonymous: bool) -> Access:
    """The user of the network, as the command line gives it."""
    if anonymous and user:
        raise ConfigError("--anonymous accepts every client, so leave --user out")
    if user and password is None:
        raise ConfigError("--user needs --password-file, a file that contains the password")
    if not user and not anonymous and needs_user(network):
        raise ConfigError(
            "the brokers need a user: give --user and --password-file, "
            "or --anonymous in a network that only you can reach"
        )
    return Access(user or "", password or "")
