"""How do RabbitMQ nodes become a cluster, and when does it keep a message on most of them?

Each node is given the names of all, and joins those that it finds. When all are there, quorum queues are declared at
the first node, which becomes their leader; a queue is ready when every node is a member of it and online.
"""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import httpx

from crescendo.model.errors import PeerError

_TIMEOUT_S = 5.0
_QUORUM = {"durable": True, "arguments": {"x-queue-type": "quorum"}}


def cluster_formation(members: Sequence[str]) -> str:
    """Lines of the configuration of each node; none for a node that is alone."""
    if len(members) == 1:
        return ""
    lines = [f"cluster_formation.classic_config.nodes.{at} = {name}" for at, name in enumerate(members, 1)]
    return "\n".join(["cluster_formation.peer_discovery_backend = classic_config", *lines]) + "\n"


def declare_quorum_queues(management_url: str, queues: Sequence[str], nodes: int) -> None:
    """Return when every queue has a member online on each node, else raise PeerError."""
    running = [node for node in _answer(management_url, "GET", "/api/nodes") if node.get("running")]
    if len(running) < nodes:
        raise PeerError(f"{len(running)} of {nodes} nodes are in the cluster")
    for name in queues:
        path = f"/api/queues/%2F/{quote(name, safe='')}"
        _answer(management_url, "PUT", path, _QUORUM)
        online = _answer(management_url, "GET", path).get("online", [])
        if len(online) < nodes:
            raise PeerError(f"queue {name}: {len(online)} of {nodes} members are online")


def _answer(management_url: str, method: str, path: str, body: Any = None) -> Any:
    try:
        answer = httpx.request(method, management_url + path, json=body, timeout=_TIMEOUT_S, trust_env=False)
        answer.raise_for_status()
        return answer.json() if answer.content else None
    except (httpx.HTTPError, ValueError) as err:
        raise PeerError(f"rabbitmq does not answer {method} {path}: {type(err).__name__}") from err
