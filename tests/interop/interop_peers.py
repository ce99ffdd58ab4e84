"""Proton containers in threads, and our own channels driven by hand.

Proton is the foreign peer: its reactor sends, receives and serves. Each container ends by itself when its work is
done, on request, or when its time is up, so that no thread outlives its test.
"""

import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from proton import Endpoint, Message
from proton.handlers import MessagingHandler
from proton.reactor import AtLeastOnce, AtMostOnce, Container

from pumping import TIMEOUT_S


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def bodies(count: int, size: int) -> list[bytes]:
    return [number.to_bytes(8, "big").ljust(size, b".")[:size] for number in range(count)]


# -- Proton ----------------------------------------------------------------------------------------------------------


class TimedHandler(MessagingHandler):
    """A handler whose container ends on request, or when its time is up."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.faults: list[str] = []
        self.finish = threading.Event()
        self._acceptor: Any = None
        self._connections: list[Any] = []
        self._deadline_s = time.monotonic() + TIMEOUT_S
        self._ending = False

    def on_start(self, event: Any) -> None:
        event.container.schedule(0.02, self)

    def on_connection_init(self, event: Any) -> None:
        self._connections.append(event.connection)

    def on_timer_task(self, event: Any) -> None:
        if self._ending:
            event.container.stop()
            return
        if self.finish.is_set() or time.monotonic() > self._deadline_s:
            self._ending = True  # start the close handshake now, stop at the next tick
            for endpoint in [self._acceptor, *self._connections]:
                if endpoint is not None:
                    endpoint.close()
        event.container.schedule(0.02, self)

    def on_transport_error(self, event: Any) -> None:
        self.faults.append(f"{event.transport.condition.name}: {event.transport.condition.description}")
        self.finish.set()

    def on_connection_error(self, event: Any) -> None:
        self.faults.append(str(event.connection.remote_condition))
        self.finish.set()

    def on_link_error(self, event: Any) -> None:
        self.faults.append(str(event.link.remote_condition))
        self.finish.set()


class ProtonSender(TimedHandler):
    """Sends messages and waits until all are settled."""

    def __init__(self, url: str, address: str, payloads: list[bytes], *, presettled: bool, **connect: Any) -> None:
        super().__init__()
        self._url, self._address, self._connect = url, address, connect
        self._waiting = deque(payloads)
        self._open = len(payloads)
        self._presettled = presettled

    def on_start(self, event: Any) -> None:
        super().on_start(event)
        connection = event.container.connect(self._url, reconnect=False, **self._connect)
        options = AtMostOnce() if self._presettled else AtLeastOnce()
        event.container.create_sender(connection, self._address, options=options)

    def on_sendable(self, event: Any) -> None:
        while event.sender.credit and self._waiting:
            event.sender.send(Message(body=self._waiting.popleft(), inferred=True))
            if self._presettled:
                self._done(event)

    def on_accepted(self, event: Any) -> None:
        self._done(event)

    def _done(self, event: Any) -> None:
        self._open -= 1
        if not self._open:
            event.connection.close()

    def on_connection_closed(self, event: Any) -> None:
        assert event
        self.finish.set()


class ProtonReceiver(TimedHandler):
    """Receives a number of messages."""

    def __init__(self, url: str, address: str, count: int, *, presettled: bool = False, **connect: Any) -> None:
        super().__init__(prefetch=500)
        self._url, self._address, self._connect = url, address, connect
        self._count = count
        self._presettled = presettled
        self.attached = threading.Event()
        self.received: list[bytes] = []

    def on_start(self, event: Any) -> None:
        super().on_start(event)
        connection = event.container.connect(self._url, reconnect=False, **self._connect)
        options = AtMostOnce() if self._presettled else AtLeastOnce()
        event.container.create_receiver(connection, self._address, options=options)

    def on_link_opened(self, event: Any) -> None:
        assert event
        self.attached.set()

    def on_message(self, event: Any) -> None:
        self.received.append(bytes(event.message.body))
        if len(self.received) == self._count:
            event.connection.close()

    def on_connection_closed(self, event: Any) -> None:
        assert event
        self.finish.set()


class ProtonServer(TimedHandler):
    """A minimal broker: keeps what is sent to it, and sends its own payloads."""

    def __init__(self, port: int, payloads: list[bytes] | None = None, *, idle_s: float = 0.0) -> None:
        super().__init__(prefetch=500)
        self.port = port
        self._idle_s = idle_s
        self._waiting = deque(payloads or [])
        self.listening = threading.Event()
        self.received: list[bytes] = []
        self.settled = 0

    def on_start(self, event: Any) -> None:
        super().on_start(event)
        self._acceptor = event.container.listen(f"127.0.0.1:{self.port}")
        self.listening.set()

    def on_connection_bound(self, event: Any) -> None:
        event.transport.idle_timeout = self._idle_s

    def on_link_opening(self, event: Any) -> None:
        link = event.link
        if link.is_sender:
            link.source.address = link.remote_source.address
        else:
            link.target.address = link.remote_target.address
        link.snd_settle_mode = link.remote_snd_settle_mode

    def on_sendable(self, event: Any) -> None:
        while event.sender.credit and self._waiting:
            delivery = event.sender.send(Message(body=self._waiting.popleft(), inferred=True))
            if event.link.remote_snd_settle_mode == event.link.SND_SETTLED:
                delivery.settle()

    def on_settled(self, event: Any) -> None:
        if event.link is not None and event.link.state & Endpoint.LOCAL_ACTIVE and event.link.is_sender:
            self.settled += 1

    def on_message(self, event: Any) -> None:
        self.received.append(bytes(event.message.body))


@contextmanager
def running(handler: TimedHandler) -> Iterator[TimedHandler]:
    """Run a container in a thread; it has ended when the context exits."""
    thread = threading.Thread(target=Container(handler).run)
    thread.start()
    try:
        yield handler
    finally:
        handler.finish.set()
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()


def wait(handler: TimedHandler) -> None:
    """Wait until the container has done its work."""
    assert handler.finish.wait(TIMEOUT_S), "Proton did not finish"
