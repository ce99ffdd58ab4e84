"""Can this database store what a broker acknowledges, and what slows it down?

Settings under which a crash loses acknowledged messages, whether it can be written to, and the numbers that explain a
slow queue: old snapshots, dead rows, leases. Changes nothing except one row of its own.
"""

from typing import Any, NamedTuple

from crescendo.mlmq.storage.failures import translated_errors

# What every session of a broker asks for, whatever the defaults of the database or the account are.
SESSION_SETTINGS = {
    "synchronous_commit": "on",
    "default_transaction_isolation": "read committed",
    # The procedures forbid plans by making them look expensive, and what looks expensive would be compiled each time.
    "jit": "off",
}

_UNSAFE_SETTINGS = """
SELECT name FROM pg_settings WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off'
UNION ALL
SELECT 'synchronous_commit' WHERE current_setting('synchronous_commit') IN ('off', 'local')
"""
_UNLOGGED_TABLES = """
SELECT c.relname::text FROM pg_class c
WHERE c.relnamespace = 'mlmq'::regnamespace AND c.relkind IN ('r', 'p') AND c.relpersistence <> 'p' ORDER BY 1
"""
_ASYNCHRONOUS_STANDBYS = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'async'"
_WRITE = "UPDATE mlmq.health_check SET checked_at = clock_timestamp()"
_COUNTED_LEASES = 100_000
_STATISTICS = f"""
SELECT coalesce((SELECT extract(epoch FROM max(clock_timestamp() - a.xact_start)) FROM pg_stat_activity a
                 WHERE a.backend_xmin IS NOT NULL AND a.pid <> pg_backend_pid()), 0)::float8,
       coalesce((SELECT sum(t.n_dead_tup) FROM pg_stat_user_tables t WHERE t.schemaname = 'mlmq'), 0)::bigint,
       (SELECT count(*) FROM (SELECT 1 FROM mlmq.message m WHERE m.leased_until IS NOT NULL LIMIT {_COUNTED_LEASES}) l),
       pg_table_size('mlmq.message'), pg_indexes_size('mlmq.message'),
       pg_total_relation_size('mlmq.receipt_0') + pg_total_relation_size('mlmq.receipt_1')
"""  # noqa: S608 - a constant of ours


class DatabaseStatistics(NamedTuple):
    """What explains a slow queue."""

    oldest_snapshot_s: float = 0.0  # of another transaction: dead rows younger than this stay
    dead_rows: int = 0
    leases: int = 0  # counted up to 100,000
    message_bytes: int = 0
    index_bytes: int = 0
    receipt_bytes: int = 0


async def durability_problems(connection: Any) -> list[str]:
    """Why a crash of this database would lose what a broker has acknowledged. Empty: it would not."""
    with translated_errors():
        settings = [row[0] for row in await connection.fetch(_UNSAFE_SETTINGS)]
        unlogged = [row[0] for row in await connection.fetch(_UNLOGGED_TABLES)]
    return [
        *(f"{name} is {'off' if name != 'synchronous_commit' else 'too weak'}" for name in settings),
        *(f"table mlmq.{name} is not logged" for name in unlogged),
    ]


async def asynchronous_standbys(connection: Any) -> int:
    """How many standbys may lack the latest commits when they are promoted. 0 also if this account may not see them."""
    with translated_errors():
        return int(await connection.fetchval(_ASYNCHRONOUS_STANDBYS))


async def write_check(connection: Any, timeout_s: float) -> None:
    """Commit a write, or raise an error of `failures`."""
    with translated_errors():
        await connection.execute(_WRITE, timeout=timeout_s)


async def statistics(connection: Any, timeout_s: float) -> DatabaseStatistics:
    with translated_errors():
        return DatabaseStatistics(*await connection.fetchrow(_STATISTICS, timeout=timeout_s))
