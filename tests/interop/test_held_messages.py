"""Does a look at a destination find messages of others, leave them where they are, and purge only when asked?"""

import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import msgspec
import pytest

from crescendo.load.engine.graceful_close import close_gracefully
from crescendo.load.held_messages import UNSTAMPED, destinations_to_look_at, look_at
from crescendo.load.protocols.registry import driver_of
from crescendo.model.payload import PayloadSize
from crescendo.model.workload import Group
from crescendo.systems.instance import RunningInstance
from crescendo.wire.stamp import MAGIC, ONE_STAMP
from pumping import ready, receive_all, send_all

TAG = 0xABCD_0001
WAYS = [
    ("rabbitmq", "amqp091", "amqp091"), ("rabbitmq", "amqp10", "amqp"), ("rabbitmq", "stomp", "stomp"),
    ("artemis", "amqp10", "amqp"), ("artemis", "stomp", "stomp"), ("artemis", "openwire", "openwire"),
    ("artemis", "core", "core"),
]  # fmt: skip


def _look(url: str, group: Group) -> dict[str, Counter[int]]:
    def await_ready(channels: Sequence[Any]) -> None:
        for channel in channels:
            ready(channel)

    return look_at(
        destinations_to_look_at([group]),
        lambda looking: driver_of(group.protocol, "receiver")(url, looking),
        await_ready,
    )


@pytest.mark.shares("rabbitmq", "artemis")
@pytest.mark.parametrize(("broker", "protocol", "endpoint"), WAYS, ids=[f"{way[0]}-{way[1]}" for way in WAYS])
def test_a_look_leaves_what_it_finds_and_a_purge_does_not(
    broker: str, protocol: str, endpoint: str, request: pytest.FixtureRequest
) -> None:
    instance: RunningInstance = request.getfixturevalue(broker)
    url, name = instance.endpoints[endpoint], f"held-{uuid.uuid4().hex[:8]}"
    group = Group(address=f"queue://{name}", protocol=protocol, size=PayloadSize.fixed(64))
    payloads = [ONE_STAMP.pack(MAGIC, 0, TAG, number, 0, 0).ljust(64) for number in range(20)] + [b"x" * 64]
    with closing(driver_of(protocol, "receiver")(url, group)) as reader:  # keeps a queue that deletes itself
        ready(reader)
        assert _look(url, group) == {}
        with closing(driver_of(protocol, "sender")(url, group)) as sender:
            send_all(sender, payloads, settled=False)
        reader.close()
        for _ in range(2):
            assert _look(url, group) == {group.shared_address: Counter({TAG: 1})}
    with closing(driver_of(protocol, "receiver")(url, group)) as reader:
        ready(reader)
        reader.begin()
        assert sorted(receive_all(reader, len(payloads))) == sorted(payloads)
        close_gracefully([reader])  # otherwise the broker may drop the acknowledgements
    with closing(driver_of(protocol, "sender")(url, group)) as sender:
        send_all(sender, payloads, settled=False)
    purging = msgspec.structs.replace(group, purge=True)
    assert _look(url, purging) == {group.shared_address: Counter({TAG: 20, UNSTAMPED: 1})}
    assert _look(url, group) == {}


def test_topics_and_temporary_queues_hold_nothing() -> None:
    groups = [
        Group(address="topic://t"),
        Group(address="queue://q?temporary=yes", protocol="amqp091"),
        Group(address="queue://m", protocol="mqtt"),
        Group(address="queue://l", protocol="mlmq"),  # a look would hide its message until the lease ends
    ]
    assert destinations_to_look_at(groups) == []
    kept = [Group(address="queue://a"), Group(address="queue://a"), Group(address="topic://t?subscription=me")]
    assert destinations_to_look_at(kept) == [kept[0], kept[2]]
