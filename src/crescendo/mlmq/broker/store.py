"""How does a broker reach its database, and how does it know whether the database is available?

A pool of D connections and MLMQ's storage on it. Schema and durability are checked before the first request. Afterwards
any failed statement means that the database is not available, until a check has written to it; checks run every second,
without traffic too. Retries no request: the client does, because only the client knows whether it still wants the
answer.
"""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from time import monotonic
from typing import Any

from crescendo.mlmq.broker.database_pool import connect, describe, open_pool, password_in, retry_until_available
from crescendo.mlmq.broker.settings import BrokerSettings
from crescendo.mlmq.storage import Database, Served, StorageUnavailable, check_schema, initialise
from crescendo.mlmq.storage.failures import translated_errors
from crescendo.mlmq.storage.health import (
    DatabaseStatistics,
    asynchronous_standbys,
    durability_problems,
    statistics,
    write_check,
)
from crescendo.mlmq.storage.indices import use_indices
from crescendo.model.errors import ConfigError, CrescendoError
from crescendo.wire.mlmq.operations import Query, Request, Send, SendMany

log = logging.getLogger(__name__)

_CHECK_S = 1.0
_CHECK_TIMEOUT_S = 5.0
_WRITE_S = 10.0  # how often a check writes while all is well
_DOUBT_S = 5.0  # so long a check alone does not refute a rejected request: a full disk may have room for one more row
_CLOSE_S = 5.0
_HOUSEKEEPING_S = 1.0
_RECEIPT_BYTES = 16 * 2**20  # so that a rotation copies and reads little
_MOST_LEFT, _LEAST_DEAD = 10_000, 20_000  # messages: a compaction takes milliseconds, and is worth it


class Store:
    """The database as one broker sees it."""

    def __init__(self, url: str, settings: BrokerSettings) -> None:
        self._url = url
        self._settings = settings
        self._password = password_in(settings.database_file)
        self.pool: Any = None
        self._database: Database | None = None
        self.failure: str | None = "the database was never reached"  # why nothing can be stored; None: it can
        self.statistics = DatabaseStatistics()
        self._written_s = -_WRITE_S  # when a check last wrote
        self._doubted_s = -_DOUBT_S  # when a request was rejected although the database answers
        self._warned = False

    @property
    def in_use(self) -> int:
        """Connections that are serving a statement now."""
        return 0 if self.pool is None else int(self.pool.get_size() - self.pool.get_idle_size())

    async def open(self) -> None:
        """Connect, waiting for an unavailable database, and check its schema."""
        timeout_s = self._settings.database_timeout / 1e9
        self.pool = await open_pool(self._url, self._settings.connections, timeout_s, timeout_s, self._password)
        async with self.pool.acquire() as connection:
            await check_schema(connection)
            await self._check_durability(connection)
            if await use_indices(connection, self._settings.indices) and not self._settings.indices:
                log.warning("the indices of messages were dropped: every dequeue reads the whole table")
            if standbys := await asynchronous_standbys(connection):
                log.warning(
                    "%d standbys are asynchronous: promoting one loses what was acknowledged last; name them in "
                    "synchronous_standby_names to avoid that",
                    standbys,
                )
        self._database = Database(self.pool)
        self.failure = None

    async def connect(self) -> Any:
        """A connection outside the pool. No statement waits for ever on it, even if the network has failed silently."""
        return await connect(self._url, self._password, self._settings.database_timeout / 1e9)

    async def close(self) -> None:
        if self.pool is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    await self.pool.close()
            self.pool.terminate()

    async def serve(self, requests: Sequence[Request]) -> Served:
        """Answer requests of one kind."""
        if self._database is None:
            raise StorageUnavailable("the database was never reached")
        try:
            served = await self._database.serve(requests)
        except Exception as err:
            self._fail(err)
            if not isinstance(err, StorageUnavailable):
                self._doubted_s = monotonic()
            raise
        if isinstance(requests[0], (Send, SendMany)):
            self._doubted_s = -_DOUBT_S
        return served

    async def count_available(self, queries: Sequence[Query], most: int) -> list[int]:
        """How many messages match each query now, up to `most`."""
        if self._database is None:
            raise StorageUnavailable("the database was never reached")
        try:
            return await self._database.count_available(queries, most)
        except Exception as err:
            self._fail(err)
            raise

    async def watch(self) -> None:
        """Check whether the database can store messages, even without traffic."""
        while True:
            await asyncio.sleep(_CHECK_S)
            try:
                with translated_errors():
                    connection = await self.connect()
                try:
                    while True:
                        await self._check(connection)
                        await asyncio.sleep(_CHECK_S)
                finally:
                    connection.terminate()
            except Exception as err:  # whatever it is: nothing can be stored until a check succeeds
                self._fail(err)

    async def _check(self, connection: Any) -> None:
        timeout_s = min(self._settings.database_timeout / 1e9, _CHECK_TIMEOUT_S)
        async with asyncio.timeout(timeout_s):
            await self._check_durability(connection)
        now_s = monotonic()
        if self.failure is not None or now_s - self._written_s >= _WRITE_S:
            await write_check(connection, timeout_s)
            self.statistics = await statistics(connection, timeout_s)
            self._written_s = now_s
            if self.failure is not None:
                # A session keeps the defaults that it began with: one that began read-only would stay so for ever.
                await self.pool.expire_connections()
            if now_s - self._doubted_s >= _DOUBT_S:
                self._recover()

    async def _check_durability(self, connection: Any) -> None:
        problems = await durability_problems(connection)
        if problems and self._settings.require_durable:
            raise ConfigError(
                f"{describe(self._url)}: a crash would lose acknowledged messages: {'; '.join(problems)}; change that, "
                f"or accept it with require_durable: false"
            )
        if problems and not self._warned:
            self._warned = True
            log.warning("a crash of the database will lose acknowledged messages: %s", "; ".join(problems))

    async def housekeeping(self) -> None:
        """Rotate the receipts when they have grown, and get rid of rows that an old snapshot keeps."""
        while True:
            await asyncio.sleep(_HOUSEKEEPING_S)
            if self._database is not None:
                try:
                    await self._database.rotate_receipts(_RECEIPT_BYTES, self._settings.forget_after / 1e9)
                    await self._database.compact_messages(_MOST_LEFT, _LEAST_DEAD)
                except CrescendoError as err:
                    log.debug("the tables were not tidied: %s", err)  # the health check tells the reason

    def _fail(self, err: Exception) -> None:
        text = str(err) or type(err).__name__
        if self.failure is None:
            log.warning("%s", text)
        self.failure = text

    def _recover(self) -> None:
        if self.failure is not None:
            self.failure = None
            log.info("the database stores again")


async def prepare(url: str, settings: BrokerSettings) -> int:
    """Create or migrate the schema. Returns how many migrations were applied."""

    async def attempt() -> int:
        connection = await connect(url)
        try:
            return await initialise(connection)
        finally:
            await connection.close()

    return await retry_until_available(attempt, url, settings.database_timeout / 1e9)
