"""Do our STOMP channels carry messages through real brokers, and do they interoperate with stomp.py?"""

import os
import signal
import time
import uuid
from contextlib import ExitStack, closing
from urllib.parse import urlsplit

import pytest

from crescendo.load.engine.graceful_close import close_gracefully
from crescendo.load.protocols import stomp as driver
from crescendo.load.protocols.stomp import StompReceiver, StompSender
from crescendo.model.payload import PayloadSize
from crescendo.model.workload import Group, Settle
from crescendo.systems.instance import RunningInstance
from crescendo.wire.stomp.client_frames import Ack, BrokerDialect, durable
from crescendo.wire.stomp.escaping import Version
from pumping import receive_all
from stomp_peers import Foreign, payloads, pumped, ready, send_all, stomp_session

pytestmark = pytest.mark.shares("rabbitmq")

MANY = {"queue": 20_000, "topic": 10_000}
"""Several times what may be in flight to a receiver, and several batches of a sender."""
ALL_AT_ONCE = {"activemq.prefetchSize": "10", "consumer-window-size": "100000"}
versions = pytest.mark.parametrize("version", list(Version))


@pytest.fixture(scope="module", params=["rabbitmq", "activemq", "artemis"])
def broker(request: pytest.FixtureRequest) -> RunningInstance:
    found: RunningInstance = request.getfixturevalue(request.param)
    return found


def url_of(broker: RunningInstance) -> str:
    return broker.endpoints["stomp"]


def kind_of(broker: RunningInstance) -> BrokerDialect:
    return BrokerDialect(broker.facts["kind"])


def group(size: int = 256, *, topic: bool = False, settle: Settle = Settle.AT_LEAST_ONCE) -> Group:
    kind = "topic" if topic else "queue"
    return Group(address=f"{kind}://stomp-{uuid.uuid4().hex}", size=PayloadSize.fixed(size), settle=settle)


# -- our channels, both ends -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MANY)
def test_every_message_is_settled_and_arrives_once_and_in_order(broker: RunningInstance, kind: str) -> None:
    many = group(topic=kind == "topic")
    bodies = payloads(MANY[kind], 256)
    with (
        closing(ready(StompReceiver(url_of(broker), many))) as receiver,
        closing(ready(StompSender(url_of(broker), many))) as sender,
    ):
        receiver.begin()
        settled, received = send_all(sender, bodies, settled=False, receiver=receiver)
        assert sorted(settled) == list(range(len(bodies)))
        assert received == bodies
        assert sender.batched == len(bodies)


def test_acknowledged_messages_are_not_redelivered(broker: RunningInstance) -> None:
    some = group()
    bodies = payloads(300, 256)
    with closing(StompSender(url_of(broker), some)) as sender:
        send_all(sender, bodies[:200], settled=False)
        receiver = ready(StompReceiver(url_of(broker), some))
        receiver.begin()
        assert receive_all(receiver, 200) == bodies[:200]
        close_gracefully([receiver])
        send_all(sender, bodies[200:], settled=False)
    with closing(ready(StompReceiver(url_of(broker), some))) as receiver:
        receiver.begin()
        assert receive_all(receiver, 100) == bodies[200:]


def test_at_most_once_is_counted_truthfully(broker: RunningInstance) -> None:
    many = group(settle=Settle.AT_MOST_ONCE)
    bodies = payloads(10_000, 256)
    with (
        closing(ready(StompReceiver(url_of(broker), many))) as receiver,
        closing(ready(StompSender(url_of(broker), many))) as sender,
    ):
        receiver.begin()
        settled, received = send_all(sender, bodies, settled=True, receiver=receiver)
        assert settled == []
        assert received == bodies


@pytest.mark.parametrize("batching", [True, False], ids=["batch", "scalar"])
@pytest.mark.parametrize("size", [32, 1000, 300_000])
def test_both_paths_pass_the_same_bytes(broker: RunningInstance, size: int, batching: bool) -> None:
    some = group(size)
    bodies = payloads(300 if size < 10_000 else 12, size)
    with (
        closing(ready(StompReceiver(url_of(broker), some, batching=batching))) as receiver,
        closing(ready(StompSender(url_of(broker), some, batching=batching))) as sender,
    ):
        receiver.begin()
        settled, received = send_all(sender, bodies, settled=False, receiver=receiver)
        assert sorted(settled) == list(range(len(bodies)))
        assert received == bodies
        assert sender.batched == (len(bodies) if batching else 0)


def test_messages_that_waited_in_the_queue_arrive_when_the_receiver_begins(broker: RunningInstance) -> None:
    some = group(64)
    bodies = payloads(500, 64)
    with closing(StompSender(url_of(broker), some)) as sender:
        send_all(sender, bodies, settled=False)
    with closing(ready(StompReceiver(url_of(broker), some))) as receiver:
        for _ in range(10):
            assert pumped(receiver) == []  # they must not arrive before `begin`
        receiver.begin()
        assert receive_all(receiver, 500) == bodies


# -- one end stomp.py ------------------------------------------------------------------------------------------------


@versions
def test_stomp_py_receives_what_we_send(broker: RunningInstance, version: Version) -> None:
    some = group(256)
    bodies = payloads(1000, 256)
    with Foreign(url_of(broker), version) as foreign, closing(StompSender(url_of(broker), some)) as sender:
        foreign.subscribe(driver.destination_of(some))
        send_all(sender, bodies, settled=False)
        assert foreign.await_messages(1000) == bodies


@versions
@pytest.mark.parametrize("settle", list(Settle)[:2])
def test_we_receive_what_stomp_py_sends(broker: RunningInstance, version: Version, settle: Settle) -> None:
    some = group(256, settle=settle)
    bodies = payloads(1000, 256)
    with Foreign(url_of(broker), version) as foreign, closing(ready(StompReceiver(url_of(broker), some))) as receiver:
        receiver.begin()
        foreign.send_all(driver.destination_of(some), bodies)
        assert receive_all(receiver, 1000) == bodies


# -- what the channels do not use yet --------------------------------------------------------------------------------


@versions
def test_acknowledgements_are_understood_in_every_version(broker: RunningInstance, version: Version) -> None:
    destination = driver.destination_of(group())
    with stomp_session(url_of(broker), versions=[version]) as session:
        for number in range(6):
            session.connection.send(destination, b"%d" % number, persistent=True, receipt=f"sent{number}")
            session.await_receipt(f"sent{number}")
        session.connection.subscribe("s", destination, Ack.CLIENT, more=ALL_AT_ONCE)
        assert session.await_bodies(6) == [b"%d" % number for number in range(6)]
        session.connection.ack("s", session.ids[3], receipt="acked")
        session.await_receipt("acked")
    with stomp_session(url_of(broker), versions=[version]) as session:
        session.connection.subscribe("s", destination, more=ALL_AT_ONCE)
        assert session.await_bodies(2) == [b"4", b"5"]
        session.connection.unsubscribe("s", destination=destination, receipt="gone")
        session.await_receipt("gone")


@pytest.mark.parametrize("version", [Version.V1_1, Version.V1_2])
def test_single_acknowledgements_leave_the_earlier_messages(broker: RunningInstance, version: Version) -> None:
    destination = driver.destination_of(group())
    with stomp_session(url_of(broker), versions=[version]) as session:
        session.connection.subscribe("s", destination, Ack.CLIENT_INDIVIDUAL, more=ALL_AT_ONCE)
        for number in range(3):
            session.connection.send(destination, b"%d" % number)
        assert session.await_bodies(3) == [b"0", b"1", b"2"]
        session.connection.ack("s", session.ids[1], receipt="acked")
        session.await_receipt("acked")
    with stomp_session(url_of(broker), versions=[version]) as session:
        session.connection.subscribe("s", destination, more=ALL_AT_ONCE)
        assert sorted(session.await_bodies(2)) == [b"0", b"2"]
        marks = dict(zip(session.bodies, session.redelivered, strict=True))
        # Artemis does not mark the one after the acknowledged message; the broker sets the flag, not we.
        assert marks[b"0"]
        assert marks[b"2"] or kind_of(broker) is BrokerDialect.ARTEMIS


def test_transactions_deliver_committed_messages_only(broker: RunningInstance) -> None:
    destination = driver.destination_of(group())
    with stomp_session(url_of(broker)) as session:
        session.connection.subscribe("s", destination)
        session.connection.begin("first")
        session.connection.send(destination, b"aborted", transaction="first")
        session.connection.abort("first")
        session.connection.begin("second")
        session.connection.send(destination, b"committed", transaction="second")
        session.connection.commit("second", receipt="done")
        session.await_receipt("done")
        session.connection.send(destination, b"after")
        assert session.await_bodies(2) == [b"committed", b"after"]


def test_selectors_filter_where_the_broker_supports_them(broker: RunningInstance) -> None:
    colours = [b"blue", b"red:ish", b"green", b"red:ish"]
    destination = driver.destination_of(group())
    with stomp_session(url_of(broker)) as session:
        session.connection.subscribe("s", destination, selector="colour = 'red:ish'")
        for colour in colours:
            session.connection.send(destination, colour, more={"colour": colour.decode()})
        # RabbitMQ ignores selectors over STOMP without an error, so the driver must refuse them there.
        chosen = colours if kind_of(broker) is BrokerDialect.RABBITMQ else [b"red:ish"] * 2
        assert session.await_bodies(len(chosen)) == chosen


def test_a_durable_subscription_keeps_messages_while_disconnected(broker: RunningInstance) -> None:
    destination = driver.destination_of(group(topic=True))
    name = f"durable-{uuid.uuid4().hex}"
    kind = kind_of(broker)
    identity = {} if kind is BrokerDialect.RABBITMQ else {"client_id": name}
    more = durable(kind, name)
    for phase in ("subscribe", "receive"):
        with stomp_session(url_of(broker), **identity) as session:
            session.connection.subscribe(name, destination, receipt="subscribed", more=more)
            session.await_receipt("subscribed")
            if phase == "receive":
                assert session.await_bodies(1) == [b"meanwhile"]
                if kind is BrokerDialect.ACTIVEMQ:  # deletes a durable subscription only while it is inactive
                    session.connection.unsubscribe(name)
                session.connection.unsubscribe(name, more=more, receipt="gone")
                session.await_receipt("gone")
                continue
        with stomp_session(url_of(broker)) as other:
            other.connection.send(destination, b"meanwhile", persistent=True, receipt="sent")
            other.await_receipt("sent")


def test_a_selector_in_an_address_filters_or_is_refused(broker: RunningInstance) -> None:
    destination = f"queue://selected-{uuid.uuid4().hex}"
    red = Group(address=destination, protocol="stomp", size=PayloadSize.fixed(40), properties={"colour": "red"})
    blue = Group(address=destination, protocol="stomp", size=PayloadSize.fixed(40), properties={"colour": "blue"})
    wanted = Group(address=f"{destination}?selector=colour='red'", protocol="stomp")
    if kind_of(broker) is BrokerDialect.RABBITMQ:
        receiver = StompReceiver(url_of(broker), wanted)
        with closing(receiver), pytest.raises(AssertionError, match="no selectors over STOMP"):
            ready(receiver)
        return
    with closing(ready(StompReceiver(url_of(broker), wanted))) as receiver:
        for one, first in ((blue, b"b"), (red, b"r"), (blue, b"B"), (red, b"R")):
            with closing(ready(StompSender(url_of(broker), one))) as sender:
                send_all(sender, [first * 40], settled=False)
        receiver.begin()
        assert receive_all(receiver, 2) == [b"r" * 40, b"R" * 40]


def test_a_subscription_in_an_address_keeps_messages_while_disconnected(broker: RunningInstance) -> None:
    name = f"kept-{uuid.uuid4().hex}"
    topic = Group(
        address=f"topic://{name}?durable=yes&subscription={name}", protocol="stomp", size=PayloadSize.fixed(40)
    )
    with closing(ready(StompReceiver(url_of(broker), topic))) as receiver:
        receiver.begin()
    with closing(ready(StompSender(url_of(broker), topic))) as sender:
        send_all(sender, [b"m" * 40, b"n" * 40], settled=False)
        # Beside the sender of the same group: only the receiver uses the subscription's name.
        with closing(ready(StompReceiver(url_of(broker), topic))) as receiver:
            receiver.begin()
            assert receive_all(receiver, 2) == [b"m" * 40, b"n" * 40]
            send_all(sender, [b"o" * 40], settled=False)
            assert receive_all(receiver, 1) == [b"o" * 40]


# -- refusals and silence --------------------------------------------------------------------------------------------


def test_a_wrong_password_is_refused_with_the_brokers_reason(broker: RunningInstance) -> None:
    expected = {
        BrokerDialect.RABBITMQ: "Access refused for user 'nobody'",
        BrokerDialect.ACTIVEMQ: "User name [nobody] or password is invalid",
        BrokerDialect.ARTEMIS: "Security Error occurred",
    }
    reasons = [refusal_of_wrong_password(broker)]
    while "without a reply" in reasons[-1] and len(reasons) < 10:  # ActiveMQ: about one in fifty
        reasons.append(refusal_of_wrong_password(broker))
    assert expected[kind_of(broker)] in reasons[-1]


def refusal_of_wrong_password(broker: RunningInstance) -> str:
    parts = urlsplit(url_of(broker))
    channel = StompSender(f"stomp://nobody:wrong@{parts.hostname}:{parts.port}", group())
    with closing(channel):
        deadline_s = time.monotonic() + 20
        while channel.closed is None and time.monotonic() < deadline_s:
            channel.flush()
            channel.pump()
            time.sleep(0.01)
        return channel.closed or "nothing"


def test_a_broker_error_carries_the_brokers_reason(broker: RunningInstance) -> None:
    with stomp_session(url_of(broker), versions=[Version.V1_1]) as session:
        session.connection.ack("s", "no-such-message")
        assert len(session.await_failure().split()) > 2


def test_paused_brokers_are_noticed_within_their_heart_beats(
    rabbitmq: RunningInstance,
    activemq: RunningInstance,
    artemis: RunningInstance,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All of them at once, because the test mostly waits."""
    brokers = [rabbitmq, activemq, artemis]
    monkeypatch.setattr(driver, "HEARTBEAT_MS", 2000)
    with ExitStack() as stack:
        senders = [stack.enter_context(closing(ready(StompSender(url_of(broker), group())))) for broker in brokers]
        quiet_until_s = time.monotonic() + 5
        while time.monotonic() < quiet_until_s:
            for sender in senders:
                pumped(sender, 0.02)  # heart-beats both ways keep an idle connection alive
        for broker in brokers:
            os.kill(broker.pid, signal.SIGSTOP)
        try:
            paused_s = time.monotonic()
            while None in [sender.closed for sender in senders] and time.monotonic() < paused_s + 30:
                for sender in senders:
                    sender.pump()
                    sender.keep_alive(time.monotonic_ns())
                time.sleep(0.05)
        finally:
            for broker in brokers:
                os.kill(broker.pid, signal.SIGCONT)
        assert ["silent" in (sender.closed or "nothing") for sender in senders] == [True, True, True]
