"""A Proton container in place of the router: it answers requests to $management with given messages."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

TIMEOUT_S = 20.0


class Answering(MessagingHandler):
    """Gives every requester a reply node of its own. Runs until its `with` block ends."""

    def __init__(self, answer: Callable[[Message], Message | None]) -> None:
        super().__init__()
        self._answer = answer
        self._replies: dict[str, Any] = {}
        self._acceptor: Any = None
        self._connections: list[Any] = []
        self._listening, self._finish, self._drop = threading.Event(), threading.Event(), threading.Event()
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.url = f"amqp://127.0.0.1:{probe.getsockname()[1]}"
        self.questions: list[Message] = []

    def on_start(self, event: Any) -> None:
        self._acceptor = event.container.listen(self.url.removeprefix("amqp://"))
        self._listening.set()
        event.container.schedule(0.02, self)

    def on_timer_task(self, event: Any) -> None:
        if self._finish.is_set() or self._drop.is_set():
            for connection in self._connections:
                connection.close()
            self._connections.clear()
            self._drop.clear()
        if self._finish.is_set():
            self._acceptor.close()
            event.container.stop()
        else:
            event.container.schedule(0.02, self)

    def on_connection_opened(self, event: Any) -> None:
        self._connections.append(event.connection)

    def on_link_opening(self, event: Any) -> None:
        link = event.link
        if link.is_sender:
            assert link.remote_source.dynamic
            link.source.address = f"reply.{len(self._replies)}"
            self._replies[link.source.address] = link
        else:
            link.target.address = link.remote_target.address

    def on_message(self, event: Any) -> None:
        question = event.message
        self.questions.append(question)
        answer = self._answer(question)
        if answer is not None:
            answer.correlation_id = question.correlation_id
            self._replies[question.reply_to].send(answer)

    def drop_connections(self) -> None:
        """Like a router that restarts."""
        self._drop.set()

    @contextmanager
    def running(self) -> Iterator["Answering"]:
        thread = threading.Thread(target=Container(self).run)
        thread.start()
        try:
            assert self._listening.wait(TIMEOUT_S)
            yield self
        finally:
            self._finish.set()
            thread.join(TIMEOUT_S)
            assert not thread.is_alive()
