"""How does a broker get its D connections to PostgreSQL, and what if the database is not available yet?

It waits for a database that is unreachable or still starting, up to a limit, and logs that it waits. Errors that
waiting cannot cure (a wrong password, a missing database, an invalid URL) are reported at once. Where the URL is in a
file, its password is read again for every connection, so that it can be changed while the broker runs. No message ever
contains the password. Knows no statement.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg

from crescendo.mlmq.broker.settings import BrokerSettings
from crescendo.mlmq.storage.failures import StorageUnavailable, translated_errors
from crescendo.mlmq.storage.health import SESSION_SETTINGS
from crescendo.model.errors import ConfigError
from crescendo.model.secret_file import read_secret_file
from crescendo.model.urls import parse_url, redact_url_text

_CONNECT_TIMEOUT_S = 5.0
_RETRY_S = 0.25
_WARN_AFTER_S = 1.0

log = logging.getLogger(__name__)

T = TypeVar("T")
Password = Callable[[], str]
"""The password as it is now."""


def describe(url: str) -> str:
    """The URL without credentials and options, for messages."""
    try:
        parts = parse_url(url)
    except ValueError:
        return redact_url_text(url)
    if "@" in parts.path:  # perhaps the end of a password that contains a slash
        return redact_url_text(url)
    return f"{parts.scheme}://{parts.server}{parts.path}"


def database_url(settings: BrokerSettings) -> str:
    """The URL of the database that the settings name; empty: an embedded one."""
    if settings.database or not settings.database_file:
        return settings.database
    return read_secret_file(settings.database_file, settings.database_file)


def password_in(file: str) -> Password | None:
    """Reads the password of the URL in this file; None without a file: then it is that of the URL."""
    if not file:
        return None

    def read() -> str:
        try:
            url = urlsplit(read_secret_file(file, file))
        except ValueError:
            raise ConfigError(f"{file}: its first line is not the URL of a database") from None
        return unquote(url.password or "") or parse_qs(url.query).get("password", [""])[0]

    return read


async def connect(url: str, password: Password | None = None, statement_timeout_s: float | None = None) -> Any:
    """One connection outside the pool."""
    return await asyncpg.connect(
        url,
        password=password,
        timeout=_CONNECT_TIMEOUT_S,
        command_timeout=statement_timeout_s,
        server_settings=SESSION_SETTINGS,
    )


async def open_pool(
    url: str, connections: int, statement_timeout_s: float, wait_timeout_s: float, password: Password | None = None
) -> Any:
    """A pool with all its connections open."""

    async def attempt() -> Any:
        return await asyncpg.create_pool(
            url,
            password=password,
            min_size=connections,
            max_size=connections,
            max_inactive_connection_lifetime=0,
            timeout=_CONNECT_TIMEOUT_S,
            command_timeout=statement_timeout_s,
            reset=_no_reset,
            server_settings=SESSION_SETTINGS,
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
    except ValueError:  # asyncpg's message quotes parts of the URL
        cure = "write postgresql://user:password@host:5432/name, with %2F for a / in the password, %23 for a #"
        raise ConfigError(f"{describe(url)} is not a valid URL of a database; {cure}") from None


async def _no_reset(_connection: Any) -> None:
    """Our statements leave no session state behind, and asyncpg's reset would cost a round trip per statement."""
