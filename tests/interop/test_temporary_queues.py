"""Is a temporary queue gone when its last receiver has left, and not before?

The broker's own management says which queues there are.
"""

import json
import time
import urllib.request
import uuid
from base64 import b64encode
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import pytest

from crescendo.load.engine.graceful_close import close_gracefully
from crescendo.load.protocols.registry import driver_of
from crescendo.model.payload import PayloadSize
from crescendo.model.workload import Group
from crescendo.systems.instance import RunningInstance
from pumping import TIMEOUT_S, ready, receive_all, send_all

PAIRS = [
    ("rabbitmq", "amqp091", "amqp091"), ("qpid_broker_j", "amqp091", "amqp091"), ("rabbitmq", "stomp", "stomp"),
    ("artemis", "openwire", "openwire"), ("activemq", "openwire", "openwire"), ("artemis", "core", "core"),
    ("artemis", "mqtt", "mqtt"),
]  # fmt: skip
PAYLOADS = [bytes([number]) * 64 for number in range(20)]


def _ask(instance: RunningInstance, path: str) -> Any:
    parts = urlsplit(instance.endpoints["management"])
    request = urllib.request.Request(f"http://{parts.hostname}:{parts.port}{parts.path.rstrip('/')}{path}")
    secret = b64encode(f"{unquote(parts.username or '')}:{unquote(parts.password or '')}".encode()).decode()
    request.add_header("Authorization", f"Basic {secret}")
    request.add_header("Origin", "http://localhost")  # Jolokia wants one
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
        return json.load(answer)


def _jolokia(instance: RunningInstance, pattern: str) -> list[str]:
    found: list[str] = _ask(instance, f"/search/{quote(pattern)}")["value"]
    return found


NAMES: dict[str, Callable[[RunningInstance], list[str]]] = {
    "rabbitmq": lambda broker: [queue["name"] for queue in _ask(broker, "/api/queues")],
    "qpid_broker_j": lambda broker: [queue["name"] for queue in _ask(broker, "/api/latest/queue")],
    "artemis": lambda broker: _jolokia(broker, "org.apache.activemq.artemis:component=addresses,subcomponent=queues,*"),
    "activemq": lambda broker: _jolokia(broker, "org.apache.activemq:type=Broker,destinationType=Queue,*"),
}


def _exists(broker: str, instance: RunningInstance, name: str) -> bool:
    return any(name in queue for queue in NAMES[broker](instance))


@pytest.mark.shares("rabbitmq", "artemis", "activemq", "qpid_broker_j")
@pytest.mark.parametrize(("broker", "protocol", "endpoint"), PAIRS, ids=[f"{pair[0]}-{pair[1]}" for pair in PAIRS])
def test_a_temporary_queue_ends_with_its_last_receiver(
    broker: str, protocol: str, endpoint: str, request: pytest.FixtureRequest
) -> None:
    instance: RunningInstance = request.getfixturevalue(broker)
    url, name = instance.endpoints[endpoint], f"temporary-{uuid.uuid4().hex[:8]}"
    group = Group(address=f"queue://{name}?temporary=yes", protocol=protocol, size=PayloadSize.fixed(64))
    receiver, sender = driver_of(protocol, "receiver"), driver_of(protocol, "sender")
    with ExitStack() as stack:
        first, last = (ready(stack.enter_context(closing(receiver(url, group)))) for _ in range(2))
        first.begin()
        last.begin()
        sending = stack.enter_context(closing(sender(url, group)))
        send_all(sending, PAYLOADS, settled=False)
        close_gracefully([sending, first])
        assert _exists(broker, instance, name)
        receive_all(last, 1)
        close_gracefully([last])
    deadline_s = time.monotonic() + TIMEOUT_S
    while _exists(broker, instance, name):
        assert time.monotonic() < deadline_s, "the queue is still there"
        time.sleep(0.1)


@pytest.mark.parametrize("broker", ["artemis", "activemq"])
@pytest.mark.shares("artemis", "activemq")
def test_stomp_brokers_that_cannot_delete_a_queue_say_so(broker: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue(broker).endpoints["stomp"]
    group = Group(address="queue://temporary-refused?temporary=yes", protocol="stomp")
    with closing(driver_of("stomp", "receiver")(url, group)) as channel:
        with pytest.raises(AssertionError, match="temporary queues over STOMP are not supported with ActiveMQ"):
            ready(channel)
        assert channel.closed is not None
