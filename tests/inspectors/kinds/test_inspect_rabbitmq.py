"""RabbitMQ, compared with what a pika client did and with /proc."""

import re
from collections.abc import Iterator
from contextlib import closing

import pika
import pytest

from crescendo.inspectors.base import InspectionTarget
from crescendo.inspectors.kinds.rabbitmq import RabbitInspector
from crescendo.model.errors import PeerError
from crescendo.systems.base import Instance
from inspecting import inspect_until, values_of

SENT, TAKEN, HELD = 11, 4, 2
CLIENT = "the one that is watched"


@pytest.fixture
def inspector(rabbitmq: Instance) -> Iterator[RabbitInspector]:
    with closing(RabbitInspector(InspectionTarget(rabbitmq.endpoints))) as inspector:
        yield inspector


def test_a_queue_counts_what_a_client_published_acknowledged_held_and_left(
    rabbitmq: Instance, inspector: RabbitInspector
) -> None:
    connection = connected(rabbitmq)
    channel = connection.channel()
    channel.queue_declare("watched", durable=True)
    channel.confirm_delivery()
    for _ in range(SENT):
        channel.basic_publish("", "watched", bytes(100), pika.BasicProperties(delivery_mode=2))
    for number in range(TAKEN + HELD):
        method, _, _ = channel.basic_get("watched")
        assert method is not None
        if number < TAKEN:
            channel.basic_ack(method.delivery_tag)
    queue = "queue/watched"
    inspection = inspect_until(
        inspector,
        {
            (queue, "messages"): SENT - TAKEN,
            (queue, "message_bytes"): (SENT - TAKEN) * 100,
            (queue, "messages_ready"): SENT - TAKEN - HELD,
            (queue, "messages_unacknowledged"): HELD,
            (queue, "message_stats.publish"): SENT,
            (queue, "message_stats.ack"): TAKEN,
            (queue, "durable"): 1,
            (queue, "consumers"): 0,
        },
    )
    values = values_of(inspection)
    node = next(entity for entity, _ in values if entity.startswith("node/"))
    assert 0 < values[node, "mem_used"] < values[node, "mem_limit"]
    assert values[node, "mem_alarm"] == 0
    names = [key[0] for key, text in inspection.texts.items() if (key[1], text) == ("user_provided_name", CLIENT)]
    (client,) = names
    assert inspection.texts[client, "user"] == "crescendo"
    inspect_until(inspector, {(client, "channels"): 1, (client, "flow"): 0, (client, "blocked"): 0})
    connection.close()


def test_a_consumer_is_counted_while_it_is_connected(rabbitmq: Instance, inspector: RabbitInspector) -> None:
    connection = connected(rabbitmq)
    channel = connection.channel()
    channel.queue_declare("consumed")
    channel.basic_consume("consumed", lambda *_: None)
    inspect_until(inspector, {("queue/consumed", "consumers"): 1})
    connection.close()
    inspect_until(inspector, {("queue/consumed", "consumers"): 0})


def test_a_wrong_password_is_reported_without_the_password(rabbitmq: Instance) -> None:
    url = re.sub(r":[^:/@]+@", ":wrong-one@", rabbitmq.endpoints["management"])
    with pytest.raises(PeerError, match="denies access to this user") as failure:
        RabbitInspector(InspectionTarget({"management": url})).inspect()
    assert "wrong-one" not in str(failure.value)


def connected(rabbitmq: Instance) -> pika.BlockingConnection:
    url = re.sub(r"^\w+://", "amqp://", rabbitmq.endpoints["amqp091"]).rstrip("/") + "/%2F"
    parameters = pika.URLParameters(url)
    parameters.client_properties = {"connection_name": CLIENT}
    return pika.BlockingConnection(parameters)
