"""A Proton container as the peer: one queue of its own, and a service that answers requests.

It stops on request, so that no thread outlives its test.
"""

import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from proton import Condition, Delivery, Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

Answerer = Callable[[Message], list[Message]]
PATIENCE_S = 20.0
REFUSED = "forbidden"


class Node(MessagingHandler):
    """Queues messages sent to any address for the receivers there; answers messages sent to $management."""

    def __init__(self, answer: Answerer | None = None, *, outcome: str = Delivery.ACCEPTED) -> None:
        super().__init__(prefetch=100, auto_accept=False, auto_settle=True)
        self._answer = answer
        self._outcome = outcome
        self._queue: deque[Message] = deque()
        self._dynamic: dict[str, Any] = {}
        self._finish = threading.Event()
        self._acceptor: Any = None
        self._connections: list[Any] = []
        self.listening = threading.Event()
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = int(probe.getsockname()[1])
        self.questions: list[Message] = []
        self.connections = 0

    def on_start(self, event: Any) -> None:
        self._acceptor = event.container.listen(f"127.0.0.1:{self.port}")
        self.listening.set()
        event.container.schedule(0.02, self)

    def on_timer_task(self, event: Any) -> None:
        if self._finish.is_set():
            self._acceptor.close()
            for connection in self._connections:
                connection.close()
            event.container.stop()
            return
        event.container.schedule(0.02, self)

    def on_connection_opened(self, event: Any) -> None:
        self.connections += 1
        self._connections.append(event.connection)

    def on_link_opening(self, event: Any) -> None:
        link = event.link
        address = link.remote_source.address if link.is_sender else link.remote_target.address
        if link.is_sender and link.remote_source.dynamic:
            link.source.address = f"temp.{len(self._dynamic)}"
            self._dynamic[link.source.address] = link
        elif link.is_sender:
            link.source.address = address
        else:
            link.target.address = address

    def on_link_opened(self, event: Any) -> None:
        if REFUSED in {event.link.source.address, event.link.target.address}:
            event.link.condition = Condition("amqp:unauthorized-access", "not for you")
            event.link.close()

    def on_message(self, event: Any) -> None:
        if event.link.target.address == REFUSED:
            return
        event.delivery.update(self._outcome)
        event.delivery.settle()
        if self._outcome != Delivery.ACCEPTED:
            return
        if event.link.target.address == "$management" and self._answer is not None:
            self.questions.append(event.message)
            for answer in self._answer(event.message):
                self._dynamic[event.message.reply_to].send(answer)
        else:
            self._queue.append(event.message)
            self._hand_out(event.connection)

    def on_sendable(self, event: Any) -> None:
        self._hand_out(event.connection)

    def _hand_out(self, connection: Any) -> None:
        link = connection.link_head(0)
        while link is not None:
            if link.is_sender and not link.remote_source.dynamic:
                while link.credit and self._queue:
                    link.send(self._queue.popleft())
            link = link.next(0)

    @contextmanager
    def running(self) -> Iterator["Node"]:
        thread = threading.Thread(target=Container(self).run)
        thread.start()
        try:
            assert self.listening.wait(PATIENCE_S)
            yield self
        finally:
            self._finish.set()
            thread.join(PATIENCE_S)
            assert not thread.is_alive()

    @property
    def url(self) -> str:
        return f"amqp://127.0.0.1:{self.port}"
