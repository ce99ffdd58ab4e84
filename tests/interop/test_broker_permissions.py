"""Are the permissions that docs/systems.md lists for RabbitMQ enough, and is each of them needed?"""

import json
import urllib.request
import uuid
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import pytest

from crescendo.load.engine.graceful_close import close_gracefully
from crescendo.load.protocols.registry import driver_of
from crescendo.model.payload import PayloadSize
from crescendo.model.workload import Group
from crescendo.systems.instance import RunningInstance
from pumping import ready, receive_all, send_all

PREFIX = "permitted-"
PAYLOADS = [bytes([number]) * 64 for number in range(3)]


class Permissions(NamedTuple):
    """Regular expressions of the names that an account may configure, write and read."""

    configure: str
    write: str
    read: str


ON_QUEUES = Permissions(f"^{PREFIX}", r"^amq\.default$", f"^{PREFIX}")


def _on_topics(queues: str) -> Permissions:
    return Permissions(f"^{queues}", rf"^({queues}|amq\.topic$)", rf"^({queues}|amq\.topic$)")


WAYS = [
    ("amqp091", "amqp091", "queue", ON_QUEUES), ("amqp091", "amqp091", "topic", _on_topics(r"amq\.gen-")),
    ("amqp10", "amqp", "queue", ON_QUEUES), ("amqp10", "amqp", "topic", _on_topics(r"amq\.gen-")),
    ("stomp", "stomp", "queue", ON_QUEUES), ("stomp", "stomp", "topic", _on_topics("stomp-subscription-")),
    ("mqtt", "mqtt", "topic", _on_topics("mqtt-subscription-")),
]  # fmt: skip


class Account:
    """An account of RabbitMQ without any rights but those that a test gives it."""

    def __init__(self, rabbitmq: RunningInstance) -> None:
        self._broker = rabbitmq
        self.name = f"limited-{uuid.uuid4().hex[:8]}"
        self._ask("PUT", f"users/{self.name}", {"password": "limited", "tags": ""})

    def permit(self, permissions: Permissions) -> None:
        self._ask("PUT", f"permissions/%2F/{self.name}", permissions._asdict())

    def url(self, endpoint: str) -> str:
        parts = urlsplit(self._broker.endpoints[endpoint])
        return f"{parts.scheme}://{self.name}:limited@{parts.hostname}:{parts.port}"

    def delete(self) -> None:
        self._ask("DELETE", f"users/{self.name}")

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> None:
        parts = urlsplit(self._broker.endpoints["management"])
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{parts.hostname}:{parts.port}/api/{path}", data, method=method)
        secret = b64encode(f"{unquote(parts.username or '')}:{unquote(parts.password or '')}".encode()).decode()
        request.add_header("Authorization", f"Basic {secret}")
        request.add_header("Content-Type", "application/json")
        urllib.request.urlopen(request, timeout=30).close()  # noqa: S310


@pytest.fixture
def account(rabbitmq: RunningInstance) -> Iterator[Account]:
    made = Account(rabbitmq)
    yield made
    made.delete()


def _passes(url: str, protocol: str, node: str) -> bool:
    """Whether messages pass. False: the broker closed a connection."""
    group = Group(address=node, protocol=protocol, size=PayloadSize.fixed(64))
    channels: list[Any] = []
    with ExitStack() as stack:
        try:
            for role in ("receiver", "sender"):
                channels.append(stack.enter_context(closing(driver_of(protocol, role)(url, group))))
                ready(channels[-1])
            channels[0].begin()
            send_all(channels[1], PAYLOADS, settled=False)
            received = receive_all(channels[0], len(PAYLOADS))
        except AssertionError:
            if all(channel.closed is None for channel in channels):
                raise
            return False
        close_gracefully(channels)
        return sorted(received) == PAYLOADS


@pytest.mark.parametrize(("protocol", "endpoint", "kind", "needed"), WAYS, ids=[f"{way[0]}-{way[2]}" for way in WAYS])
def test_the_listed_permissions_are_enough_and_each_is_needed(
    protocol: str, endpoint: str, kind: str, needed: Permissions, account: Account
) -> None:
    def passes(permissions: Permissions) -> bool:
        account.permit(permissions)
        return _passes(account.url(endpoint), protocol, f"{kind}://{PREFIX}{uuid.uuid4().hex[:8]}")

    assert passes(needed)
    for right in Permissions._fields:
        assert not passes(needed._replace(**{right: "^$"})), f"{right} is not needed"
