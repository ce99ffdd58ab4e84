"""Do the drivers of all four protocols carry every message over TLS, and report why they cannot?"""

import select
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from crescendo.load.protocols.registry import driver_of
from crescendo.model.errors import PeerError
from crescendo.model.payload import PayloadSize
from crescendo.model.workload import Group
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.systems.instance import RunningInstance, start
from crescendo.systems.registry import system_of

TIMEOUT_S = 60.0
COUNT, SIZE = 5_000, 256
ENDPOINTS = {"amqp10": "amqps", "amqp091": "amqp091s", "stomp": "stomp+ssl", "mqtt": "mqtts"}


@pytest.fixture(scope="module")
def strict_mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningInstance]:
    tls, directory = {"client_certificates": "required"}, tmp_path_factory.mktemp("mosquitto") / "instance"
    instance = start(system_of("mosquitto"), {"tls": tls}, directory=directory, on_fork=die_with_parent())
    yield instance
    instance.stop()


def group_of(protocol: str) -> Group:
    kind = "topic" if protocol == "mqtt" else "queue"
    return Group(address=f"{kind}://tls-{uuid.uuid4().hex}", protocol=protocol, size=PayloadSize.fixed(SIZE))


def pumped(*channels: Any) -> list[list[Any]]:
    """Everything that arrived, by channel. Polls only file descriptors, which never show pending data, so a driver that
    left data pending would wait here in vain."""
    waiting = [channel for channel in channels if not channel.flush()]
    if not any(channel.pending for channel in channels):
        select.select(channels, waiting, [], TIMEOUT_S)
    found = []
    for channel in channels:
        items = list(channel.pump())
        assert channel.closed is None, channel.closed
        found.append(
            [[row.tobytes() for row in item.payloads] if hasattr(item, "payloads") else item for item in items]
        )
    return found


def until_ready(channel: Any) -> Any:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not channel.ready and channel.closed is None:
        assert time.monotonic() < deadline_s, "it is not ready"
        channel.flush()
        select.select([channel], [], [], 0.05)
        list(channel.pump())
    return channel


@pytest.mark.parametrize("protocol", list(ENDPOINTS))
def test_every_message_arrives_once_in_order_and_is_settled(secure_rabbitmq: RunningInstance, protocol: str) -> None:
    url, group = secure_rabbitmq.endpoints[ENDPOINTS[protocol]].partition("&cert=")[0], group_of(protocol)
    bodies = np.random.default_rng(5).integers(0, 256, (COUNT, SIZE), np.uint8)
    with (
        closing(driver_of(protocol, "receiver")(url, group)) as receiver,
        closing(driver_of(protocol, "sender")(url, group)) as sender,
    ):
        until_ready(receiver)
        until_ready(sender)
        assert (receiver.closed, sender.closed) == (None, None)
        receiver.begin()
        sent, settled = 0, 0
        received: list[bytes] = []
        deadline_s = time.monotonic() + TIMEOUT_S
        while len(received) < COUNT or settled < COUNT:
            assert time.monotonic() < deadline_s, f"{sent} sent, {settled} settled, {len(received)} received"
            count = min(sender.room(), COUNT - sent)
            if count:
                sender.bodies[:count] = bodies[sent : sent + count]
                sender.send(sent, count)
                sent += count
            outcomes, arrived = pumped(sender, receiver)
            receiver.settle()
            settled += sum(len(outcome.seqs) for outcome in outcomes)
            received += [body for batch in arrived for body in batch]
    assert received == [row.tobytes() for row in bodies]
    assert settled == COUNT


@pytest.mark.parametrize("protocol", list(ENDPOINTS))
def test_an_untrusted_system_certificate_is_refused(secure_rabbitmq: RunningInstance, protocol: str) -> None:
    url = secure_rabbitmq.endpoints[ENDPOINTS[protocol]].partition("?")[0]
    with pytest.raises(PeerError, match=r"127\.0\.0\.1:\d+: certificate verify failed: "):
        driver_of(protocol, "sender")(url, group_of(protocol))


def test_a_missing_client_certificate_is_reported_with_the_systems_alert(strict_mosquitto: RunningInstance) -> None:
    group, url = group_of("mqtt"), strict_mosquitto.endpoints["mqtts"]
    dial = driver_of("mqtt", "sender")
    with closing(dial(url, group)) as sender:
        assert until_ready(sender).closed is None
    with closing(dial(url.partition("&cert=")[0], group)) as sender:
        assert "the system ended TLS with the alert: certificate required" in until_ready(sender).closed
