"""Do our Core channels carry messages through a real broker, and to clients of other protocols?"""

import os
import secrets
import signal
import time
from contextlib import ExitStack, closing
from typing import Any

import pytest
from proton import Message
from proton.utils import BlockingConnection

from blocking_session import CONSUMER
from core_peers import CoreSession, core_session
from crescendo.load.engine.graceful_close import close_gracefully
from crescendo.load.protocols import artemis_core as driver
from crescendo.load.protocols.artemis_core import ArtemisCoreReceiver, ArtemisCoreSender
from crescendo.load.protocols.registry import driver_of
from crescendo.model.payload import PayloadSize
from crescendo.model.workload import Group, Settle
from crescendo.systems.instance import RunningInstance
from crescendo.wire.artemis_core.packets import RoutingType
from crescendo.wire.artemis_core.properties import decode_properties
from engine_threads import until
from pumping import pumped, random_payloads, ready, receive_all, refusal, send_all

LARGE = 300_000
CORE = "core"


def url_of(broker: RunningInstance) -> str:
    return broker.endpoints[CORE]


def unique(kind: str) -> str:
    return f"{kind}-{secrets.token_hex(6)}"


def group(size: int = 256, *, options: str = "", topic: bool = False, **fields: Any) -> Group:
    address = f"{'topic' if topic else 'queue'}://{unique('core')}{options}"
    return Group(address=address, protocol=CORE, size=PayloadSize.fixed(size), **fields)


# -- our channels, both ends -----------------------------------------------------------------------------------------


def test_the_broker_sends_no_more_than_the_prefetch(artemis: RunningInstance) -> None:
    some = group(64, options="?prefetch=7")
    with (
        closing(ready(ArtemisCoreReceiver(url_of(artemis), some))) as receiver,
        closing(ready(ArtemisCoreSender(url_of(artemis), some))) as sender,
    ):
        send_all(sender, random_payloads(60, 64), settled=False)
        receiver.begin()
        most = received = 0
        while received < 60:
            found = 0
            until_s = time.monotonic() + 0.05
            while time.monotonic() < until_s:  # without settling
                receiver.flush()
                found += sum(len(one.payloads) for one in receiver.pump())
            most, received = max(most, found), received + found
            receiver.settle()
    assert most == 7


def test_a_durable_subscription_made_over_openwire_is_found_over_core(artemis: RunningInstance) -> None:
    """It was made over OpenWire, and Core finds what it kept."""
    name, topic = unique("kept"), unique("shared")
    ends = {
        protocol: Group(address=f"topic://{topic}?subscription={name}", protocol=protocol, size=PayloadSize.fixed(40))
        for protocol in ("openwire", CORE)
    }
    first = ready(driver_of("openwire", "receiver")(artemis.endpoints["openwire"], ends["openwire"]))
    first.begin()
    close_gracefully([first])  # only one connection may hold it
    with closing(ready(ArtemisCoreSender(url_of(artemis), ends[CORE]))) as sender:
        send_all(sender, [b"m" * 40], settled=False)
    with closing(ready(ArtemisCoreReceiver(url_of(artemis), ends[CORE]))) as receiver:
        receiver.begin()
        assert receive_all(receiver, 1) == [b"m" * 40]


# -- the other end a foreign client ----------------------------------------------------------------------------------


def test_proton_and_core_understand_each_other(artemis: RunningInstance) -> None:
    """Large messages and texts, which the broker converts; what Core sends has its headers and properties."""
    queue = unique("proton")
    foreign = BlockingConnection(artemis.endpoints["amqp"], timeout=30, allowed_mechs="PLAIN")
    try:
        sender, large = foreign.create_sender(queue), os.urandom(LARGE)
        for body in (b"short", large, "a text: \u00fc"):
            sender.send(Message(body=body, durable=True, inferred=True))
        with core_session(url_of(artemis), unique("c")) as session:
            session.consume(queue)
            assert session.await_bodies(3) == [b"short", large, "a text: \u00fc".encode()]
            session.acknowledge(2)
        receiver = foreign.create_receiver(queue)
        with core_session(url_of(artemis), unique("c")) as session:
            options = {"durable": True, "priority": 7, "properties": {"colour": "red", "count": 3, "half": 0.5}}
            session.send(queue, b"to proton", **options)
        found = receiver.receive()
        receiver.accept()
        assert bytes(found.body) == b"to proton"
        assert (found.durable, found.priority) == (True, 7)
        assert {key: found.properties[key] for key in options["properties"]} == options["properties"]
    finally:
        foreign.close()


# -- what the channels do not use ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [130, 131, 132, 133, 134, 135])
def test_older_versions_are_accepted_and_understood(artemis: RunningInstance, version: int) -> None:
    queue = unique("old")
    with core_session(url_of(artemis), unique("c"), version=version) as session:
        session.create(queue)
        session.send(queue, b"old", properties={"a": 1}, durable=True)
        session.consume(queue, selector="a = 1")
        assert session.await_bodies(1) == [b"old"]
        assert decode_properties(session.messages[0].properties)["a"] == 1
        session.acknowledge(0)


def test_a_version_that_the_broker_does_not_know_is_lowered(artemis: RunningInstance) -> None:
    with core_session(url_of(artemis), unique("c"), version=150) as session:
        assert session.connection.version < 150
        session.create(unique("newer"))


def test_transactions_deliver_committed_messages_only(artemis: RunningInstance) -> None:
    queue = unique("transacted")
    with core_session(url_of(artemis), unique("c"), transacted=True) as session:
        session.create(queue)
        for body, end in ((b"rolled back", "rollback"), (b"committed", "commit")):
            session.send(queue, body)
            session.done(getattr(session.connection, end)())
        session.consume(queue)
        assert session.await_bodies(1) == [b"committed"]
        session.acknowledge(0)
        session.done(session.connection.rollback())
        assert session.await_bodies(2) == [b"committed"] * 2, "a rolled-back acknowledgement delivers it again"
        assert session.redelivered == [False, True]
        session.acknowledge(1)
        session.done(session.connection.commit())
    assert left_in(artemis, queue) == []


def left_in(broker: RunningInstance, queue: str) -> list[tuple[bytes, bool]]:
    """What is still in the queue, and whether it is marked as redelivered. A last message proves that this is all."""
    with core_session(url_of(broker), unique("c")) as session:
        session.send(queue, b"last")
        session.consume(queue)
        while b"last" not in session.bodies:
            session.step()
        session.acknowledge(len(session.ids) - 1)
        return list(zip(session.bodies, session.redelivered, strict=True))[:-1]


def test_what_is_not_acknowledged_comes_again_and_is_marked(artemis: RunningInstance) -> None:
    """Acknowledged are all up to the second message, and the fourth alone. The connection is lost, not closed."""
    queue = unique("again")
    with closing(CoreSession(url_of(artemis), unique("c")).connect()) as session:
        session.create(queue)
        for number in range(5):
            session.send(queue, b"%d" % number)
        session.consume(queue)
        session.await_bodies(5)
        session.acknowledge(1)
        session.acknowledge(3, individual=True)
    assert left_in(artemis, queue) == [(b"2", True), (b"4", True)]


def test_a_durable_subscription_can_be_deleted(artemis: RunningInstance) -> None:
    topic, name = unique("topic"), unique("mine")
    subscription = {"address": topic, "routing_type": RoutingType.MULTICAST}
    with core_session(url_of(artemis), unique("c")) as session:
        session.create(name, **subscription)
        session.send(topic, b"kept", routing_type=RoutingType.MULTICAST)
        assert session.done(session.connection.query_queue(name)).messages == 1
        session.done(session.connection.delete_queue(name))
        assert not session.done(session.connection.query_queue(name)).exists
        session.send(topic, b"for nobody", routing_type=RoutingType.MULTICAST)
        session.create(name, **subscription)
        session.send(topic, b"later", routing_type=RoutingType.MULTICAST)
        assert session.done(session.connection.query_address(topic)).queues == (name,)
        session.consume(name)
        assert session.await_bodies(1) == [b"later"]
        session.acknowledge(0)
        session.done(session.connection.remove_consumer(CONSUMER))
        session.done(session.connection.delete_queue(name))


def test_a_queue_and_a_topic_of_the_same_name_are_apart(artemis: RunningInstance) -> None:
    name, subscription = unique("both"), unique("subscription")
    with core_session(url_of(artemis), unique("c")) as session:
        session.create(name)
        session.create(subscription, address=name, routing_type=RoutingType.MULTICAST)
        session.send(name, b"anycast", routing_type=RoutingType.ANYCAST)
        session.send(name, b"multicast", routing_type=RoutingType.MULTICAST)
    for queue, body in ((name, b"anycast"), (subscription, b"multicast")):
        with core_session(url_of(artemis), unique("c")) as session:
            session.consume(queue)
            session.await_bodies(1)
            session.acknowledge(0)
            assert session.bodies == [body]


def test_messages_expire_on_the_broker(artemis: RunningInstance) -> None:
    queue = unique("expiring")
    with core_session(url_of(artemis), unique("c")) as session:
        session.create(queue)
        session.send(queue, b"late", expiration_ms=int(time.time() * 1000) + 300)
        session.send(queue, b"kept", expiration_ms=int(time.time() * 1000) + 60_000)
    time.sleep(0.4)
    assert [body for body, _ in left_in(artemis, queue)] == [b"kept"]


# -- refusals and silence --------------------------------------------------------------------------------------------


def test_a_subscription_with_another_selector_is_not_used(artemis: RunningInstance) -> None:
    topic = f"topic://{unique('topic')}?subscription={unique('kept')}"
    with closing(ready(ArtemisCoreReceiver(url_of(artemis), Group(address=topic, protocol=CORE)))):
        pass
    reason = refusal(ArtemisCoreReceiver(url_of(artemis), Group(address=f"{topic}&selector=a=1", protocol=CORE)))
    assert "exists with another topic or selector" in reason


def test_a_paused_broker_is_noticed_within_its_pings(artemis: RunningInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then both connections stay: an idle one, and one whose messages the broker does not answer."""
    monkeypatch.setattr(driver, "TTL_MS", 3000)
    idle, busy = group(), group(settle=Settle.AT_MOST_ONCE)
    with ExitStack() as stack:
        senders = [stack.enter_context(closing(ready(ArtemisCoreSender(url_of(artemis), one)))) for one in (idle, busy)]
        quiet_until_s = time.monotonic() + 5
        while time.monotonic() < quiet_until_s:
            senders[1].send(0, 1)
            for sender in senders:
                pumped(sender)
            time.sleep(0.01)
        try:
            os.kill(artemis.pid, signal.SIGSTOP)
            until(lambda: all((s.pump(), s.keep_alive(time.monotonic_ns()), s.closed is not None)[-1] for s in senders))
        finally:
            os.kill(artemis.pid, signal.SIGCONT)
    assert [("has been silent" in str(sender.closed)) for sender in senders] == [True, True]
