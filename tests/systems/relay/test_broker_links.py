"""Brokers behind routers: the loopback relay is the broker, and a network of routers reaches its queues."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from crescendo.model.errors import ConfigError
from crescendo.net.sockets import listen
from crescendo.systems.relay.router_config import router_config
from crescendo.systems.relay.server import Relay
from relay_client import RelayClient
from router_network import RouterNetwork, until

BODIES = [b"message %03d" % number for number in range(100)]


class RunningBroker:
    """The loopback relay in a thread."""

    def __init__(self) -> None:
        listener = listen()
        self.port = listener.getsockname()[1]
        self._relay = Relay(listener)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        try:
            self._relay.serve()
        finally:
            self._relay.close()

    def stop(self) -> None:
        self._relay.stopping = True
        self._thread.join(10)


@contextmanager
def network_with_broker(**sections: Any) -> Iterator[tuple[RouterNetwork, RunningBroker]]:
    """Routers a and b, and a broker behind b."""
    broker, running = RunningBroker(), RouterNetwork([("a", "b", 1)])
    document = running.documents["b"]
    document["connector"].append({"name": "broker", "port": broker.port, "role": "route-container"})
    document.update(sections)
    try:
        running.start()
        yield running, broker
    finally:
        running.stop()
        broker.stop()


def routes(*directions: str, prefix: str = "orders") -> list[dict[str, str]]:
    return [{"prefix": prefix, "connection": "broker", "direction": way} for way in directions]


def knows_link_routes(running: RouterNetwork, router: str) -> bool:
    state = running.routers[router].state
    return any(name.startswith("_link/") for known in state.advertisements for name in known.addresses)


def test_a_routed_link_ends_at_the_broker_two_routers_away() -> None:
    with network_with_broker(linkRoute=routes("in", "out")) as (running, broker):
        until(lambda: knows_link_routes(running, "a"))
        sender = RelayClient(running.ports["a"])
        handle = sender.sender("orders.new")
        sender.send(handle, *BODIES)
        sender.until(lambda: len(sender.settled) == len(BODIES))  # by the broker: nobody receives yet
        direct = RelayClient(broker.port)
        direct.receiver("orders.new", settled=True, credit=40)
        direct.until(lambda: len(direct.messages) == 40)
        receiver = RelayClient(running.ports["a"])
        receiver.receiver("orders.new", settled=True, credit=30)
        receiver.until(lambda: len(receiver.messages) == 30)
        receiver.quiet()
        assert direct.bodies() + receiver.bodies() == BODIES[:70]  # its credit, and no more, reached the broker
        for client in (sender, direct, receiver):
            client.die()


def test_a_message_that_a_routed_receiver_did_not_settle_stays_at_the_broker() -> None:
    with network_with_broker(linkRoute=routes("in", "out")) as (running, broker):
        until(lambda: knows_link_routes(running, "a"))
        sender, receiver = RelayClient(broker.port), RelayClient(running.ports["a"])
        sender.send(sender.sender("orders"), *BODIES[:10])
        receiver.receiver("orders", credit=10)
        receiver.until(lambda: len(receiver.messages) == 10)
        receiver.die()
        again = RelayClient(broker.port)
        again.receiver("orders", settled=True, credit=20)
        again.until(lambda: len(again.messages) == 10)
        assert sorted(again.bodies()) == BODIES[:10]
        for client in (sender, again):
            client.die()


def test_a_routed_link_ends_with_its_broker() -> None:
    with network_with_broker(linkRoute=routes("in")) as (running, broker):
        until(lambda: knows_link_routes(running, "a"))
        sender = RelayClient(running.ports["a"])
        sender.sender("orders")
        broker.stop()
        sender.until(lambda: sender.detach_reason() is not None)
        until(lambda: not knows_link_routes(running, "a"))
        sender.die()


def test_messages_to_a_waypoint_pass_through_the_queue_of_the_broker() -> None:
    links = [{"address": "jobs", "connection": "broker", "direction": way} for way in ("in", "out")]
    waypoint = [{"prefix": "jobs", "waypoint": "yes"}]
    with network_with_broker(autoLink=links, address=waypoint) as (running, _broker):
        sender, receiver = RelayClient(running.ports["b"]), RelayClient(running.ports["b"])
        handle = sender.sender("jobs")
        sender.send(handle, *BODIES)
        sender.until(lambda: len(sender.settled) == len(BODIES))  # stored, although nobody receives
        receiver.receiver("jobs", settled=True, credit=200)
        receiver.until(lambda: len(receiver.messages) == len(BODIES))
        assert receiver.bodies() == BODIES
        for client in (sender, receiver):
            client.die()


def test_a_route_to_a_broker_that_has_no_connector_is_refused() -> None:
    document = {"router": [{"id": "a"}], "linkRoute": routes("in")}
    with pytest.raises(ConfigError, match="no connector with the role route-container is called 'broker'"):
        router_config(document, "test")
