"""Is every message echoed once, and are the one-way and round-trip times right?"""

import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from crescendo.load.assignment import Quota
from crescendo.load.engine.echo import EchoReplies, EchoResponder
from crescendo.load.engine.receiver_engine import Receiver, ReceiverEngine
from crescendo.load.engine.sender import Sender
from crescendo.load.engine.sender_engine import SenderEngine
from crescendo.load.protocols.registry import driver_of
from crescendo.model import workload
from crescendo.model.pacer import UNLIMITED, pacer_for
from crescendo.model.payload import PayloadSize
from crescendo.model.protocols import protocol_of
from crescendo.model.workload import Group
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.systems.instance import RunningInstance, start
from crescendo.systems.kinds.loopback import LOOPBACK
from engine_threads import TIMEOUT_S, Control, Rows, await_ready, until

TAG, COUNT = 31, 300


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[RunningInstance]:
    relay = start(LOOPBACK, {}, directory=tmp_path / "relay", on_fork=die_with_parent())
    yield relay
    relay.stop()


def run_echo(url: str, group: Group, senders: int) -> Rows:
    """Run senders and one echoing receiver until every message is echoed."""
    protocol, rows, sending, receiving = group.protocol, Rows(), Control(), Control()
    back = {
        number: await_ready(driver_of(protocol, "sender")(url, group.reply_group(number))) for number in range(senders)
    }
    incoming = await_ready(driver_of(protocol, "receiver")(url, group))
    receivers = ReceiverEngine([Receiver(0, group, incoming, echo=EchoResponder(back, TAG))], rows, receiving, tag=TAG)
    made = []
    for number in range(senders):
        answers = await_ready(driver_of(protocol, "receiver")(url, group.reply_group(number)))
        channel = await_ready(driver_of(protocol, "sender")(url, group))
        pacer, quota = pacer_for(group.rate), Quota(COUNT, UNLIMITED)
        made.append(Sender(number, group, pacer, quota, channel, TAG, replies=EchoReplies(answers, number, TAG)))
    engine = SenderEngine(made, rows, sending, drain_ns=30 * 10**9)
    threads = [
        threading.Thread(target=receivers.run),
        threading.Thread(target=engine.run, args=(time.monotonic_ns(),)),
    ]
    for thread in threads:
        thread.start()
    try:
        threads[1].join(TIMEOUT_S)  # it ends by itself when the last echo has arrived
        assert not threads[1].is_alive()
        until(lambda: len(rows.received) >= senders * COUNT)
    finally:
        sending.stop.set()
        receiving.stop.set()
        for thread in threads:
            thread.join(TIMEOUT_S)
        receivers.close()
        engine.close()
    return rows


def check(rows: Rows, senders: int) -> None:
    everything = sorted(list(range(COUNT)) * senders)
    assert sorted(rows.received) == everything
    there = sorted(rows.spans["one way"])
    back = sorted(rows.spans["round trip"])
    assert [seq for seq, _ in there] == [seq for seq, _ in back] == everything
    assert all(duration_ns > 0 for _, duration_ns in there)
    assert sum(ns for _, ns in back) > sum(ns for _, ns in there), "a round trip takes longer than one way"


@pytest.mark.parametrize("rate", [0.0, 1000.0], ids=["unbounded", "paced"])
def test_ping_pong_has_one_message_in_flight(relay: RunningInstance, rate: float) -> None:
    group = Group(mode=workload.PingPongMode(), rate=rate, size=PayloadSize.fixed(64))
    rows = run_echo(relay.url, group, senders=1)
    check(rows, senders=1)
    seen = [(what, seq) for what, seq in rows.order if what != "one way"]
    assert seen == [(what, seq) for seq in range(COUNT) for what in ("sent", "round trip")]


def test_echoes_arrive_while_the_next_messages_are_sent(relay: RunningInstance) -> None:
    rows = run_echo(relay.url, Group(mode=workload.EchoMode(), rate=2000.0, size=PayloadSize.fixed(64)), senders=2)
    check(rows, senders=2)


@pytest.mark.shares("rabbitmq", "activemq", "artemis")
@pytest.mark.parametrize(
    ("kind", "protocol"),
    [
        ("rabbitmq", "amqp091"),
        ("rabbitmq", "stomp"),
        ("rabbitmq", "amqp10"),
        ("activemq", "openwire"),
        ("artemis", "core"),
    ],
)
def test_messages_are_echoed_through_a_real_broker(request: pytest.FixtureRequest, kind: str, protocol: str) -> None:
    broker: RunningInstance = request.getfixturevalue(kind)
    address = f"queue://echo-{uuid.uuid4().hex}"
    group = Group(address=address, protocol=protocol, mode=workload.EchoMode(), rate=500.0, size=PayloadSize.fixed(64))
    check(run_echo(broker.endpoints[protocol_of(protocol).endpoint], group, senders=1), senders=1)
