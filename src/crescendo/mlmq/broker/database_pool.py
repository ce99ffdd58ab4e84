"""How does a broker get its D connections to PostgreSQL, and what if the database is not available yet?

It waits for a database that is unreachable or still starting, up to a limit, and logs that it waits. Errors that
waiting cannot cure (a wrong password, a missing database, an invalid URL) are reported at once. No message ever
contains the password. Knows no statement.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

import asyncpg

from crescendo.mlmq.storage.failures import StorageUnavailable, translated_errors
from crescendo.model.errors import ConfigError

_CONNECT_TIMEOUT_S = 5.0
_RETRY_S = 0.25
_WARN_AFTER_S = 1.0

log = logging.getLogger(__name__)

T = TypeVar("T")


def describe(url: str) -> str:
    """The URL without credentials, for messages."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


async def connect(url: str) -> Any:
    """One connection outside the pool."""
    return await asyncpg.connect(url, timeout=_CONNECT_TIMEOUT_S)


async def open_pool(url: str, connections: int, statement_timeout_s: float, wait_timeout_s: float) -> Any:
    """A pool with all its connections open."""

    async def attempt() -> Any:
        return await asyncpg.create_pool(
            url,
            min_size=connections,
            max_size=connections,
            max_inactive_connection_lifetime=0,
            timeout=_CONNECT_TIMEOUT_S,
            command_timeout=statement_timeout_s,
            reset=_no_reset,
        )

    return await retry_until_available(attempt, url, wait_timeout_s)


async def retry_until_available(attempt: Callable[[], Awaitable[T]], url: str, wait_timeout_s: float) -> T:
    """Retry until the database is available, or until the timeout is over."""
    started_s = time.monotonic()
    warned = False
    while True:
        try:
            with translated_errors():
                return await _with_config_errors(attempt, url)
        except StorageUnavailable as err:
            waited_s = time.monotonic() - started_s
            if waited_s > wait_timeout_s:
                raise ConfigError(f"{describe(url)}: {err}; waited {waited_s:.0f} s; is it running?") from err
            if waited_s > _WARN_AFTER_S and not warned:
                log.warning("waiting for %s: %s", describe(url), err)
                warned = True
        await asyncio.sleep(_RETRY_S)


async def _with_config_errors(attempt: Callable[[], Awaitable[T]], url: str) -> T:
    try:
        return await attempt()
    except asyncpg.InvalidAuthorizationSpecificationError as err:
        raise ConfigError(f"{describe(url)}: {err}; check the user and the password in the URL") from err
    except asyncpg.InvalidCatalogNameError as err:
        raise ConfigError(f"{describe(url)}: {err}; create it first, for example with createdb") from err
    except asyncpg.ClientConfigurationError as err:
        raise ConfigError(f"{describe(url)}: {err}; write postgresql://user:password@host:5432/name") from err


async def _no_reset(_connection: Any) -> None:
    """Our statements leave no session state behind, and asyncpg's reset would cost a round trip per statement."""
