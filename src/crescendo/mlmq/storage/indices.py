"""How does an experiment measure what the indices of messages are worth?

By dropping them, all but the primary key and those that find what is due, and restoring them afterwards. Their
definitions are kept in the database meanwhile, so that the migrations stay their only home. Not for production: without
them every dequeue reads the whole table.
"""

from typing import Any

from crescendo.mlmq.storage.failures import translated_errors

_LOCK = "SELECT pg_advisory_xact_lock(19788, 3)"  # brokers that start at the same time take turns
_KEPT = ("message_pkey", "message_by_lease", "message_by_expiry")
_PRESENT = """
SELECT i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid)
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = 'mlmq.message'::regclass AND c.relname <> ALL ($1::text[])
"""


async def use_indices(connection: Any, wanted: bool) -> int:
    """Restore the indices of messages, or drop them. Returns how many were changed: 0 if all is as wanted."""
    with translated_errors():
        if wanted and not await connection.fetchval("SELECT count(*) FROM mlmq.dropped_index"):
            return 0
        async with connection.transaction():
            await connection.execute(_LOCK)
            changed = 0
            if wanted:
                for row in await connection.fetch("DELETE FROM mlmq.dropped_index RETURNING definition"):
                    await connection.execute(row["definition"])
                    changed += 1
            else:
                for name, definition in await connection.fetch(_PRESENT, list(_KEPT)):
                    await connection.execute("INSERT INTO mlmq.dropped_index VALUES ($1)", definition)
                    await connection.execute(f"DROP INDEX {name}")
                    changed += 1
            return changed
