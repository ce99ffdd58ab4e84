"""What does a database error mean for the client that waits for an answer?

Unavailable: a retry may succeed later, and whether this batch was stored is unknown. Rejected: the operator must act
first, and nothing was stored. A missing or foreign schema is a configuration error. Anything else is a bug of ours and
propagates unchanged. Retries nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import asyncpg

from crescendo.model.errors import ConfigError, PeerError

INIT_HINT: Final = "run crescendo broker --init on it"


class StorageUnavailable(PeerError):
    """Retry later, with the same `Once`: the outcome is unknown."""


class StorageRejected(PeerError):
    """The operator must act: read-only, disk full, no privileges. Nothing was stored."""


_UNAVAILABLE = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # raised by asyncpg on a connection whose close it has not read yet
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,  # starting, stopping or crashing; also a cancelled statement
    asyncpg.TransactionRollbackError,  # deadlock, serialisation
    asyncpg.TooManyConnectionsError,
    asyncpg.LockNotAvailableError,
)
_DISK_FULL = "the database's disk is full: free some space"
_DISK_FULL_HINT = "free disk space"  # also given where the error code is unspecific
_REJECTED: tuple[tuple[type[Exception], str], ...] = (
    (
        asyncpg.ReadOnlySQLTransactionError,
        "the database is read-only, perhaps a standby: use the primary, or make it writable",
    ),
    (asyncpg.DiskFullError, _DISK_FULL),
    (asyncpg.OutOfMemoryError, "the database is out of memory: raise max_locks_per_transaction or give it more"),
    (
        asyncpg.InvalidAuthorizationSpecificationError,
        "the database refuses the account: check the user and the password",
    ),
    (asyncpg.InsufficientPrivilegeError, f"the account may not use schema mlmq: grant it, or {INIT_HINT} as its owner"),
)
_SCHEMA_MISSING = (asyncpg.InvalidSchemaNameError, asyncpg.UndefinedFunctionError, asyncpg.UndefinedTableError)


@contextmanager
def translated_errors() -> Iterator[None]:
    """Translate driver errors into errors that a broker can act on."""
    try:
        yield
    except _SCHEMA_MISSING as err:
        raise ConfigError(f"the database has no MLMQ schema: {INIT_HINT} ({err})") from err
    except tuple(kind for kind, _ in _REJECTED) as err:
        cure = next(cure for kind, cure in _REJECTED if isinstance(err, kind))
        raise StorageRejected(f"{cure} ({err})") from err
    except asyncpg.InternalServerError as err:
        if _DISK_FULL_HINT not in (err.hint or ""):
            raise
        raise StorageRejected(f"{_DISK_FULL} ({err})") from err
    except _UNAVAILABLE as err:
        raise StorageUnavailable(f"the database is unavailable: {type(err).__name__}: {err}".rstrip(": ")) from err
