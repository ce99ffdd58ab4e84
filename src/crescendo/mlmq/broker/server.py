"""What is a broker made of, and how does it start, drain and end?

Network, request queue, workers, pool, waiting room, notices, request log and HTTP endpoints, put together. It keeps no
durable state: everything is in the database, so any number of brokers can serve the same one. Handles no signals and
reads no files; its caller does.
"""

import asyncio
import contextlib
import logging
from time import monotonic

from crescendo.mlmq.broker.background_tasks import BackgroundTasks
from crescendo.mlmq.broker.call import Call
from crescendo.mlmq.broker.http_endpoints import HttpEndpoints, json_page
from crescendo.mlmq.broker.network import ClientConnection
from crescendo.mlmq.broker.notices import Notices
from crescendo.mlmq.broker.openmetrics import CONTENT_TYPE, Metrics
from crescendo.mlmq.broker.request_log import RequestLog
from crescendo.mlmq.broker.request_queue import RequestQueue
from crescendo.mlmq.broker.settings import BrokerSettings, address_of
from crescendo.mlmq.broker.store import Store
from crescendo.mlmq.broker.workers import Workers
from crescendo.model.errors import ConfigError
from crescendo.wire.mlmq.operations import Answer, Refusal, Refused

log = logging.getLogger(__name__)

_DRAIN_STEP_S = 0.01
_POOL_CLOSE_S = 5.0
_CLOSING = Refused(Refusal.CLOSING, "this broker is shutting down; ask another one")


class Broker:
    """One broker. `start`, then `drain`, then `close`."""

    def __init__(self, settings: BrokerSettings, database_url: str) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.request_log = RequestLog(self.metrics)
        max_queued, max_waiting = settings.request_limits
        self.queue: RequestQueue[Call] = RequestQueue(max_queued, settings.batch)
        self.store = Store(database_url, settings)
        self.workers = Workers(self.queue, max_waiting, self.store, self.request_log)
        self.connections: set[ClientConnection] = set()
        self.port = 0
        self.http = HttpEndpoints({"/health": self._health, "/metrics": self._metrics})
        self.read_buffer = bytearray(settings.read_buffer)
        self.pipeline = settings.pipeline
        self.write_buffer_bytes = int(settings.write_buffer)
        self.send_timeout_s = settings.send_timeout / 1e9
        self._server: asyncio.Server | None = None
        self._background = BackgroundTasks()
        self.unsent = 0  # answers that wait for slow sockets
        self._draining = False

    async def start(self) -> None:
        """Start serving once the database is available and its schema matches."""
        try:
            await self.store.open()
            await self._listen()
        except BaseException:
            await self.close()
            raise
        notices = Notices(self.store.connect, self.workers.wake, self.workers.forget_empty_queues)
        self.workers.notify_others = notices.notify
        start = self._background.start
        for _ in range(self.settings.workers):
            start("worker", self.workers.work)
        start("poll", lambda: self.workers.poll(self.settings.poll / 1e9))
        start("notices", notices.run)
        start("health check", self.store.watch)
        start("housekeeping", self.store.housekeeping)
        self._register_gauges()

    @property
    def address(self) -> str:
        return f"{address_of('listen', self.settings.listen)[0]}:{self.port}"

    async def drain(self) -> bool:
        """Accept nothing new and finish the accepted requests. False: some were not finished in time."""
        self._draining = True
        if self._server is not None:
            self._server.close()
        self.workers.drain()
        deadline_s = monotonic() + self.settings.drain_timeout / 1e9
        while len(self.queue) or self.workers.busy or not all(connection.idle for connection in self.connections):
            if monotonic() > deadline_s:
                return False
            await asyncio.sleep(_DRAIN_STEP_S)
        return True

    async def close(self) -> None:
        """Stop everything now."""
        self._draining = True
        if self._server is not None:
            self._server.close()
        await self._background.close()
        for connection in list(self.connections):
            connection.close() if connection.idle else connection.abort()
        await self.http.close()
        await self.store.close()
        failure = self.request_log.close_log()
        if failure:
            log.warning("%s", failure)
        if self._server is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POOL_CLOSE_S):
                    await self._server.wait_closed()

    # --- called by connections

    def refusal_if_draining(self) -> Refused | None:
        return _CLOSING if self._draining else None

    def submit(self, call: Call) -> bool:
        if self.workers.submit(call):
            return True
        self.metrics.shed += 1
        return False

    def served(self, call: Call, answer: Answer) -> None:
        self.request_log.served(call, answer)

    def admit(self, connection: ClientConnection) -> bool:
        if len(self.connections) >= self.settings.clients:
            self.metrics.refused_clients += 1
            return False
        self.connections.add(connection)
        self.metrics.clients_seen += 1
        self.request_log.clients(len(self.connections))
        return True

    def connection_closed(self, connection: ClientConnection) -> None:
        self.workers.forget(connection.parked)
        connection.parked.clear()
        self.connections.discard(connection)
        self.request_log.clients(len(self.connections))

    def count_broken_client(self) -> None:
        self.metrics.broken_clients += 1

    def response_queue_has_room(self) -> bool:
        return self.unsent < self.settings.response_queue

    def change_unsent(self, change: int) -> None:
        self.unsent += change

    # --- private

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        host, port = address_of("listen", self.settings.listen)
        try:
            self._server = await loop.create_server(lambda: ClientConnection(self), host, port, backlog=1024)
        except OSError as err:
            text = err.strerror or str(err)
            raise ConfigError(f"listen: cannot listen at {host}:{port}: {text}; choose another port") from err
        self.port = self._server.sockets[0].getsockname()[1]
        self.request_log.open_log(self.settings, self.port)
        await self.http.start(*address_of("http", self.settings.http))

    def _register_gauges(self) -> None:
        gauge = self.metrics.gauge
        gauge("clients", "Clients connected now.", lambda: len(self.connections))
        gauge("request_queue", "Requests that wait for a worker.", lambda: len(self.queue))
        gauge("response_queue", "Answers that wait for slow sockets.", lambda: self.unsent)
        gauge("waiting", "Dequeues that wait for a message.", lambda: len(self.workers.room))
        gauge("workers", "Workers.", lambda: self.settings.workers)
        gauge("workers_busy", "Workers that serve requests now.", lambda: self.workers.busy)
        gauge("pool", "Connections to the database.", lambda: self.settings.connections)
        gauge("pool_in_use", "Connections to the database in use now.", lambda: self.store.in_use)
        gauge("database_up", "1 while the database stores messages.", lambda: int(self.store.failure is None))
        gauge("tasks_down", "Background tasks that have failed.", lambda: len(self._background.down))
        gauge("leases", "Messages that are leased, counted up to 100,000.", lambda: self.store.statistics.leases)
        gauge("dead_rows", "Rows that wait for vacuum.", lambda: self.store.statistics.dead_rows)
        gauge(
            "oldest_snapshot_seconds",
            "Age of the oldest transaction that keeps dead rows from being removed.",
            lambda: self.store.statistics.oldest_snapshot_s,
        )
        gauge("message_bytes", "Size of the table of messages.", lambda: self.store.statistics.message_bytes)
        gauge("index_bytes", "Size of its indices.", lambda: self.store.statistics.index_bytes)
        gauge("receipt_bytes", "Size of the receipts.", lambda: self.store.statistics.receipt_bytes)

    def _health(self) -> tuple[int, str, str]:
        if self._draining:
            return json_page(503, {"state": "draining"})
        if self.store.failure is not None:
            return json_page(503, {"state": "database away", "reason": self.store.failure})
        if self._background.down:
            return json_page(503, {"state": "failing", "tasks": self._background.down})
        return json_page(200, {"state": "serving", "address": self.address, "clients": len(self.connections)})

    def _metrics(self) -> tuple[int, str, str]:
        return 200, CONTENT_TYPE, self.metrics.openmetrics()
