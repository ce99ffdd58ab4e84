"""What does an error of the database mean for whoever waits for an answer?

Away: it may work later, and whether this batch was stored is unknown. Refuses: somebody must act first, and nothing was
stored. Our schema missing or foreign: a mistake in the configuration. Anything else is a fault of ours and rises as it
is. Retries nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import asyncpg

from crescendo.model.errors import ConfigError, PeerError

INIT_HINT: Final = "run crescendo broker --init on it"


class StorageAway(PeerError):
    """Repeat later, with the same `Once`: the outcome is unknown."""


class StorageRefuses(PeerError):
    """A person must act: read-only, full, no rights. Nothing was stored."""


_AWAY = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # what asyncpg raises on a connection whose end it has not read yet
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,  # it is starting, stopping or crashing; also a cancelled statement
    asyncpg.TransactionRollbackError,  # deadlock, serialisation
    asyncpg.TooManyConnectionsError,
    asyncpg.LockNotAvailableError,
)
_FULL = "the database's disk is full: make room there"
_HINT_OF_A_FULL_DISK = "free disk space"  # given also where the code says no more than that something failed
_REFUSES: tuple[tuple[type[Exception], str], ...] = (
    (
        asyncpg.ReadOnlySQLTransactionError,
        "the database is read-only: a standby? Name the primary, or make it writable",
    ),
    (asyncpg.DiskFullError, _FULL),
    (asyncpg.OutOfMemoryError, "the database is out of memory: raise max_locks_per_transaction or give it more"),
    (asyncpg.InsufficientPrivilegeError, f"the account may not use schema mlmq: grant it, or {INIT_HINT} as its owner"),
)
_FOREIGN = (asyncpg.InvalidSchemaNameError, asyncpg.UndefinedFunctionError, asyncpg.UndefinedTableError)


@contextmanager
def translated() -> Iterator[None]:
    """Turn what the driver raises into what a broker can act on."""
    try:
        yield
    except _FOREIGN as err:
        raise ConfigError(f"the database has no schema of MLMQ's: {INIT_HINT} ({err})") from err
    except tuple(kind for kind, _ in _REFUSES) as err:
        cure = next(cure for kind, cure in _REFUSES if isinstance(err, kind))
        raise StorageRefuses(f"{cure} ({err})") from err
    except asyncpg.InternalServerError as err:
        if _HINT_OF_A_FULL_DISK not in (err.hint or ""):
            raise
        raise StorageRefuses(f"{_FULL} ({err})") from err
    except _AWAY as err:
        raise StorageAway(f"the database is away: {type(err).__name__}: {err}".rstrip(": ")) from err
