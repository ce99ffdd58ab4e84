"""Third-party clients, as senders and receivers of a number of messages, to compare ours with.

Each is used as its authors recommend for throughput: many messages in flight, no waiting for single ones. They settle
as ours do: AMQP 1.0 unsettled and accepted, publisher confirms with cumulative acknowledgements, QoS 1, a receipt for
every message with cumulative acknowledgements.
"""

import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import paho.mqtt.client as paho
import pika
from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

import stomp
from bench.engines import FORK, Child
from crescendo.calibrate.engine_trial import TrialResult, cpu_seconds

PREFETCH = 4000
WINDOW = 4000
ACK_EVERY = 256
_TIMEOUT_S = 100.0


class Job(NamedTuple):
    """A number of messages of one size, to one destination at one URL."""

    url: str
    name: str
    messages: int
    size: int
    window: int = WINDOW
    prefetch: int = PREFETCH
    ack_every: int = ACK_EVERY
    qos: int = 1


Ready = Callable[[], None]


class ProtonSender(MessagingHandler):
    """Sends whenever there is credit; ends when everything is settled."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self._job = job
        self._sent = self._settled = 0

    def on_start(self, event: Any) -> None:
        event.container.create_sender(f"{self._job.url}/{self._job.name}")

    def on_sendable(self, event: Any) -> None:
        while event.sender.credit and self._sent < self._job.messages:
            event.sender.send(Message(body=b"x" * self._job.size))
            self._sent += 1

    def on_settled(self, event: Any) -> None:
        self._settled += 1
        if self._settled == self._job.messages:
            event.connection.close()


class ProtonReceiver(MessagingHandler):
    """Receives a number of messages."""

    def __init__(self, job: Job, ready: Ready) -> None:
        super().__init__(prefetch=job.prefetch)
        self._job = job
        self._ready = ready
        self._remaining = job.messages

    def on_start(self, event: Any) -> None:
        event.container.create_receiver(f"{self._job.url}/{self._job.name}")

    def on_link_opened(self, _event: Any) -> None:
        self._ready()

    def on_message(self, event: Any) -> None:
        self._remaining -= 1
        if self._remaining == 0:
            event.connection.close()


def proton_sends(job: Job) -> None:
    Container(ProtonSender(job)).run()


def proton_receives(job: Job, ready: Ready) -> None:
    Container(ProtonReceiver(job, ready)).run()


class PikaSender:
    """Publishes in a window and counts confirms, on pika's event loop."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._sent = self._confirmed = 0
        self._connection = pika.SelectConnection(
            _pika_parameters(job.url),
            on_open_callback=lambda connection: connection.channel(on_open_callback=self._on_channel_open),
        )
        self._connection.ioloop.start()

    def _on_channel_open(self, channel: Any) -> None:
        self._channel = channel
        channel.queue_declare(self._job.name, passive=True, callback=self._on_declared)

    def _on_declared(self, _frame: Any) -> None:
        self._channel.confirm_delivery(self._on_confirm, callback=lambda _: self._publish())

    def _on_confirm(self, frame: Any) -> None:
        method = frame.method
        self._confirmed = method.delivery_tag if method.multiple else self._confirmed + 1
        if self._confirmed >= self._job.messages:
            self._connection.close()
            self._connection.ioloop.stop()
        else:
            self._publish()

    def _publish(self) -> None:
        body = b"x" * self._job.size
        while self._sent < self._job.messages and self._sent - self._confirmed < self._job.window:
            self._channel.basic_publish("", self._job.name, body, mandatory=True)
            self._sent += 1


class PikaReceiver:
    """Consumes with acknowledgements of many at a time."""

    def __init__(self, job: Job, ready: Ready) -> None:
        self._job = job
        self._ready = ready
        self._received = 0
        self._connection = pika.SelectConnection(
            _pika_parameters(job.url),
            on_open_callback=lambda connection: connection.channel(on_open_callback=self._on_channel_open),
        )
        self._connection.ioloop.start()

    def _on_channel_open(self, channel: Any) -> None:
        self._channel = channel
        channel.queue_declare(self._job.name, durable=True, callback=self._on_declared)

    def _on_declared(self, _frame: Any) -> None:
        self._channel.basic_qos(prefetch_count=self._job.prefetch, callback=self._on_qos)

    def _on_qos(self, _frame: Any) -> None:
        self._channel.basic_consume(self._job.name, self._on_message, callback=lambda _: self._ready())

    def _on_message(self, channel: Any, method: Any, _properties: Any, _body: bytes) -> None:
        self._received += 1
        if self._received % self._job.ack_every == 0 or self._received == self._job.messages:
            channel.basic_ack(method.delivery_tag, multiple=True)
        if self._received == self._job.messages:
            self._connection.close()
            self._connection.ioloop.stop()


def _pika_parameters(url: str) -> Any:
    parts = urlsplit(url)
    user, password = unquote(parts.username or "guest"), unquote(parts.password or "guest")
    return pika.ConnectionParameters(parts.hostname, parts.port, "/", pika.PlainCredentials(user, password))


def pika_sends(job: Job) -> None:
    PikaSender(job)


def pika_receives(job: Job, ready: Ready) -> None:
    PikaReceiver(job, ready)


def _paho(job: Job) -> Any:
    parts = urlsplit(job.url)
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    if parts.username:
        client.username_pw_set(unquote(parts.username), unquote(parts.password or ""))
    client.max_inflight_messages_set(job.window)
    client.connect(parts.hostname, parts.port)
    return client


def paho_sends(job: Job) -> None:
    """Queues a window of messages at a time; paho's own thread sends them."""
    client, body = _paho(job), b"x" * job.size
    done, room, published = threading.Event(), threading.Semaphore(job.window), [0]

    def on_publish(*_: Any) -> None:
        published[0] += 1
        room.release()
        if published[0] == job.messages:
            done.set()

    client.on_publish = on_publish
    client.loop_start()
    for _ in range(job.messages):
        room.acquire()
        client.publish(job.name, body, qos=job.qos)
    assert done.wait(_TIMEOUT_S), "not everything was acknowledged"
    client.disconnect()
    client.loop_stop()


def paho_receives(job: Job, ready: Ready) -> None:
    client, remaining = _paho(job), [job.messages]

    def on_message(*_: Any) -> None:
        remaining[0] -= 1
        if not remaining[0]:
            client.disconnect()

    client.on_message = on_message
    client.on_subscribe = lambda *_: ready()
    client.on_connect = lambda *_: client.subscribe(job.name, qos=job.qos)
    client.loop_forever()


class _Counter(stomp.ConnectionListener):  # type: ignore[misc]
    """Counts receipts, or counts messages and acknowledges them."""

    def __init__(self, connection: Any, job: Job, ready: Ready) -> None:
        self._connection = connection
        self._job = job
        self._ready = ready
        self._messages = 0
        self._receipts = 0
        self.room = threading.Semaphore(job.window)
        self.done = threading.Event()

    def on_receipt(self, frame: Any) -> None:
        if frame.headers["receipt-id"] == "subscribed":
            self._ready()
            return
        self._receipts += 1
        self.room.release()
        if self._receipts == self._job.messages:
            self.done.set()

    def on_message(self, frame: Any) -> None:
        self._messages += 1
        last = self._messages == self._job.messages
        if last or self._messages % self._job.ack_every == 0:
            self._connection.ack(frame.headers["ack"])
        if last:
            self.done.set()


def _stomp(job: Job, ready: Ready) -> tuple[Any, _Counter]:
    parts = urlsplit(job.url)
    connection = stomp.Connection12([(parts.hostname, parts.port)], vhost="/", auto_decode=False)
    counter = _Counter(connection, job, ready)
    connection.set_listener("", counter)
    connection.connect(unquote(parts.username or "guest"), unquote(parts.password or "guest"), wait=True)
    return connection, counter


def stomp_sends(job: Job) -> None:
    connection, counter = _stomp(job, lambda: None)
    body = b"x" * job.size
    for number in range(job.messages):
        counter.room.acquire()
        connection.send(f"/queue/{job.name}", body, receipt=str(number))
    assert counter.done.wait(_TIMEOUT_S), "not everything has a receipt"
    connection.disconnect()


def stomp_receives(job: Job, ready: Ready) -> None:
    connection, counter = _stomp(job, ready)
    prefetch = {"prefetch-count": str(job.prefetch), "activemq.prefetchSize": str(job.prefetch)}
    window = {"consumer-window-size": str(1 << 20)}
    ack = "client" if job.ack_every > 1 else "client-individual"
    connection.subscribe(f"/queue/{job.name}", "0", ack, headers=prefetch | window, receipt="subscribed")
    assert counter.done.wait(_TIMEOUT_S), "not everything arrived"
    connection.disconnect()


CLIENTS: dict[str, tuple[Callable[[Job], None], Callable[[Job, Ready], None]]] = {
    "amqp10": (proton_sends, proton_receives),
    "amqp091": (pika_sends, pika_receives),
    "mqtt": (paho_sends, paho_receives),
    "stomp": (stomp_sends, stomp_receives),
}


def through(protocol: str, job: Job) -> tuple[TrialResult, TrialResult]:
    """Send and receive with the foreign client of a protocol; returns the results of sender and receiver."""
    sends, receives = CLIENTS[protocol]
    ready = FORK.Event()
    receiver = Child(_timed, lambda: receives(job, ready.set), job.messages)
    while not ready.wait(0.1) and receiver.running:
        pass
    if not ready.is_set():
        receiver.result()
    sender = Child(_timed, lambda: sends(job), job.messages)
    return sender.result(), receiver.result()


def _timed(work: Callable[[], None], messages: int) -> TrialResult:
    before, begun = cpu_seconds(), time.monotonic()
    work()
    return TrialResult(messages, time.monotonic() - begun, cpu_seconds() - before, 0.0, messages)
