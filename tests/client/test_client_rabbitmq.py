"""The small client against a real broker: which messages it leaves alone, and how it reports a refusal."""

import re
import time
from contextlib import closing

import pika
import pytest

from crescendo.client.amqp10 import Amqp10Client, pass_a_message
from crescendo.model.errors import PeerError
from crescendo.systems.base import Instance

TIMEOUT_S = 10.0


def test_messages_of_other_senders_stay_in_the_queue_in_order(rabbitmq: Instance) -> None:
    url = re.sub(r"^\w+://", "amqp://", rabbitmq.endpoints["amqp091"]).rstrip("/") + "/%2F"
    with closing(pika.BlockingConnection(pika.URLParameters(url))) as connection:
        channel = connection.channel()
        channel.queue_declare("others")
        channel.confirm_delivery()
        theirs = [b"theirs %d" % number for number in range(5)]
        for body in theirs:
            channel.basic_publish("", "others", body)
        pass_a_message(rabbitmq.url, "/amq/queue/others", TIMEOUT_S)
        left: list[bytes] = []
        deadline_s = time.monotonic() + TIMEOUT_S
        while len(left) < len(theirs) and time.monotonic() < deadline_s:  # RabbitMQ puts them back a little later
            body = channel.basic_get("others", auto_ack=True)[2]
            left += [] if body is None else [body]
        assert left == theirs
        assert channel.basic_get("others", auto_ack=True)[2] is None


def test_a_refused_address_quotes_the_broker(rabbitmq: Instance) -> None:
    with (
        Amqp10Client(rabbitmq.url, TIMEOUT_S) as client,
        pytest.raises(PeerError, match=r"127\.0\.0\.1:\d+: the system"),
    ):
        client.receive("/no-such-thing/at/all")


def test_an_authentication_failure_does_not_show_the_password(rabbitmq: Instance) -> None:
    url = re.sub(r":[^:/@]+@", ":wrong-one@", rabbitmq.url)
    with pytest.raises(PeerError) as failure:
        pass_a_message(url, "perf", TIMEOUT_S)
    assert "wrong-one" not in str(failure.value)
