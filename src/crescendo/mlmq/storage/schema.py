"""Does this database have our schema, and how is the schema created?

Migrations are numbered files, applied once, in order, all in one transaction, under a lock: however many brokers start
at once, one applies them and the others find them applied. An applied file is never changed; its stored hash proves it.
Deletes nothing.
"""

import hashlib
import re
from importlib import resources
from typing import Any, Final, NamedTuple

from crescendo.mlmq.storage.failures import INIT_HINT, translated_errors
from crescendo.model.errors import ConfigError

OLDEST_POSTGRESQL: Final = 13
_LOCK = (0x4D4C, 0x4D51)  # a two-number lock; slots use one-number locks only
_NAME = re.compile(r"(\d{3})_[a-z_]+\.sql")
_MIGRATION_TABLE = """
CREATE SCHEMA IF NOT EXISTS mlmq;
CREATE TABLE IF NOT EXISTS mlmq.migration (
    number integer PRIMARY KEY,
    sha256 text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);
"""


class Migration(NamedTuple):
    """One migration file."""

    number: int
    text: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def migrations() -> list[Migration]:
    """All migrations, in order."""
    found = []
    for file in resources.files(__package__).joinpath("migrations").iterdir():
        if match := _NAME.fullmatch(file.name):
            found.append(Migration(int(match[1]), file.read_text(encoding="utf-8")))
    return sorted(found)


async def initialise(connection: Any) -> int:
    """Create or migrate the schema. Returns how many migrations were applied: 0 if it was up to date."""
    with translated_errors():
        _check_server(connection)
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock($1, $2)", *_LOCK)
            if await connection.fetchval("SHOW transaction_read_only") == "on":
                raise ConfigError(
                    "the database is read-only, so no schema can be created; use a primary, or make it writable"
                )
            if await _applied(connection) is None:
                await connection.execute(_MIGRATION_TABLE)
            due = _due(await _applied(connection) or {})
            for migration in due:
                await connection.execute(migration.text)
                await connection.execute(
                    "INSERT INTO mlmq.migration (number, sha256) VALUES ($1, $2)", migration.number, migration.sha256
                )
            return len(due)


async def check_schema(connection: Any) -> None:
    """Raise ConfigError unless the schema is exactly the one this program needs."""
    with translated_errors():
        _check_server(connection)
        applied = await _applied(connection)
    if applied is None:
        raise ConfigError(f"the database has no MLMQ schema: {INIT_HINT}")
    if due := _due(applied):
        raise ConfigError(
            f"the database's schema is at version {max(applied, default=0)}, but this program needs "
            f"{due[-1].number}: {INIT_HINT}"
        )


def _check_server(connection: Any) -> None:
    version = connection.get_server_version()
    if version.major < OLDEST_POSTGRESQL:
        raise ConfigError(f"the database is PostgreSQL {version.major}; MLMQ needs {OLDEST_POSTGRESQL} or later")


async def _applied(connection: Any) -> dict[int, str] | None:
    """Number and hash of each applied migration; None when the database was never initialised."""
    if await connection.fetchval("SELECT to_regclass('mlmq.migration')") is None:
        return None
    return {row["number"]: row["sha256"] for row in await connection.fetch("SELECT number, sha256 FROM mlmq.migration")}


def _due(applied: dict[int, str]) -> list[Migration]:
    """The migrations still to apply, after checking that the applied ones are ours."""
    ours = {migration.number: migration for migration in migrations()}
    newest = max(ours)
    if applied and max(applied) > newest:
        raise ConfigError(
            f"the database's schema is at version {max(applied)}, this program knows {newest}: use a newer crescendo"
        )
    for number, sha256 in sorted(applied.items()):
        if number not in ours or ours[number].sha256 != sha256:
            raise ConfigError(
                f"migration {number} of the database is not the one in this program: use the crescendo that created "
                f"the database, or another database"
            )
    return [migration for number, migration in sorted(ours.items()) if number not in applied]
