"""Third-party clients, as senders to a null sink and as receivers from a null source.

They run in a process of their own, which exits without a close handshake once everything is written or read: most would
wait for the answer, and a sink that only counts bytes sends none. Received bodies are printed, one per line.
"""

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable

import paho.mqtt.client as paho
import pika
from proton import Delivery, Message
from proton.handlers import MessagingHandler
from proton.reactor import AtMostOnce, Container

import stomp

NAME = "perf"
HOST = "127.0.0.1"
TIMEOUT_S = 20


def pika_sends(port: int, bodies: list[bytes]) -> None:
    connection = pika.BlockingConnection(pika.ConnectionParameters(HOST, port))
    channel = connection.channel()
    channel.queue_declare(NAME, passive=True)
    for body in bodies:
        channel.basic_publish("", NAME, body)  # returns when the message is written


def pika_receives(port: int, count: int) -> list[bytes]:
    connection = pika.BlockingConnection(pika.ConnectionParameters(HOST, port))
    channel = connection.channel()
    channel.queue_declare(NAME, passive=True)
    bodies: list[bytes] = []
    for _, _, body in channel.consume(NAME, auto_ack=True):
        bodies.append(body)
        if len(bodies) == count:
            break
    return bodies


def paho_sends(port: int, bodies: list[bytes]) -> None:
    client = _paho(port)
    for body in bodies:
        client.publish(NAME, body, qos=0).wait_for_publish(TIMEOUT_S)


def paho_receives(port: int, count: int) -> list[bytes]:
    arrived: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    client = _paho(port, lambda _client, _data, message: arrived.put(message.payload))
    client.subscribe(NAME, qos=0)
    return [arrived.get(timeout=TIMEOUT_S) for _ in range(count)]


def _paho(port: int, on_message: Callable[..., None] | None = None) -> paho.Client:
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    client.on_message = on_message
    connected = threading.Event()
    client.on_connect = lambda *_: connected.set()
    client.connect(HOST, port)
    client.loop_start()
    assert connected.wait(TIMEOUT_S)
    return client


def stomp_sends(port: int, bodies: list[bytes]) -> None:
    connection = stomp.Connection12([(HOST, port)])
    connection.connect(wait=True)
    for body in bodies:
        connection.send(f"/queue/{NAME}", body)


class _Listener(stomp.ConnectionListener):
    def __init__(self) -> None:
        self.arrived: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def on_message(self, frame: stomp.utils.Frame) -> None:
        self.arrived.put(frame.body)


def stomp_receives(port: int, count: int) -> list[bytes]:
    connection = stomp.Connection12([(HOST, port)], auto_decode=False)
    listener = _Listener()
    connection.set_listener("", listener)
    connection.connect(wait=True)
    connection.subscribe(f"/queue/{NAME}", id="7", ack="auto")
    return [listener.arrived.get(timeout=TIMEOUT_S) for _ in range(count)]


class _ProtonSender(MessagingHandler):
    def __init__(self, url: str, bodies: list[bytes]) -> None:
        super().__init__()
        self._url, self._bodies = url, bodies

    def on_start(self, event) -> None:  # type: ignore[no-untyped-def]
        event.container.create_sender(f"{self._url}/{NAME}", options=AtMostOnce())

    def on_sendable(self, event) -> None:  # type: ignore[no-untyped-def]
        self._transport = event.transport
        for body in self._bodies:
            event.sender.send(Message(body=body))
        if self._bodies:
            self._bodies = []
            event.container.schedule(0.05, self)

    def on_timer_task(self, event) -> None:  # type: ignore[no-untyped-def]
        if self._transport.pending() > 0:
            event.container.schedule(0.05, self)
        else:
            event.container.stop()


class _ProtonReceiver(MessagingHandler):
    def __init__(self, url: str, count: int) -> None:
        super().__init__(prefetch=count)
        self._url, self._count = url, count
        self.bodies: list[bytes] = []

    def on_start(self, event) -> None:  # type: ignore[no-untyped-def]
        event.container.create_receiver(f"{self._url}/{NAME}")

    def on_message(self, event) -> None:  # type: ignore[no-untyped-def]
        assert isinstance(event.delivery, Delivery)
        assert event.delivery.settled
        self.bodies.append(bytes(event.message.body))
        if len(self.bodies) == self._count:
            event.container.stop()


def proton_sends(port: int, bodies: list[bytes]) -> None:
    Container(_ProtonSender(f"amqp://{HOST}:{port}", bodies)).run()


def proton_receives(port: int, count: int) -> list[bytes]:
    receiver = _ProtonReceiver(f"amqp://{HOST}:{port}", count)
    Container(receiver).run()
    return receiver.bodies[:count]


SENDERS = {"amqp10": proton_sends, "amqp091": pika_sends, "stomp": stomp_sends, "mqtt": paho_sends}
RECEIVERS = {"amqp10": proton_receives, "amqp091": pika_receives, "stomp": stomp_receives, "mqtt": paho_receives}


def run(verb: str, protocol: str, port: int, count: int, size: int) -> list[bytes]:
    """Run one client to its end; returns the bodies that it received."""
    command = [sys.executable, __file__, verb, protocol, str(port), str(count), str(size)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return [bytes.fromhex(line) for line in done.stdout.split()]


def main(verb: str, protocol: str, port: str, count: str, size: str) -> None:
    if verb == "sends":
        SENDERS[protocol](int(port), [bytes((number % 256,)) * int(size) for number in range(int(count))])
    else:
        for body in RECEIVERS[protocol](int(port), int(count)):
            print(body.hex())
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
