"""Do we, real MQTT brokers and a client that shares no code with us understand each other, both ways?"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from crescendo.load.protocols import mqtt
from crescendo.load.protocols.interfaces import SettledMessages
from crescendo.load.protocols.mqtt import MqttReceiver, MqttSender
from crescendo.model.errors import ConfigError, PeerError
from crescendo.model.payload import PayloadSize
from crescendo.model.workload import Group, Settle
from crescendo.record.schema import Settlement
from crescendo.systems.instance import RunningInstance
from crescendo.wire.mqtt.events import Connected, Subscribed
from crescendo.wire.mqtt.packet_types import V3, V5
from crescendo.wire.mqtt.packets import Connect, Filter
from crescendo.wire.mqtt.properties import Property
from mqtt_peers import (
    TIMEOUT_S,
    Broker,
    Direct,
    Foreign,
    Sending,
    mosquitto,
    payloads_of,
    pumped,
    ready,
    refusal_of,
)
from pumping import receive_all

pytestmark = pytest.mark.shares("rabbitmq")

WAYS = [("roomy_mosquitto", V3), ("roomy_mosquitto", V5), ("rabbit", V3)]
ways = pytest.mark.parametrize(("broker", "version"), WAYS, ids=[f"{name}-{v}" for name, v in WAYS])
settling = pytest.mark.parametrize("settle", [Settle.AT_MOST_ONCE, Settle.AT_LEAST_ONCE])
versions = pytest.mark.parametrize("version", [V3, V5])


@pytest.fixture(scope="module")
def roomy_mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with mosquitto(tmp_path_factory.mktemp("mosquitto")) as broker:
        yield broker.url


@pytest.fixture
def rabbit(rabbitmq: RunningInstance) -> str:
    return rabbitmq.endpoints["mqtt"]


@pytest.fixture
def url(request: pytest.FixtureRequest, broker: str) -> str:
    return str(request.getfixturevalue(broker))


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic of its own for each test on a shared broker."""
    return f"t/{abs(hash(request.node.nodeid))}"


def group(address: str, *, size: int = 256, settle: Settle = Settle.AT_LEAST_ONCE) -> Group:
    return Group(address=address, size=PayloadSize.fixed(size), settle=settle)


def through(
    sender: MqttSender, receivers: list[MqttReceiver], payloads: list[bytes], expected: int
) -> tuple[list[SettledMessages], list[list[bytes]]]:
    """Send everything and receive `expected` messages in all; returns the outcomes, and what each receiver got."""
    for receiver in receivers:
        ready(receiver).begin()
    sending = Sending(sender, payloads, settled=sender._qos == 0)
    received: list[list[bytes]] = [[] for _ in receivers]
    deadline_s = time.monotonic() + TIMEOUT_S
    while not sending.finished or sum(map(len, received)) < expected:
        assert time.monotonic() < deadline_s, f"{[len(some) for some in received]} received"
        if not sending.finished:
            sending.step()
        for receiver, taken in zip(receivers, received, strict=True):
            for batch in pumped(receiver, 0.002):
                taken.extend(batch)
    return sending.outcomes, received


def sequences(outcomes: list[SettledMessages]) -> list[int]:
    return [int(seq) for outcome in outcomes for seq in outcome.seqs]


# -- ours with ours --------------------------------------------------------------------------------------------------


@ways
@settling
def test_twenty_thousand_messages_arrive_once_in_order_and_are_settled_once(
    url: str, topic: str, version: int, settle: Settle
) -> None:
    payloads = payloads_of(20_000, 256)
    load = group(f"topic://{topic}", settle=settle)
    with (
        closing(MqttSender(url, load, version=version)) as sender,
        closing(MqttReceiver(url, load, version=version)) as receiver,
    ):
        outcomes, (received,) = through(sender, [receiver], payloads, len(payloads))
    assert received == payloads
    assert sender.batched == len(payloads)
    if settle is Settle.AT_LEAST_ONCE:
        assert sorted(sequences(outcomes)) == list(range(20_000))
        assert {outcome.settlement for outcome in outcomes} == {Settlement.ACCEPTED}
    else:
        assert outcomes == []


# Mosquitto without its own limit ignores ours in MQTT 5; with one it drops what a 3.1.1 sender sends too fast.
@versions
def test_exactly_once_is_once_and_settled(
    mosquitto: RunningInstance, roomy_mosquitto: str, topic: str, version: int
) -> None:
    payloads = payloads_of(2_000, 256)
    load = group(f"topic://{topic}", settle=Settle.EXACTLY_ONCE)
    url = mosquitto.endpoints["mqtt"] if version == V5 else roomy_mosquitto
    with (
        closing(MqttSender(url, load, version=version)) as sender,
        closing(MqttReceiver(url, load, version=version)) as receiver,
    ):
        outcomes, (received,) = through(sender, [receiver], payloads, len(payloads))
    assert received == payloads
    assert sorted(sequences(outcomes)) == list(range(2_000))
    assert {outcome.settlement for outcome in outcomes} == {Settlement.ACCEPTED}


def test_exactly_once_is_refused_where_the_system_grants_less(rabbit: str, topic: str) -> None:
    load = group(f"topic://{topic}", settle=Settle.EXACTLY_ONCE)
    with (
        closing(MqttReceiver(rabbit, load)) as receiver,
        pytest.raises(AssertionError, match="exactly-once needs QoS 2; the system granted QoS 1"),
    ):
        ready(receiver)


@pytest.mark.parametrize("size", [32, 127, 20_000, 1_000_000])
@versions
def test_sizes_around_each_width_of_the_length_field_arrive_whole(
    roomy_mosquitto: str, topic: str, version: int, size: int
) -> None:
    payloads = payloads_of(40, size)
    load = group(f"topic://{topic}", size=size)
    with (
        closing(MqttSender(roomy_mosquitto, load, version=version)) as sender,
        closing(MqttReceiver(roomy_mosquitto, load, version=version)) as receiver,
    ):
        assert through(sender, [receiver], payloads, 40)[1] == [payloads]


def test_receivers_of_a_queue_share_its_messages(roomy_mosquitto: str, topic: str) -> None:
    payloads = payloads_of(4_000, 64)
    load = group(f"queue://{topic}", size=64)
    with (
        closing(MqttSender(roomy_mosquitto, load)) as sender,
        closing(MqttReceiver(roomy_mosquitto, load)) as one,
        closing(MqttReceiver(roomy_mosquitto, load)) as other,
    ):
        _, received = through(sender, [one, other], payloads, 4_000)
    assert sorted(received[0] + received[1]) == payloads
    assert all(received)


@ways
def test_each_receiver_of_a_topic_gets_every_message(url: str, topic: str, version: int) -> None:
    payloads = payloads_of(1_000, 64)
    load = group(f"topic://{topic}", size=64)
    with (
        closing(MqttSender(url, load, version=version)) as sender,
        closing(MqttReceiver(url, load, version=version)) as one,
        closing(MqttReceiver(url, load, version=version)) as other,
    ):
        assert through(sender, [one, other], payloads, 2_000)[1] == [payloads, payloads]


def test_at_most_once_loses_exactly_what_the_broker_reports_as_dropped(tmp_path: Path) -> None:
    """Mosquitto drops what does not fit into the queue of a receiver that does not read, and counts it."""
    lines = ("max_queued_messages 100", "sys_interval 1", "allow_anonymous true")
    load = group("topic://t", size=1000, settle=Settle.AT_MOST_ONCE)
    payloads = payloads_of(20_000, 1000)
    with (
        mosquitto(tmp_path, *lines) as broker,
        Foreign(broker.url, V3) as watcher,
        closing(MqttSender(broker.url, load)) as sender,
        closing(MqttReceiver(broker.url, load)) as receiver,
    ):
        ready(receiver)
        Sending(sender, payloads, settled=True).run()
        watcher.subscribe("$SYS/broker/publish/messages/dropped", 0)
        receiver.begin()
        received: list[bytes] = []
        deadline_s = time.monotonic() + TIMEOUT_S
        while not watcher.received or len(received) + int(watcher.received[-1]) < len(payloads):
            assert time.monotonic() < deadline_s, f"{len(received)} received, {watcher.received[-1:]} dropped"
            for batch in pumped(receiver):
                received += batch
    assert 0 < len(received) < len(payloads)
    # The answer to the ping with which the receiver begins finds the queue full too, and is counted among the dropped.
    assert len(received) + int(watcher.received[-1]) - len(payloads) in {0, 1}
    assert received == sorted(set(received))  # in order, none twice


# -- ours with paho --------------------------------------------------------------------------------------------------


@ways
@settling
@pytest.mark.parametrize("batching", [True, False], ids=["batch", "scalar"])
def test_paho_receives_what_we_send(url: str, topic: str, version: int, settle: Settle, batching: bool) -> None:
    payloads = payloads_of(2_000, 100)
    qos = 0 if settle is Settle.AT_MOST_ONCE else 1
    load = group(f"topic://{topic}", size=100, settle=settle)
    with (
        Foreign(url, version) as foreign,
        closing(MqttSender(url, load, version=version, batching=batching)) as sender,
    ):
        foreign.subscribe(topic, qos)
        outcomes = Sending(sender, payloads, settled=qos == 0).run()
        foreign.wait_for(len(payloads))
    assert foreign.received == payloads
    assert {message.qos for message in foreign.messages} == {qos}
    assert sorted(sequences(outcomes)) == (list(range(2_000)) if qos else [])
    assert sender.batched == (2_000 if batching else 0)


@ways
@settling
@pytest.mark.parametrize("batching", [True, False], ids=["batch", "scalar"])
def test_we_receive_what_paho_sends(url: str, topic: str, version: int, settle: Settle, batching: bool) -> None:
    payloads = payloads_of(2_000, 100)
    load = group(f"topic://{topic}", size=100, settle=settle)
    with (
        Foreign(url, version) as foreign,
        closing(MqttReceiver(url, load, version=version, batching=batching)) as receiver,
    ):
        ready(receiver).begin()
        for start_at in range(0, len(payloads), 500):
            foreign.send(topic, payloads[start_at : start_at + 500], 0 if settle is Settle.AT_MOST_ONCE else 1)
        assert receive_all(receiver, len(payloads)) == payloads


def test_a_wildcard_receives_from_every_topic_below(roomy_mosquitto: str, topic: str) -> None:
    with (
        Foreign(roomy_mosquitto, V5) as foreign,
        closing(MqttReceiver(roomy_mosquitto, group(f"topic://{topic}/+/x"))) as receiver,
    ):
        ready(receiver).begin()
        for name in ("a/x", "a/y", "b/x"):
            foreign.send(f"{topic}/{name}", [name.encode()], 1)
        assert receive_all(receiver, 2) == [b"a/x", b"b/x"]


def test_messages_that_arrive_before_begin_wait_and_are_not_lost(roomy_mosquitto: str, topic: str) -> None:
    payloads = payloads_of(50, 64)
    with (
        Foreign(roomy_mosquitto, V5) as foreign,
        closing(MqttReceiver(roomy_mosquitto, group(f"topic://{topic}"))) as receiver,
    ):
        ready(receiver)
        foreign.send(topic, payloads, 1)
        for _ in range(5):
            assert pumped(receiver) == []
        receiver.begin()
        assert receive_all(receiver, 50) == payloads


def test_older_retained_messages_are_not_part_of_the_load(roomy_mosquitto: str, topic: str) -> None:
    with Foreign(roomy_mosquitto, V5) as foreign:
        foreign.send(topic, [b"old"], 1, retain=True)
        with closing(MqttReceiver(roomy_mosquitto, group(f"topic://{topic}"))) as receiver:
            ready(receiver).begin()
            foreign.send(topic, [b"new"], 1)
            assert receive_all(receiver, 1) == [b"new"]


# -- what the load does not use yet ----------------------------------------------------------------------------------


@versions
def test_exactly_once_both_ways_with_paho(roomy_mosquitto: str, topic: str, version: int) -> None:
    payloads = payloads_of(300, 50)
    url = roomy_mosquitto
    with Foreign(url, version) as foreign, Direct(url, connect_of(url, version)) as ours:
        ours.until(Connected)
        ours.connection.subscribe([Filter(f"{topic}/in", 2)])
        assert ours.until(Subscribed).codes == (2,)
        foreign.send(f"{topic}/in", payloads, 2)
        ours.until(bodies=300)
        foreign.subscribe(f"{topic}/out", 2)
        numbers = [ours.connection.publish_one(f"{topic}/out", payload, qos=2) for payload in payloads]
        ours.until(acknowledged=300)
        foreign.wait_for(300)
    assert ours.bodies == payloads == foreign.received
    assert ours.acknowledged == numbers


def test_a_broker_that_only_pretends_exactly_once_is_detected(rabbit: str, topic: str) -> None:
    """RabbitMQ accepts messages with QoS 2 and acknowledges them as QoS 1."""
    with Direct(rabbit, connect_of(rabbit, V3)) as ours:
        ours.until(Connected)
        ours.connection.publish_one(topic, b"once", qos=2)
        with pytest.raises(PeerError, match="PUBACK for packet 1, which does not await that answer"):
            ours.until(acknowledged=1)


def connect_of(url: str, version: int) -> Connect:
    parts = urlsplit(url)
    password = None if parts.password is None else unquote(parts.password).encode()
    return Connect(f"direct{time.monotonic_ns()}", version, user=parts.username, password=password)


@versions
def test_a_persistent_session_keeps_messages_while_we_are_disconnected(
    roomy_mosquitto: str, topic: str, version: int
) -> None:
    properties = {Property.SESSION_EXPIRY_S: 60} if version == V5 else {}
    connect = Connect(f"kept{version}", version, clean=False, properties=properties)
    with Direct(roomy_mosquitto, connect) as ours:
        assert ours.until(Connected).session_present is False
        ours.connection.subscribe([Filter(topic, 1)])
        ours.until(Subscribed)
    with Foreign(roomy_mosquitto, version) as foreign:
        foreign.send(topic, payloads_of(20, 40), 1)
    with Direct(roomy_mosquitto, connect) as ours:
        assert ours.until(Connected).session_present is True
        ours.until(bodies=20)
    assert ours.bodies == payloads_of(20, 40)


@versions
def test_a_retained_message_is_kept_for_later_subscribers(roomy_mosquitto: str, topic: str, version: int) -> None:
    with Direct(roomy_mosquitto, connect_of(roomy_mosquitto, version)) as ours:
        ours.until(Connected)
        ours.connection.publish_one(topic, b"kept", qos=1, retain=True)
        ours.until(acknowledged=1)
        ours.connection.subscribe([Filter(topic, 1)])
        ours.until(bodies=1)
    assert (ours.bodies, ours.retained) == ([b"kept"], [True])
    with Foreign(roomy_mosquitto, version) as foreign:
        foreign.subscribe(topic, 1)
        foreign.wait_for(1)
    assert [(message.payload, message.retain) for message in foreign.messages] == [(b"kept", True)]


# -- refusals --------------------------------------------------------------------------------------------------------


def test_a_system_without_shared_subscriptions_is_reported(rabbit: str) -> None:
    with closing(MqttReceiver(rabbit, group("queue://x"))) as receiver:
        reason = refusal_of(receiver)
    assert "MQTT 3.1.1, which has no shared subscriptions" in reason
    assert "topic://x" in reason


def test_a_system_without_mqtt_5_is_connected_with_3_1_1(rabbit: str, topic: str) -> None:
    payloads = payloads_of(100, 64)
    load = group(f"topic://{topic}", size=64)
    with closing(MqttSender(rabbit, load)) as sender, closing(MqttReceiver(rabbit, load)) as receiver:
        assert through(sender, [receiver], payloads, 100)[1] == [payloads]


@pytest.mark.parametrize("kind", [MqttSender, MqttReceiver])
def test_a_wrong_password_is_refused_with_the_brokers_reason(rabbit: str, kind: Any) -> None:
    with closing(kind(rabbit.replace("@", "x@"), group("topic://x"))) as channel:
        assert "bad user name or password" in refusal_of(channel)


@pytest.mark.parametrize(("version", "reason"), [(V3, "not authorised"), (V5, "not authorised")])
def test_a_broker_that_requires_a_password_is_reported(tmp_path: Path, version: int, reason: str) -> None:
    with mosquitto(tmp_path, "allow_anonymous false") as broker:
        for kind in (MqttSender, MqttReceiver):
            with closing(kind(broker.url, group("topic://x"), version=version)) as channel:
                assert reason in refusal_of(channel)


def test_publishes_to_a_forbidden_topic_are_rejected_message_by_message(tmp_path: Path) -> None:
    rules = tmp_path / "acl"
    rules.write_text("topic read open\n")
    with mosquitto(tmp_path, "allow_anonymous true", f"acl_file {rules}", "max_inflight_messages 0") as broker:
        with closing(MqttSender(broker.url, group("topic://closed", size=64))) as sender:
            outcomes = Sending(sender, payloads_of(200, 64), settled=False).run()
        assert sequences(outcomes) == list(range(200))
        assert {outcome.settlement for outcome in outcomes} == {Settlement.REJECTED}


def test_a_message_too_large_for_the_broker_is_refused_before_the_start(tmp_path: Path) -> None:
    with (
        mosquitto(tmp_path, "allow_anonymous true", "max_packet_size 500") as broker,
        closing(MqttSender(broker.url, group("topic://x", size=1000))) as sender,
    ):
        assert "at most 500 bytes" in refusal_of(sender)


def test_the_receive_maximum_of_the_broker_is_honoured(tmp_path: Path) -> None:
    with (
        mosquitto(tmp_path, "allow_anonymous true", "max_inflight_messages 7") as broker,
        closing(MqttSender(broker.url, group("topic://x", size=64))) as sender,
    ):
        assert ready(sender).room() == 7
        assert sequences(Sending(sender, payloads_of(500, 64), settled=False).run()) == list(range(500))


def test_an_invalid_topic_is_a_config_error(roomy_mosquitto: str) -> None:
    with pytest.raises(ConfigError, match="wildcard"):
        MqttSender(roomy_mosquitto, group("topic://a/+"))
    with pytest.raises(ConfigError, match="stand alone"):
        MqttReceiver(roomy_mosquitto, group("topic://a/b#"))


# -- silence ---------------------------------------------------------------------------------------------------------


def keep_alive_for(channels: list[Any], seconds: float) -> None:
    """Drive the channels for this long, or until all of them are closed."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s and (alive := [channel for channel in channels if channel.closed is None]):
        for channel in alive:
            channel.flush()
            list(channel.pump())
            channel.keep_alive(time.monotonic_ns())
        time.sleep(0.02)


@pytest.fixture
def killable_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    monkeypatch.setattr(mqtt, "KEEP_ALIVE_S", 1)
    with mosquitto(tmp_path) as broker:
        yield broker
        with suppress(ProcessLookupError):
            os.kill(broker.pid, signal.SIGCONT)


@pytest.fixture
def channels(killable_broker: Broker) -> Iterator[list[Any]]:
    """A sender and a receiver, ready."""
    with (
        closing(MqttSender(killable_broker.url, group("topic://x"))) as sender,
        closing(MqttReceiver(killable_broker.url, group("topic://x"))) as receiver,
    ):
        ready(sender)
        ready(receiver).begin()
        yield [sender, receiver]


def test_idle_connections_stay_alive_on_both_sides(channels: list[Any]) -> None:
    keep_alive_for(channels, 3.0)  # mosquitto disconnects after one and a half times the keep-alive
    assert [channel.closed for channel in channels] == [None, None]


def test_a_broker_that_falls_silent_is_noticed_within_the_keep_alive(
    killable_broker: Broker, channels: list[Any]
) -> None:
    keep_alive_for(channels, 0.3)
    os.kill(killable_broker.pid, signal.SIGSTOP)
    keep_alive_for(channels, 20.0)
    assert ["silent" in str(channel.closed) for channel in channels] == [True, True]


def test_a_broker_that_dies_is_noticed_at_once(killable_broker: Broker, channels: list[Any]) -> None:
    os.kill(killable_broker.pid, signal.SIGKILL)
    keep_alive_for(channels, 10.0)
    for channel in channels:
        assert "closed the connection" in str(channel.closed) or "broke" in str(channel.closed)


@pytest.mark.parametrize(
    ("option", "place", "refused"),
    [("", "url", False), ("?version=5", "url", False), ("?version=5", "address", False),
     ("?version=3.1.1", "url", True), ("?version=3.1.1", "address", True)],
)  # fmt: skip
def test_the_version_of_mqtt_can_be_chosen(option: str, place: str, refused: bool, roomy_mosquitto: str) -> None:
    """Mosquitto shares subscriptions in MQTT 5 only, so it shows which version we speak."""
    url = roomy_mosquitto + (option if place == "url" else "")
    address = "queue://chosen" + (option if place == "address" else "")
    with closing(MqttReceiver(url, Group(address=address, protocol="mqtt"))) as receiver:
        if refused:
            assert "the system speaks MQTT 3.1.1" in refusal_of(receiver)
        else:
            assert ready(receiver).ready
