"""How does a broker get its D connections to PostgreSQL, and what if the database is not there yet?

It waits for a database that is away or still starting, up to a limit, and says so; what waiting cannot cure (a wrong
password, no such database, a URL that is none) is one sentence at once. No message of it ever holds the password. Knows
no statement.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

import asyncpg

from crescendo.mlmq.storage.failures import StorageAway, translated
from crescendo.model.errors import ConfigError

_CONNECT_TIMEOUT_S = 5.0
_PAUSE_S = 0.25
_COMMENT_AFTER_S = 1.0

log = logging.getLogger(__name__)

T = TypeVar("T")


def describe(url: str) -> str:
    """The URL as a person may see it: without credentials."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


async def connect(url: str) -> Any:
    """One connection of one's own."""
    return await asyncpg.connect(url, timeout=_CONNECT_TIMEOUT_S)


async def open_pool(url: str, connections: int, statement_timeout_s: float, patience_s: float) -> Any:
    """A pool with all its connections open."""

    async def attempt() -> Any:
        return await asyncpg.create_pool(
            url,
            min_size=connections,
            max_size=connections,
            max_inactive_connection_lifetime=0,
            timeout=_CONNECT_TIMEOUT_S,
            command_timeout=statement_timeout_s,
            reset=_leave_as_it_is,
        )

    return await patiently(attempt, url, patience_s)


async def patiently(attempt: Callable[[], Awaitable[T]], url: str, patience_s: float) -> T:
    """Try until the database is there, or until patience is at its end."""
    begun_s = time.monotonic()
    commented = False
    while True:
        try:
            with translated():
                return await _in_plain_words(attempt, url)
        except StorageAway as err:
            waited_s = time.monotonic() - begun_s
            if waited_s > patience_s:
                raise ConfigError(f"{describe(url)}: {err}; waited {waited_s:.0f} s; is it running?") from err
            if waited_s > _COMMENT_AFTER_S and not commented:
                log.warning("waiting for %s: %s", describe(url), err)
                commented = True
        await asyncio.sleep(_PAUSE_S)


async def _in_plain_words(attempt: Callable[[], Awaitable[T]], url: str) -> T:
    try:
        return await attempt()
    except asyncpg.InvalidAuthorizationSpecificationError as err:
        raise ConfigError(f"{describe(url)}: {err}; check the user and the password in the URL") from err
    except asyncpg.InvalidCatalogNameError as err:
        raise ConfigError(f"{describe(url)}: {err}; create it first, for example with createdb") from err
    except asyncpg.ClientConfigurationError as err:
        raise ConfigError(f"{describe(url)}: {err}; write postgresql://user:password@host:5432/name") from err


async def _leave_as_it_is(_connection: Any) -> None:
    """Our statements leave no session state behind, and asyncpg's own reset would cost a round trip a statement."""
