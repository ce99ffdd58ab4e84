"""How does a broker reach its database, and how does it know whether the database is available?

A pool of D connections and MLMQ's storage on it. The schema is checked before the first request; afterwards one check
per second tells whether the database answers, so that the health page recovers without traffic. Retries no request:
the client does, because only the client knows whether it still wants the answer.
"""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Any

from crescendo.mlmq.broker.database_pool import connect, open_pool, retry_until_available
from crescendo.mlmq.broker.settings import BrokerSettings
from crescendo.mlmq.storage import Database, Served, StorageUnavailable, check_schema, initialise
from crescendo.mlmq.storage.failures import translated_errors
from crescendo.model.errors import CrescendoError
from crescendo.wire.mlmq.operations import Request

log = logging.getLogger(__name__)

_CHECK_S = 1.0
_CLOSE_S = 5.0
_HOUSEKEEPING_S = 3600.0


class Store:
    """The database as one broker sees it."""

    def __init__(self, url: str, settings: BrokerSettings) -> None:
        self._url = url
        self._settings = settings
        self.pool: Any = None
        self._database: Database | None = None
        self.reached = False

    @property
    def in_use(self) -> int:
        """Connections that are serving a statement now."""
        return 0 if self.pool is None else int(self.pool.get_size() - self.pool.get_idle_size())

    async def open(self) -> None:
        """Connect, waiting for an unavailable database, and check its schema."""
        timeout_s = self._settings.database_timeout / 1e9
        self.pool = await open_pool(self._url, self._settings.connections, timeout_s, timeout_s)
        async with self.pool.acquire() as connection:
            await check_schema(connection)
        self._database = Database(self.pool)
        self.reached = True

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
        except StorageUnavailable as err:
            self._set_reached(False, str(err))
            raise
        self._set_reached(True)
        return served

    async def watch(self) -> None:
        """Check whether the database answers, even without traffic."""
        while True:
            await asyncio.sleep(_CHECK_S)
            try:
                with translated_errors():
                    connection = await connect(self._url)
                    try:
                        while True:
                            await connection.fetchval("SELECT 1", timeout=self._settings.database_timeout / 1e9)
                            self._set_reached(True)
                            await asyncio.sleep(_CHECK_S)
                    finally:
                        connection.terminate()
            except StorageUnavailable as err:
                self._set_reached(False, str(err))

    async def forget_receipts(self) -> None:
        """Periodically drop the receipts of idle clients."""
        while True:
            await asyncio.sleep(_HOUSEKEEPING_S)
            if self._database is not None:
                try:
                    await self._database.forget_receipts(self._settings.forget_after / 1e9)
                except CrescendoError as err:
                    log.warning("old receipts were not deleted: %s", err)

    def _set_reached(self, reached: bool, why: str = "") -> None:
        if reached != self.reached:
            self.reached = reached
            if reached:
                log.info("the database answers again")
            else:
                log.warning("%s", why)


async def prepare(url: str, settings: BrokerSettings) -> int:
    """Create or migrate the schema. Returns how many migrations were applied."""

    async def attempt() -> int:
        connection = await connect(url)
        try:
            return await initialise(connection)
        finally:
            await connection.close()

    return await retry_until_available(attempt, url, settings.database_timeout / 1e9)
