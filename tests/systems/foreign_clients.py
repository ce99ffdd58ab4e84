"""Third-party clients that send to a broker and receive from it. They share nothing with our codecs."""

import queue
import uuid
from collections.abc import Sequence
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import paho.mqtt.client as mqtt
import pika
from proton import Data, Link, Message, symbol
from proton.reactor import AtMostOnce, LinkOption
from proton.utils import BlockingConnection

import stomp

TIMEOUT_S = 20.0


class Capability(LinkOption):
    """Declares the terminus at the broker's end of a link a queue or a topic."""

    def __init__(self, name: str) -> None:
        self._name = name

    def apply(self, link: Link) -> None:
        terminus = link.target if link.is_sender else link.source
        terminus.capabilities.put_array(False, Data.SYMBOL)
        terminus.capabilities.enter()
        terminus.capabilities.put_symbol(symbol(self._name))
        terminus.capabilities.exit()


def through_amqp10(
    url: str, address: str, bodies: Sequence[str], *, receivers: int = 1, capability: str, presettled: bool = False
) -> list[list[str]]:
    """Send with Proton, and return what each receiver got: on a topic all messages, on a queue a share of them.

    A router stores no messages and accepts none before its receiver does, so messages to it must be pre-settled.
    """
    options = [Capability(capability)]
    connection = _proton(url)
    try:
        links = [
            connection.create_receiver(address, credit=len(bodies), name=uuid.uuid4().hex, options=options)
            for _ in range(receivers)
        ]
        sender = connection.create_sender(address, options=[*options, AtMostOnce()] if presettled else options)
        for body in bodies:
            sender.send(Message(body=body, durable=True), timeout=TIMEOUT_S)
        received: list[list[str]] = []
        for link in links:
            received.append([])
            for _ in range(len(bodies) if capability == "topic" else len(bodies) // receivers):
                received[-1].append(link.receive(timeout=TIMEOUT_S).body)
                if not presettled:
                    link.accept()
        return received
    finally:
        connection.close()


def send_amqp10(url: str, address: str, bodies: Sequence[str]) -> None:
    """Send with Proton and receive nothing."""
    connection = _proton(url)
    try:
        sender = connection.create_sender(address)
        for body in bodies:
            sender.send(Message(body=body, durable=True), timeout=TIMEOUT_S)
    finally:
        connection.close()


def through_stomp(url: str, destination: str, bodies: Sequence[str]) -> list[str]:
    """Send and receive with stomp.py."""
    parts = urlsplit(url)
    received_bodies: queue.Queue[str] = queue.Queue()

    class Listener(stomp.ConnectionListener):  # type: ignore[misc]
        def on_message(self, frame: Any) -> None:
            received_bodies.put(frame.body)

    connection = stomp.Connection12([(parts.hostname, parts.port)])
    connection.set_listener("", Listener())
    connection.connect(*_credentials(parts), wait=True)
    try:
        connection.subscribe(destination, id="1", ack="auto")
        for body in bodies:
            connection.send(destination, body, headers={"persistent": "true"})
        return [received_bodies.get(timeout=TIMEOUT_S) for _ in bodies]
    finally:
        connection.disconnect()


def through_mqtt(url: str, topic: str, bodies: Sequence[str]) -> list[str]:
    """Publish and receive with paho."""
    parts = urlsplit(url)
    subscribed: queue.Queue[bool] = queue.Queue()
    received_bodies: queue.Queue[str] = queue.Queue()
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=uuid.uuid4().hex)
    client.username_pw_set(*_credentials(parts))
    client.on_connect = lambda *_: client.subscribe(topic, qos=1)
    client.on_subscribe = lambda *_: subscribed.put(True)
    client.on_message = lambda _client, _data, message: received_bodies.put(message.payload.decode())
    client.connect(parts.hostname or "", parts.port or 0)
    client.loop_start()
    try:
        subscribed.get(timeout=TIMEOUT_S)
        for body in bodies:
            client.publish(topic, body, qos=1)
        return [received_bodies.get(timeout=TIMEOUT_S) for _ in bodies]
    finally:
        client.disconnect()
        client.loop_stop()


def through_amqp091(url: str, name: str, bodies: Sequence[str]) -> list[str]:
    """Publish to an existing queue and get from it, with pika."""
    parts = urlsplit(url)
    credentials = pika.PlainCredentials(*_credentials(parts))
    with pika.BlockingConnection(pika.ConnectionParameters(parts.hostname, parts.port, "/", credentials)) as connection:
        channel = connection.channel()
        channel.tx_select()
        for body in bodies:
            channel.basic_publish("", name, body.encode(), mandatory=True)
        channel.tx_commit()
        received = [channel.basic_get(name, auto_ack=True)[2].decode() for _ in bodies]
        channel.tx_commit()
        return received


def _proton(url: str) -> BlockingConnection:
    parts = urlsplit(url)
    user, password = _credentials(parts)
    return BlockingConnection(
        f"amqp://{parts.hostname}:{parts.port}",
        timeout=TIMEOUT_S,
        user=user or None,
        password=password or None,
        allowed_mechs="PLAIN" if user else "ANONYMOUS",
        allow_insecure_mechs=True,
    )


def _credentials(parts: SplitResult) -> tuple[str, str]:
    return unquote(parts.username or ""), unquote(parts.password or "")
