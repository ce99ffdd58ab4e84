"""Do the options of an address reach the system, as a foreign client sees it?"""

import secrets
from contextlib import closing
from typing import Any

import pika
import pytest
from proton.utils import BlockingConnection

from crescendo.load.protocols.registry import driver_of
from crescendo.model.payload import PayloadSize
from crescendo.model.protocols import protocol_of
from crescendo.model.workload import Group
from crescendo.systems.instance import RunningInstance
from pumping import pumped, ready

OPTIONS = "durable=yes&priority=4&ttl=60s"


def send_one(broker: RunningInstance, protocol: str, name: str) -> None:
    group = Group(
        address=f"queue://{name}?{OPTIONS}", protocol=protocol, size=PayloadSize.fixed(64), properties={"colour": "red"}
    )
    for batching in (True, False):
        driver: Any = driver_of(protocol, "sender")
        with closing(
            ready(driver(broker.endpoints[protocol_of(protocol).endpoint], group, batching=batching))
        ) as sender:
            sender.bodies[0] = 7
            sender.send(0, 1)
            while not pumped(sender):
                pass


@pytest.mark.parametrize("protocol", ["amqp091", "stomp"])
def test_pika_sees_the_options(rabbitmq: RunningInstance, protocol: str) -> None:
    name = f"options-{secrets.token_hex(6)}"
    send_one(rabbitmq, protocol, name)
    with closing(
        pika.BlockingConnection(pika.URLParameters(rabbitmq.endpoints["amqp091"].replace("amqp091", "amqp")))
    ) as foreign:
        channel = foreign.channel()
        for _ in range(2):
            _, properties, body = channel.basic_get(name, auto_ack=True)
            assert body == b"\x07" * 64
            assert (properties.delivery_mode, properties.priority, properties.expiration) == (2, 4, "60000")
            assert properties.headers["colour"] == "red"
        channel.queue_delete(name)


@pytest.mark.shares("rabbitmq", "artemis")
@pytest.mark.parametrize(("kind", "protocol"), [("rabbitmq", "amqp10"), ("artemis", "openwire"), ("artemis", "core")])
def test_proton_sees_the_options(request: pytest.FixtureRequest, kind: str, protocol: str) -> None:
    broker: RunningInstance = request.getfixturevalue(kind)
    name = f"options-{secrets.token_hex(6)}"
    send_one(broker, protocol, name)
    foreign = BlockingConnection(broker.endpoints["amqp"], timeout=30, allowed_mechs="PLAIN")
    try:
        receiver = foreign.create_receiver(name)
        for _ in range(2):
            message = receiver.receive()
            receiver.accept()
            assert bytes(message.body) == b"\x07" * 64
            assert (message.durable, message.priority) == (True, 4)
            assert 0 < message.ttl <= 60
            assert message.properties["colour"] == "red"
    finally:
        foreign.close()
