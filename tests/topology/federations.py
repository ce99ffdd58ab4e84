"""The network with every kind of link that we know between brokers, each with an address of its own.

The brokers of the whole suite are those that only accept links. Those that open links are started here, from the files
that are rendered for them.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pika

from crescendo.client.amqp10 import QUEUE
from crescendo.client.blocking_session import BlockingSession
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.systems.base import AMQP, CORE, MANAGEMENT, OPENWIRE
from crescendo.systems.instance import START_TIMEOUT_S, RunningInstance, start
from crescendo.topology.generate import Network
from crescendo.topology.graph import BROKER, ROUTER, Graph
from crescendo.topology.link_fidelity import LinkFidelity
from crescendo.topology.link_proxy import LinkProxy, proxied_links
from crescendo.topology.link_status import unconnected_links
from crescendo.topology.local_network import USER, await_links, local_network, stop_together
from crescendo.topology.local_node import LocalNode
from crescendo.topology.route_probe import probe_route, route_between
from crescendo.topology.topology_file import load_topology
from crescendo.wire.amqp10.links import RECEIVER
from crescendo.wire.amqp10.performatives import Source, Target

TOPOLOGIES = Path(__file__).parents[2] / "experiments/federation/topologies"
EVERY_LINK = TOPOLOGIES / "every-link.yml"
LINKS_TIMEOUT_S = 120.0
"""On busy cores a shovel or a bridge that came too early tries again, some of them only after seconds."""

_PORTS = {"normal": AMQP, "openwire": OPENWIRE, "management": MANAGEMENT}


class Federations(NamedTuple):
    """The running network, and the proxies on its links."""

    network: Network
    running: Mapping[str, RunningInstance]
    proxies: list[LinkProxy]

    @property
    def openers(self) -> set[str]:
        """The nodes that open links."""
        return {name for name, values in self.network.variables.items() if values.get("connector")}

    def unconnected(self) -> dict[str, list[str]]:
        """The links that are not connected, by the node that opens them, in its words."""
        nodes = self.network.graph.by_id()
        found = {
            name: unconnected_links(self.network, nodes[name], self.running[name].endpoints) for name in self.openers
        }
        return {name: links for name, links in found.items() if links}


@contextlib.contextmanager
def running_federations(folder: Path, shared: Mapping[str, RunningInstance]) -> Iterator[Federations]:
    """Start the nodes of the network that are not shared, and join all of them."""
    with contextlib.ExitStack() as stack:
        plan = joined_to(local_network(load_topology(EVERY_LINK)), shared)
        network, proxies = stack.enter_context(proxied_links(plan))
        _declare(stack, network, shared)
        [password] = {str(urlsplit(instance.endpoints[AMQP]).password) for instance in shared.values()}
        running, own = dict(shared), list[RunningInstance]()
        stack.callback(stop_together, own)
        for wanted in (BROKER, ROUTER):
            fresh = [node for node in network.graph.nodes if node.type == wanted and node.id not in shared]
            for node in fresh:
                kind = LocalNode(network, node, USER, password)
                running[node.id] = start(
                    kind,
                    kind.own_settings(),
                    directory=folder / node.id,
                    ports=kind.wanted_ports,
                    on_fork=die_with_parent(),
                    waits=False,
                )
                own.append(running[node.id])
            for node in fresh:
                running[node.id].await_service(START_TIMEOUT_S)
        for node in network.graph.nodes:
            await_links(network, node, running[node.id], LINKS_TIMEOUT_S)
        yield Federations(network, running, list({proxy for of_link in proxies.values() for proxy in of_link}))


def joined_to(network: Network, shared: Mapping[str, RunningInstance]) -> Network:
    """The plan with the ports that the shared brokers have: one for each protocol."""
    ports: dict[int, int] = {}
    for name, instance in shared.items():
        for entry in network.variables[name]["listener"]:
            ports[entry["port"]] = entry["port"] = instance.ports[_PORTS[entry["role"]]]
    for values in network.variables.values():
        for entry in values.get("connector", ()):
            to_shared = entry["port"] in ports
            entry["port"] = ports.get(entry["port"], entry["port"])
            if to_shared and entry.get("via") == "bridge":
                entry["port"] = shared[entry["name"]].ports[CORE]
    return network


def _declare(stack: contextlib.ExitStack, network: Network, shared: Mapping[str, RunningInstance]) -> None:
    """The queues of the shared brokers. A core bridge waits for its queue, and RabbitMQ does not make any by itself."""
    for name, instance in shared.items():
        queues = [str(entry["name"]) for entry in network.variables[name].get("queue", ())]
        url = instance.endpoints[AMQP]
        if instance.facts["kind"] == "rabbitmq":
            with pika.BlockingConnection(pika.URLParameters(url)) as connection:
                for queue in queues:
                    connection.channel().queue_declare(queue, durable=True)
                    stack.callback(_delete, url, queue)
        else:
            _attach_once(url, queues)


def _attach_once(url: str, queues: list[str]) -> None:
    """Artemis and ActiveMQ make a queue for its first receiver, and keep it."""
    deadline_s = time.monotonic() + 30
    session = BlockingSession(url, deadline_s)
    try:
        for queue in queues:
            session.attach(RECEIVER, Source(address=queue, capabilities=[QUEUE]), Target(), deadline_s)
    finally:
        session.close()


def _delete(url: str, queue: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        connection.channel().queue_delete(queue)


def probe_all(
    graph: Graph,
    running: Mapping[str, RunningInstance],
    ways: Mapping[str, tuple[str, str]],
    messages: int,
    *,
    at_once: int,
    kinds: Mapping[str, tuple[str, ...]] | None = None,
    **more: Any,
) -> dict[str, LinkFidelity | str]:
    """What each federation did to messages; the words of an error, where there was one."""

    def probed(name: str) -> LinkFidelity | str:
        of_kind = {"kinds": kinds[name]} if kinds and name in kinds else {}
        try:
            return probe_route(route_between(graph, running, ways[name], name), messages, **of_kind, **more)
        except Exception as err:  # one that fails must not hide the others
            return f"{type(err).__name__}: {err}"

    with ThreadPoolExecutor(at_once) as pool:
        return dict(zip(ways, pool.map(probed, ways), strict=True))


class Scissors:
    """Cuts every link once, when some messages of every federation were sent, and restores them a moment later."""

    def __init__(self, proxies: Iterable[LinkProxy], federations: int, cut_s: float) -> None:
        self._proxies, self._cut_s = list(proxies), cut_s
        self._waiting = threading.Barrier(federations, action=self._cut)
        self._timer: threading.Timer | None = None

    def on_sent(self, after: int) -> Callable[[int], None]:
        def on_sent(count: int) -> None:
            if count == after:
                self._waiting.wait(60)

        return on_sent

    def _cut(self) -> None:
        for proxy in self._proxies:
            proxy.cut()
        self._timer = threading.Timer(self._cut_s, self._restore)
        self._timer.start()

    def _restore(self) -> None:
        for proxy in self._proxies:
            proxy.restore()

    def join(self) -> None:
        if self._timer is not None:
            self._timer.join()
