"""Do our OpenWire channels carry messages through real brokers, and interoperate with ActiveMQ's own client?"""

import os
import re
import secrets
import signal
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blocking_session import CONSUMER
from crescendo.load.protocols import openwire as driver
from crescendo.load.protocols.openwire import OpenWireReceiver, OpenWireSender
from crescendo.model.payload import PayloadSize
from crescendo.model.workload import Group
from crescendo.systems.instance import RunningInstance
from crescendo.wire.openwire.identifiers import QueueDestination, TopicDestination
from crescendo.wire.openwire.messages import AckType
from engine_threads import until
from openwire_peers import OpenWireSession, openwire_session, run_activemq_client
from pumping import pumped, ready, receive_all, send_all

pytestmark = pytest.mark.shares("activemq", "artemis")

with_a_jvm = pytest.mark.parametrize("kind", ["activemq", pytest.param("artemis", marks=pytest.mark.soak)])


@pytest.fixture(scope="module", params=["activemq", "artemis"])
def broker(request: pytest.FixtureRequest) -> RunningInstance:
    found: RunningInstance = request.getfixturevalue(request.param)
    return found


def url_of(broker: RunningInstance) -> str:
    return broker.endpoints["openwire"]


def unique(kind: str) -> str:
    return f"{kind}-{secrets.token_hex(6)}"


def group(size: int = 256, *, options: str = "", topic: bool = False, **fields: Any) -> Group:
    address = f"{'topic' if topic else 'queue'}://{unique('openwire')}{options}"
    return Group(address=address, protocol="openwire", size=PayloadSize.fixed(size), **fields)


# -- one end ActiveMQ's own client -----------------------------------------------------------------------------------


@pytest.mark.soak  # the suite has the same with 5,000 messages, see test_jms_clients
@with_a_jvm
def test_activemqs_client_receives_what_we_send(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    broker: RunningInstance = request.getfixturevalue(kind)
    some = group(40, options="?priority=9&ttl=60s", properties={"colour": "red"})
    with closing(OpenWireSender(url_of(broker), some)) as sender:
        send_all(sender, [f"{number:040d}".encode() for number in range(30)], settled=False)
    options = ("--messageCount", "30", "--bytesAsText", "true")
    printed = run_activemq_client("consumer", broker, some.destination, *options, directory=tmp_path)
    assert re.findall(r"BytesMessage as text string: (\d+)", printed) == [f"{number:040d}" for number in range(30)]


@with_a_jvm
def test_we_receive_what_activemqs_client_sends(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Texts, in its own choice of encoding."""
    broker: RunningInstance = request.getfixturevalue(kind)
    some = group(64)
    options = ("--messageCount", "30", "--message", "to-whom-it-may-concern")
    with closing(ready(OpenWireReceiver(url_of(broker), some))) as receiver:
        receiver.begin()
        run_activemq_client("producer", broker, some.destination, *options, directory=tmp_path)
        assert receive_all(receiver, 30) == [b"to-whom-it-may-concern"] * 30


# -- what the channels do not use ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 9, 10, 11])
def test_older_versions_are_negotiated_and_understood(broker: RunningInstance, version: int) -> None:
    queue = QueueDestination(unique("old"))
    with openwire_session(url_of(broker), unique("c"), version=version) as session:
        assert session.connection.version == version
        session.send(queue, b"old", properties={"a": 1}, persistent=True)
        session.consume(queue, selector="a = 1")
        assert session.await_bodies(1) == [b"old"]
        session.acknowledge(0, 0)


def test_transactions_deliver_committed_messages_only(broker: RunningInstance) -> None:
    queue = QueueDestination(unique("transacted"))
    with openwire_session(url_of(broker), unique("c")) as session:
        for number, (body, end) in enumerate(((b"rolled back", "rollback"), (b"committed", "commit"))):
            session.done(session.connection.begin(number))
            session.send(queue, body, transaction=number)
            session.done(getattr(session.connection, end)(number))
        session.consume(queue)
        assert session.await_bodies(1) == [b"committed"]
        session.done(session.connection.begin(7))
        session.acknowledge(0, 0, transaction=7)
        session.done(session.connection.commit(7))
    assert left_in(broker, queue) == []


def left_in(broker: RunningInstance, queue: QueueDestination) -> list[tuple[bytes, bool]]:
    """What is still in the queue, and whether it is marked as redelivered. A last message proves that this is all."""
    with openwire_session(url_of(broker), unique("c")) as session:
        session.send(queue, b"last")
        session.consume(queue)
        while b"last" not in session.bodies:
            session.step()
        session.acknowledge(0, len(session.ids) - 1)
        return list(zip(session.bodies, session.redelivered, strict=True))[:-1]


def test_what_is_not_acknowledged_comes_again_and_is_marked(broker: RunningInstance) -> None:
    queue = QueueDestination(unique("again"))
    with openwire_session(url_of(broker), unique("c")) as session:
        for number in range(5):
            session.send(queue, b"%d" % number)
        session.consume(queue)
        session.await_bodies(5)
        session.acknowledge(0, 1)
        individual = session.connection.acknowledge(
            CONSUMER, session.destination, np.frombuffer(session.ids[3], np.uint8).reshape(1, -1),
            ack_type=AckType.INDIVIDUAL, answered=True,
        )  # fmt: skip
        session.done(individual)
        sequence = int.from_bytes(session.ids[4][-8:], "big")
        session.done(session.connection.remove_consumer(CONSUMER, last_delivered=sequence))
    assert left_in(broker, queue) == [(b"2", True), (b"4", True)]


def test_a_poisoned_message_goes_to_the_dead_letters(broker: RunningInstance) -> None:
    queue = QueueDestination(unique("poison"))
    dead = QueueDestination({"activemq": "ActiveMQ.DLQ", "artemis": "DLQ"}[broker.facts["kind"]])
    with openwire_session(url_of(broker), unique("c")) as session:
        session.send(queue, queue.name.encode(), persistent=True)
        session.consume(queue)
        session.await_bodies(1)
        session.acknowledge(0, 0, ack_type=AckType.POISON)
    assert left_in(broker, queue) == []
    with openwire_session(url_of(broker), unique("c")) as session:
        session.consume(dead)
        while queue.name.encode() not in session.bodies:
            session.step()
        session.acknowledge(0, len(session.ids) - 1)


def test_a_durable_subscription_can_be_deleted(broker: RunningInstance) -> None:
    topic, name = TopicDestination(unique("kept")), unique("client")
    for step in ("subscribe", "receive", "delete", "subscribe again"):
        with openwire_session(url_of(broker), unique("c"), client_id=name) as session:
            if step == "delete":
                session.done(session.connection.remove_subscription("mine"))
            else:
                session.consume(topic, subscription="mine")
            if step == "receive":
                assert session.await_bodies(1) == [b"meanwhile"]
        if step != "receive":
            with openwire_session(url_of(broker), unique("c")) as other:
                other.send(topic, b"meanwhile", persistent=True)
    with openwire_session(url_of(broker), unique("c"), client_id=name) as session:
        session.consume(topic, subscription="mine")
        session.await_bodies(1)
        assert session.bodies == [b"meanwhile"], "what was sent while there was no subscription is not delivered"
        session.acknowledge(0, 0)
        session.done(session.connection.remove_consumer(CONSUMER))
        session.done(session.connection.remove_subscription("mine"))


def test_messages_expire_on_the_broker(broker: RunningInstance) -> None:
    queue = QueueDestination(unique("expiring"))
    with openwire_session(url_of(broker), unique("c")) as session:
        session.send(queue, b"late", expiration_ms=int(time.time() * 1000) + 300)
        session.send(queue, b"kept", expiration_ms=int(time.time() * 1000) + 60_000)
    time.sleep(0.4)
    assert [body for body, _ in left_in(broker, queue)] == [b"kept"]


# -- refusals and silence --------------------------------------------------------------------------------------------


def test_a_broker_ends_a_connection_with_its_reason(broker: RunningInstance) -> None:
    session = OpenWireSession(url_of(broker), unique("c")).connect()
    with closing(session):
        session.connection.send(0, b"x", producer=9, destination=QueueDestination("x"))
        with pytest.raises(ConnectionError, match=r"\w+"):
            session.done(0)


def test_paused_brokers_are_noticed_within_their_keep_alives(
    activemq: RunningInstance, artemis: RunningInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both at once, because the test mostly waits. An idle connection stays alive as long as both sides keep it so."""
    brokers = [activemq, artemis]
    monkeypatch.setattr(driver, "INACTIVITY_MS", 3000)
    with ExitStack() as stack:
        senders = [stack.enter_context(closing(ready(OpenWireSender(url_of(broker), group())))) for broker in brokers]
        quiet_until_s = time.monotonic() + 4.5
        while time.monotonic() < quiet_until_s:
            for sender in senders:
                pumped(sender)
        try:
            for broker in brokers:
                os.kill(broker.pid, signal.SIGSTOP)
            until(lambda: all((s.pump(), s.keep_alive(time.monotonic_ns()), s.closed is not None)[-1] for s in senders))
        finally:
            for broker in brokers:
                os.kill(broker.pid, signal.SIGCONT)
    assert [("has been silent" in str(sender.closed)) for sender in senders] == [True, True]
