"""How does a blocking program use MLMQ?

Every method of the asynchronous client, blocking until its result. The event loop behind it is private and runs only
during a method call, so there is no thread; use one client from one thread. Adds no semantics of its own.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import uvloop

from crescendo.mlmq.client.async_client import DEFAULT_PRIORITY, AsyncClient
from crescendo.mlmq.client.backoff import Backoff
from crescendo.mlmq.client.requests import Observer
from crescendo.wire.mlmq.operations import ClientFound, Message, Query, QueueFound, Registered, Sent, Settled

R = TypeVar("R")


class Client:
    """One client of one or more brokers. Use as a context manager, or call `init` and `close`."""

    def __init__(
        self,
        name: str,
        brokers: Sequence[str],
        *,
        first_broker: int = 0,
        timeout_s: float = 10.0,
        attempt_timeout_s: float = 2.0,
        backoff: Backoff | None = None,
        patient: bool = True,
        observer: Observer | None = None,
    ) -> None:
        self._client = AsyncClient(
            name,
            brokers,
            first_broker=first_broker,
            timeout_s=timeout_s,
            attempt_timeout_s=attempt_timeout_s,
            backoff=backoff,
            patient=patient,
            observer=observer,
        )
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)

    def init(self) -> None:
        self._wait(self._client.init())

    def close(self) -> None:
        self._wait(self._client.close())
        self._runner.close()

    @property
    def is_connected(self) -> bool:
        return self._client.is_connected

    @property
    def id(self) -> int:
        return self._client.id

    @property
    def own_queue(self) -> int:
        return self._client.own_queue

    def register(self) -> Registered:
        return self._wait(self._client.register())

    def deregister(self) -> None:
        self._wait(self._client.deregister())

    def create_queue(self, name: str) -> QueueFound:
        return self._wait(self._client.create_queue(name))

    def delete_queue(self, queue: int) -> None:
        self._wait(self._client.delete_queue(queue))

    def lookup_client(self, name: str) -> ClientFound | None:
        return self._wait(self._client.lookup_client(name))

    def lookup_client_queue(self, client: int | str) -> QueueFound | None:
        return self._wait(self._client.lookup_client_queue(client))

    def configure_queue(
        self, queue: int, *, max_deliveries: int | None = None, dead_letters: int | None = None,
        retention_s: float | None = None,
    ) -> None:  # fmt: skip
        limits = {"max_deliveries": max_deliveries, "dead_letters": dead_letters}
        self._wait(self._client.configure_queue(queue, **limits, retention_s=retention_s))

    def send_message(
        self, queues: int | Sequence[int], content: bytes, priority: int = DEFAULT_PRIORITY, *,
        delay_s: float = 0.0, expires_s: float | None = None,
    ) -> Sent:  # fmt: skip
        return self._wait(self._client.send_message(queues, content, priority, delay_s=delay_s, expires_s=expires_s))

    def send_messages(
        self, queue: int, contents: Sequence[bytes], priority: int = DEFAULT_PRIORITY, *,
        delay_s: float = 0.0, expires_s: float | None = None,
    ) -> Sent:  # fmt: skip
        return self._wait(self._client.send_messages(queue, contents, priority, delay_s=delay_s, expires_s=expires_s))

    def send_message_to_client(
        self, client: int, content: bytes, priority: int = DEFAULT_PRIORITY, *,
        delay_s: float = 0.0, expires_s: float | None = None,
    ) -> Sent:  # fmt: skip
        return self._wait(
            self._client.send_message_to_client(client, content, priority, delay_s=delay_s, expires_s=expires_s)
        )

    def send_request_to_client(self, client: int, content: bytes, priority: int = DEFAULT_PRIORITY) -> int:
        return self._wait(self._client.send_request_to_client(client, content, priority))

    def send_response_to_client(
        self, client: int, context: int, content: bytes, priority: int = DEFAULT_PRIORITY
    ) -> Sent:
        return self._wait(self._client.send_response_to_client(client, context, content, priority))

    def queues_with_pending_messages(self, most: int = 100) -> tuple[int, tuple[QueueFound, ...]]:
        return self._wait(self._client.queues_with_pending_messages(most))

    def peek_message(self, query: Query) -> Message | None:
        return self._wait(self._client.peek_message(query))

    def dequeue_message(self, query: Query, *, wait_s: float = 0.0, lease_s: float = 0.0) -> Message | None:
        return self._wait(self._client.dequeue_message(query, wait_s=wait_s, lease_s=lease_s))

    def dequeue_messages(
        self, query: Query, most: int, *, wait_s: float = 0.0, lease_s: float = 0.0
    ) -> tuple[Message, ...]:
        return self._wait(self._client.dequeue_messages(query, most, wait_s=wait_s, lease_s=lease_s))

    def acknowledge(self, *messages: Message) -> Settled:
        return self._wait(self._client.acknowledge(*messages))

    def extend(self, *messages: Message, lease_s: float) -> Settled:
        return self._wait(self._client.extend(*messages, lease_s=lease_s))

    def __enter__(self) -> Self:
        self.init()
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _wait(self, coroutine: Coroutine[Any, Any, R]) -> R:
        return self._runner.run(coroutine)
