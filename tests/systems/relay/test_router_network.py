"""Networks of relays: messages arrive, take the cheapest live way, and are settled end to end."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import proton
import pytest
from proton.utils import BlockingConnection, SyncRequestResponse

from crescendo.inspectors.base import InspectionTarget
from crescendo.inspectors.kinds.qpid_dispatch import DispatchInspector
from crescendo.wire.amqp10.performatives import Modified, Released
from relay_client import RelayClient
from router_network import RouterNetwork, network, until

LINE = (("a", "b", 1), ("b", "c", 1))
REDUNDANT = (("a", "b", 1), ("b", "d", 1), ("a", "c", 5), ("c", "d", 5))


@contextmanager
def _client(running: RouterNetwork, name: str) -> Iterator[RelayClient]:
    client = RelayClient(running.ports[name])
    try:
        yield client
    finally:
        client.die()


def _bodies(count: int, start: int = 0) -> list[bytes]:
    return [f"message {number:06d}".encode() for number in range(start, start + count)]


def _pass(sender: RelayClient, out: int, receiver: RelayClient, bodies: list[bytes]) -> None:
    """Send, accept at the receiver, and see every message settled at the sender."""
    settled = len(sender.settled)
    expected = len(receiver.messages) + len(bodies)
    done = len(receiver.messages)
    for body in bodies:
        sender.send(out, body)
    receiver.until(lambda: len(receiver.messages) >= expected)
    for _, number, _ in receiver.messages[done:]:
        receiver.connection.settle(number, number)
    receiver.pump(0)
    sender.until(lambda: len(sender.settled) == settled + len(bodies))


def test_messages_cross_a_line_of_three_and_are_settled_end_to_end() -> None:
    with network(*LINE) as running, _client(running, "a") as sender, _client(running, "c") as receiver:
        receiver.receiver("orders", credit=1000)
        until(lambda: running.knows("a", "orders", {"c"}))
        out = sender.sender("orders")
        sender.send(out, *_bodies(10))
        receiver.until(lambda: len(receiver.messages) == 10)
        assert receiver.bodies() == _bodies(10)
        sender.pump(0.1)
        assert not sender.settled  # the receiver has not settled yet
        for _, number, _ in receiver.messages:
            receiver.connection.settle(number, number)
        receiver.pump(0)
        sender.until(lambda: len(sender.settled) == 10)


def test_what_the_receiver_releases_is_released_to_the_sender() -> None:
    with network(*LINE) as running, _client(running, "a") as sender, _client(running, "c") as receiver:
        receiver.receiver("orders", credit=10)
        until(lambda: running.knows("a", "orders", {"c"}))
        out = sender.sender("orders")
        sender.send(out, b"x" * 40)
        receiver.until(lambda: len(receiver.messages) == 1)
        number = receiver.messages[0][1]
        receiver.connection.settle(number, number, Released())
        receiver.pump(0)
        sender.until(lambda: sender.settled)
        assert running.routers["a"].server._router.tables.finished["released"] == 1


def test_a_sender_gets_no_credit_without_a_receiver_anywhere() -> None:
    with network(*LINE) as running, _client(running, "a") as sender, _client(running, "c") as receiver:
        out = sender.sender("orders")
        sender.pump(0.2)
        assert sender.connection.sendable(out) == 0
        receiver.receiver("orders", credit=1)
        sender.until(lambda: sender.connection.sendable(out) > 0)


def test_a_receiver_that_takes_nothing_stops_its_sender() -> None:
    """Credit reaches across the network: no more messages are in it than the windows of three routers."""
    with network(*LINE) as running, _client(running, "a") as sender, _client(running, "c") as receiver:
        receiver.receiver("orders", credit=0)
        until(lambda: running.knows("a", "orders", {"c"}))
        out = sender.sender("orders")
        sender.until(lambda: sender.connection.sendable(out) > 0)
        sent = 0
        while sent < 20_000:
            for _ in range(20):
                sender.pump(0.01)
            room = sender.connection.sendable(out)
            if room == 0:
                break
            sender.send(out, *_bodies(min(room, 500)))
            sent += min(room, 500)
        assert 0 < sent <= 2000


def test_the_cheapest_way_is_taken_and_the_spare_one_after_it_dies() -> None:
    with network(*REDUNDANT) as running, _client(running, "a") as sender, _client(running, "d") as receiver:
        receiver.receiver("orders", credit=10_000)
        until(lambda: running.knows("a", "orders", {"d"}))
        out = sender.sender("orders")
        _pass(sender, out, receiver, _bodies(50))
        assert running.routers["b"].server._router.tables.transit == 50
        assert running.routers["c"].server._router.tables.transit == 0
        running.stop("b")
        _pass(sender, out, receiver, _bodies(50, 50))
        assert running.routers["c"].server._router.tables.transit == 50
        assert receiver.bodies() == _bodies(100)
        running.start("b")  # and back, when it lives again
        until(lambda: running.routers["a"].state.routes()["d"].next_hop == "b")
        _pass(sender, out, receiver, _bodies(10, 100))
        assert running.routers["b"].server._router.tables.transit == 10


def test_messages_on_a_way_that_dies_are_routed_again() -> None:
    """They were sent over b and not settled when b died: nothing is lost, and the sender learns every outcome."""
    with network(*REDUNDANT) as running, _client(running, "a") as sender, _client(running, "d") as receiver:
        receiver.receiver("orders", credit=10_000)
        until(lambda: running.knows("a", "orders", {"d"}))
        out = sender.sender("orders")
        sender.send(out, *_bodies(200))
        receiver.until(lambda: len(receiver.messages) == 200)
        running.stop("b")
        receiver.until(lambda: len(receiver.messages) == 400)  # at least once: they come again over c
        for _, number, _ in receiver.messages:
            receiver.connection.settle(number, number)
        receiver.pump(0)
        sender.until(lambda: len(sender.settled) == 200)
        assert set(receiver.bodies()) == set(_bodies(200))


@pytest.mark.parametrize(
    ("distribution", "counts"), [("closest", {"a": 40, "c": 0}), ("multicast", {"a": 40, "c": 40})]
)
def test_closest_and_multicast(distribution: str, counts: dict[str, int]) -> None:
    addresses = [{"prefix": "orders", "distribution": distribution}]
    with (
        network(*LINE, address=addresses) as running,
        _client(running, "a") as near,
        _client(running, "c") as far,
        _client(running, "a") as sender,
    ):
        near.receiver("orders.1", settled=True, credit=1000)
        far.receiver("orders.1", settled=True, credit=1000)
        until(lambda: running.knows("a", "orders.1", {"c"}))
        sender.send(sender.sender("orders.1"), *_bodies(40))
        near.until(lambda: len(near.messages) == counts["a"])
        far.until(lambda: len(far.messages) == counts["c"])
        sender.until(lambda: len(sender.settled) == 40)


def test_balanced_addresses_use_receivers_everywhere() -> None:
    with (
        network(*LINE) as running,
        _client(running, "a") as near,
        _client(running, "c") as far,
        _client(running, "a") as sender,
    ):
        near.receiver("orders", credit=1000)
        far.receiver("orders", credit=1000)
        until(lambda: running.knows("a", "orders", {"c"}))
        both, handle, sent = (near, far), sender.sender("orders"), 0

        def arrived() -> int:
            far.pump(0)
            return sum(len(client.messages) for client in both)

        # The way to the far one is attached on first use, so the first messages may all go to the near one.
        while sent < 800 and not all(len(client.messages) > 50 for client in both):
            sender.send(handle, *_bodies(400))
            sent += 400
            near.until(lambda: arrived() == sent)  # noqa: B023 - it is called before sent changes
        assert all(len(client.messages) > 50 for client in both)


def test_a_foreign_client_keeps_every_section_of_its_messages() -> None:
    with network(*LINE) as running:
        first, last = (
            BlockingConnection(f"amqp://127.0.0.1:{running.ports[name]}", timeout=10, allowed_mechs="ANONYMOUS")
            for name in "ac"
        )
        try:
            receiver = last.create_receiver("orders", credit=10)
            until(lambda: running.knows("a", "orders", {"c"}))
            sender = first.create_sender("orders")
            message = proton.Message(id="7", subject="s", properties={"colour": "red"}, body={"a": [1, "b"]})
            with ThreadPoolExecutor(1) as pool:
                sent = pool.submit(sender.send, message)  # returns when the receiver has accepted it
                found = receiver.receive(10)
                receiver.accept()
                receiver.close()  # writes the outcome, which would otherwise wait for the next call
                sent.result()
            assert (found.id, found.subject, found.properties, found.body) == (
                "7",
                "s",
                {"colour": "red"},
                {"a": [1, "b"]},
            )
        finally:
            first.close()
            last.close()


def test_a_foreign_client_reads_the_counters_of_links_and_memory() -> None:
    """python-qpid-proton queries the management node, as tools of qpid-dispatch do."""
    with network(*LINE) as running, _client(running, "a") as sender, _client(running, "c") as receiver:
        receiver.receiver("orders", credit=100)
        until(lambda: running.knows("a", "orders", {"c"}))
        sender.send(sender.sender("orders"), *_bodies(5))
        receiver.until(lambda: len(receiver.messages) == 5)
        numbers = [number for _, number, _ in receiver.messages]
        for number, outcome in zip(numbers, (None, None, Released(), Modified()), strict=False):
            receiver.connection.settle(number, number, outcome)
        receiver.pump(0)
        sender.until(lambda: len(sender.settled) == 4)
        connection = BlockingConnection(f"amqp://127.0.0.1:{running.ports['c']}", timeout=20)
        try:
            requests = SyncRequestResponse(connection, "$management")
            links, [router] = _queried(requests, "router.link"), _queried(requests, "router")
        finally:
            connection.close()
    [given] = [each for each in links if each["linkDir"] == "out" and each["owningAddr"].endswith("orders")]
    counted = ("deliveryCount", "acceptedCount", "releasedCount", "modifiedCount", "unsettledCount")
    assert [given[name] for name in counted] == [5, 2, 1, 1, 1]
    assert router["memoryUsage"] > 1e6


def _queried(requests: SyncRequestResponse, kind: str) -> list[dict[str, Any]]:
    properties = {"operation": "QUERY", "type": "org.amqp.management", "entityType": f"org.apache.qpid.dispatch.{kind}"}
    answer = requests.call(proton.Message(properties={**properties, "name": "self"}, body={"attributeNames": []}))
    assert answer.properties["statusCode"] == 200
    return [dict(zip(answer.body["attributeNames"], each, strict=True)) for each in answer.body["results"]]


def test_our_inspector_reads_its_counters() -> None:
    with network(*LINE) as running, _client(running, "a") as sender, _client(running, "c") as receiver:
        receiver.receiver("orders", credit=100)
        until(lambda: running.knows("a", "orders", {"c"}))
        _pass(sender, sender.sender("orders"), receiver, _bodies(20))
        inspector = DispatchInspector(InspectionTarget({"amqp": f"amqp://127.0.0.1:{running.ports['b']}"}))
        try:
            found = {(reading.entity, reading.metric): reading.value for reading in inspector.inspect().readings}
        finally:
            inspector.close()
    assert found["router/1", "acceptedDeliveries"] == found["router/1", "deliveriesTransit"] == 20
    assert sorted(value for (_, metric), value in found.items() if metric == "acceptedCount")[-2:] == [20, 20]
    assert found["router/1", "memoryUsage"] > 1e6
    costs = {entity: value for (entity, metric), value in found.items() if metric == "cost"}
    assert {name: costs[f"router.node/{name}"] for name in "abc"} == {"a": 1, "b": 0, "c": 1}
