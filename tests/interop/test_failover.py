"""Is every message accounted for when a broker is killed and started again in the middle of a run?"""

import threading
import time
import uuid
from collections.abc import Iterator

import pytest
from engine_threads import PATIENCE_S, Control, Rows, await_ready, until

from crescendo.load.assignment import Quota
from crescendo.load.protocols import driver_of
from crescendo.load.receiver import Receiver, ReceiverEngine
from crescendo.load.sender import SenderEngine
from crescendo.load.sending import Sender
from crescendo.model.pacer import UNLIMITED, pacer_for
from crescendo.model.payload import Payload
from crescendo.model.workload import PROTOCOLS, Group
from crescendo.run.processes import die_with_parent
from crescendo.systems.instance import RunningInstance, start
from crescendo.systems.registry import system_of

TAG, RATE, COUNT = 4711, 500.0, 3000


@pytest.fixture(scope="module")
def mortal(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningInstance]:
    directory = tmp_path_factory.mktemp(request.param) / "instance"
    instance = start(system_of(request.param), {}, directory=directory, on_fork=die_with_parent())
    yield instance
    instance.stop()


# RabbitMQ 3.10 declares queues for AMQP 1.0 that do not survive a restart.
@pytest.mark.parametrize(
    ("mortal", "protocol"),
    [("rabbitmq", "amqp091"), ("rabbitmq", "stomp"), ("artemis", "stomp"), ("artemis", "amqp10")],
    indirect=["mortal"],
)
def test_durable_and_acknowledged_messages_survive_a_killed_broker(mortal: RunningInstance, protocol: str) -> None:
    url = mortal.endpoints[PROTOCOLS[protocol]]
    place = f"queue://failover-{uuid.uuid4().hex}?durable=yes"
    group = Group(address=place, failover=[], protocol=protocol, rate=RATE, size=Payload.fixed(64))
    rows = Rows()
    sending, receiving = Control(), Control()
    incoming = await_ready(driver_of(protocol, "receiver")(url, group))
    outgoing = await_ready(driver_of(protocol, "sender")(url, group))
    receivers = ReceiverEngine(
        [Receiver(0, group, incoming, redial=lambda _: driver_of(protocol, "receiver")(url, group))],
        rows, receiving, tag=TAG,
    )  # fmt: skip
    senders = SenderEngine(
        [Sender(0, group, pacer_for(RATE), Quota(COUNT, UNLIMITED), outgoing, TAG,
                redial=lambda _: driver_of(protocol, "sender")(url, group))],
        rows, sending, drain_ns=60 * 10**9,
    )  # fmt: skip
    threads = [
        threading.Thread(target=receivers.run),
        threading.Thread(target=senders.run, args=(time.monotonic_ns(),)),
    ]
    for thread in threads:
        thread.start()
    try:
        until(lambda: len(rows.settled) > COUNT // 6)
        mortal.crash()
        mortal.restart(on_fork=die_with_parent())
        threads[1].join(PATIENCE_S)
        assert not threads[1].is_alive()
        assert rows.settled == set(range(COUNT)), "everything was acknowledged in the end"
        until(lambda: len(set(rows.received)) == COUNT)
    finally:
        sending.stop.set()
        receiving.stop.set()
        for thread in threads:
            thread.join(PATIENCE_S)
        receivers.close()
        senders.close()
    assert set(rows.received) == set(range(COUNT)), "durable and acknowledged: none is lost"
    assert sending.kinds.count("disconnect") == sending.kinds.count("reconnect") >= 1
    assert receiving.kinds.count("disconnect") == receiving.kinds.count("reconnect") >= 1
    firsts = [seq for seq, attempt in rows.sent if attempt == 1]
    assert firsts == list(range(COUNT)), "the first attempt of each message, once and in order"
    again = [seq for seq, attempt in rows.sent if attempt > 1]
    unsettled = sum(detail["unsettled"] for kind, detail in sending.events if kind == "disconnect")
    assert len(again) == unsettled
