"""Does closing take no longer than the system needs to answer?"""

import secrets
import time

import pytest

from crescendo.load.engine.graceful_close import close_gracefully
from crescendo.load.protocols.registry import driver_of
from crescendo.model.payload import PayloadSize
from crescendo.model.protocols import protocol_of
from crescendo.model.workload import Group
from crescendo.systems.instance import RunningInstance
from pumping import pumped, ready

pytestmark = pytest.mark.shares("rabbitmq", "artemis")


@pytest.mark.parametrize(
    ("broker", "protocol"),
    [
        *(("rabbitmq", protocol) for protocol in ("amqp10", "amqp091", "stomp", "mqtt")),
        ("artemis", "openwire"),
        ("artemis", "core"),
    ],
)
def test_senders_close_when_the_system_has_answered(request: pytest.FixtureRequest, broker: str, protocol: str) -> None:
    """Over AMQP, RabbitMQ answers and waits for us to close the socket; waiting for it would delay the end of a run."""
    kind = "topic" if protocol == "mqtt" else "queue"
    group = Group(address=f"{kind}://{secrets.token_hex(6)}", protocol=protocol, size=PayloadSize.fixed(64))
    instance: RunningInstance = request.getfixturevalue(broker)
    sender = ready(driver_of(protocol, "sender")(instance.endpoints[protocol_of(protocol).endpoint], group))
    sender.bodies[0] = 7
    sender.send(0, 1)
    while not pumped(sender):
        pass
    begun_s = time.monotonic()
    close_gracefully([sender], timeout_s=60)
    assert time.monotonic() - begun_s < 30


@pytest.mark.parametrize("protocol", ["amqp10", "amqp091"])
def test_receivers_close_as_soon_and_their_acknowledgements_hold(rabbitmq: RunningInstance, protocol: str) -> None:
    """RabbitMQ waits here too; a receiver that closed too early would leave its messages to the next one."""
    group = Group(address=f"queue://{secrets.token_hex(6)}", protocol=protocol, size=PayloadSize.fixed(64))
    url = rabbitmq.endpoints[protocol_of(protocol).endpoint]
    first = ready(driver_of(protocol, "receiver")(url, group))
    first.begin()
    sender = ready(driver_of(protocol, "sender")(url, group))
    for number in range(50):
        sender.bodies[0] = number
        sender.send(number, 1)
    arrived = 0
    while arrived < 50:
        pumped(sender, 0)
        arrived += sum(map(len, pumped(first)))
    begun_s = time.monotonic()
    close_gracefully([first, sender], timeout_s=60)
    assert time.monotonic() - begun_s < 30
    last = ready(driver_of(protocol, "receiver")(url, group))
    last.begin()
    until_s = time.monotonic() + 0.3
    while time.monotonic() < until_s:
        assert not pumped(last), "acknowledged, and delivered again"
    close_gracefully([last])
