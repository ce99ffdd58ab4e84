"""Third-party clients, as senders to a null sink and as receivers from a null source.

They run in a process of their own, which exits without a close handshake once everything is written or read: most would
wait for the answer, and a sink that only counts bytes sends none. Received bodies are printed, one per line.
"""

import os
import queue
import socket
import struct
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


class _OpenWire:
    """Frames of version 1, by hand from the specification: no OpenWire client for Python exists."""

    connection = b"\x01\x00\x01c"
    queue = b"\x01\x64\x01" + struct.pack(">H", len(NAME)) + NAME.encode()

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), TIMEOUT_S)
        self._stream = self._socket.makefile("rb")
        self.write(b"\x01ActiveMQ" + struct.pack(">i?", 1, False))
        assert self.read()[:9] == b"\x01ActiveMQ"
        self.ask(3, b"\x01\x78" + self.connection + bytes(6))
        self.ask(4, b"\x01\x79" + self.connection + struct.pack(">q", 1))

    def write(self, octets: bytes) -> None:
        self._socket.sendall(struct.pack(">I", len(octets)) + octets)

    def read(self) -> bytes:
        return self._stream.read(int.from_bytes(self._stream.read(4), "big"))

    def ask(self, code: int, fields: bytes) -> None:
        """Send a command and wait for its response."""
        self.write(struct.pack(">Bi?", code, code, True) + fields)
        answer = self.read()
        assert (answer[0], int.from_bytes(answer[6:10], "big")) == (30, code)


def openwire_sends(port: int, bodies: list[bytes]) -> None:
    client = _OpenWire(port)
    producer = b"\x01\x7b" + client.connection + struct.pack(">qq", 1, 1)
    client.ask(6, producer + client.queue + b"\0")
    for number, body in enumerate(bodies):
        message_id = b"\x01\x6e" + producer + struct.pack(">qq", number, 0)
        header = producer + client.queue + bytes(2) + message_id + bytes(2 + 4 + 1 + 1 + 8 + 1 + 1 + 8 + 1)
        content = b"\x01" + struct.pack(">i", len(body)) + body
        rest = bytes(3 + 1 + 4 + 1 + 8 + 1 + 1)
        client.write(struct.pack(">Bi?", 24, number, False) + header + content + rest)


def openwire_receives(port: int, count: int) -> list[bytes]:
    client = _OpenWire(port)
    consumer = b"\x01\x7a" + client.connection + struct.pack(">qq", 1, 1)
    client.ask(5, consumer + b"\0" + client.queue + struct.pack(">ii", count, 0) + bytes(1 + 2 + 3 + 1 + 2 + 3))
    bodies = []
    while len(bodies) < count:
        octets = client.read()
        assert octets.startswith(b"\x15" + bytes(5) + consumer + client.queue + b"\x01\x18")
        # After content and its length: two absent structures, absent properties, and the fields of constant length.
        end = len(octets) - (3 + 1 + 4 + 1 + 8 + 1 + 1) - 4
        start = octets.index(b"\xc5\x01")  # of the stamp
        assert octets[start - 5 : start] == b"\x01" + struct.pack(">i", end - start)
        bodies.append(octets[start:end])
    return bodies


class _Core:
    """Packets of version 130, by hand from the sources of Artemis: no client of Core for Python exists."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), TIMEOUT_S)
        self._stream = self._socket.makefile("rb")
        self._socket.sendall(b"ARTEMIS")
        session = struct.pack(">i", 1) + "s".encode("utf-16-be") + struct.pack(">qi", 10, 130) + bytes(2)
        self.write(30, session + struct.pack(">i???i?", 10**6, False, True, True, -1, False) + b"\0", channel=1)
        assert self.read(31) == struct.pack(">qi", 1, 136)

    def write(self, code: int, fields: bytes, channel: int = 10) -> None:
        self._socket.sendall(struct.pack(">ibq", 9 + len(fields), code, channel) + fields)

    def read(self, code: int) -> bytes:
        """The channel and the fields of the next packet, which must be of this type."""
        octets = self._stream.read(int.from_bytes(self._stream.read(4), "big"))
        assert octets[0] == code
        return octets[1:]


CORE_NAME = struct.pack(">i", 2 * len(NAME)) + NAME.encode("utf-16-le")


def core_sends(port: int, bodies: list[bytes]) -> None:
    client = _Core(port)
    client.write(79, struct.pack(">i", 1000) + CORE_NAME)
    granted = 0
    while granted < 2**37:  # the sink grants more than any trial needs, because it cannot grant it later
        answer = client.read(80)
        assert answer[12:] == CORE_NAME
        granted += int.from_bytes(answer[8:12], "big")
    for number, body in enumerate(bodies):
        headers = struct.pack(">qb", 0, 1) + CORE_NAME + b"\0" + struct.pack(">b?qqb", 4, False, 0, 0, 4) + b"\0"
        client.write(71, struct.pack(">i", 13 + len(body)) + body + headers + struct.pack(">?q", False, number))


def core_receives(port: int, count: int) -> list[bytes]:
    client = _Core(port)
    client.write(40, struct.pack(">q", 3) + CORE_NAME + b"\0" + struct.pack(">??i", False, True, 0))
    assert client.read(-14 & 0xFF)[8] == 1  # the queue exists
    client.write(70, struct.pack(">qi", 3, 1 << 30))
    client.write(67, b"")
    bodies = []
    for _ in range(count):
        octets = client.read(75)[8:]
        length = int.from_bytes(octets[:4], "big") - 13
        assert octets[4 + length + 8 :].startswith(b"\1" + CORE_NAME)
        assert octets[-12:] == struct.pack(">qi", 3, 1)
        bodies.append(octets[4 : 4 + length])
    return bodies


SENDERS = {
    "amqp10": proton_sends, "amqp091": pika_sends, "stomp": stomp_sends, "mqtt": paho_sends,
    "openwire": openwire_sends, "core": core_sends,
}  # fmt: skip
RECEIVERS = {
    "amqp10": proton_receives, "amqp091": pika_receives, "stomp": stomp_receives, "mqtt": paho_receives,
    "openwire": openwire_receives, "core": core_receives,
}  # fmt: skip


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
