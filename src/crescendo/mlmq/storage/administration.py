"""What does an operator see and change in the queues of all owners?

Statistics of queues, messages without taking them, and moving or deleting messages. Works on the database, so it needs
its password and no broker. What a client holds on a lease is left alone.
"""

from typing import Any, NamedTuple

from crescendo.mlmq.storage.failures import translated_errors
from crescendo.model.errors import ConfigError

_QUEUES = """
SELECT q.name, CASE WHEN q.client IS NULL THEN 'public' ELSE 'client' END, o.name,
       count(m.id) FILTER (WHERE m.leased_until IS NULL OR m.leased_until <= clock_timestamp()),
       count(m.id) FILTER (WHERE m.leased_until > clock_timestamp() AND m.leased_by IS NOT NULL),
       count(m.id) FILTER (WHERE m.leased_until > clock_timestamp() AND m.leased_by IS NULL),
       count(m.id) FILTER (WHERE m.dead_from IS NOT NULL),
       coalesce(sum(octet_length(m.content)), 0)::bigint,
       coalesce(extract(epoch FROM clock_timestamp() - min(m.sent_at)), 0)::float8,
       q.max_deliveries, d.name, extract(epoch FROM q.retention)::float8
FROM mlmq.queue q
LEFT JOIN mlmq.message m ON m.queue = q.id
LEFT JOIN mlmq.client o ON o.id = q.owner
LEFT JOIN mlmq.queue d ON d.id = q.dead_letters
GROUP BY q.id, o.name, d.name ORDER BY count(m.id) DESC, q.name LIMIT $1
"""
_MESSAGES = """
SELECT m.id, m.priority, extract(epoch FROM clock_timestamp() - m.sent_at)::float8, m.delivery,
       CASE WHEN m.leased_until IS NULL OR m.leased_until <= clock_timestamp() THEN 'waiting'
            WHEN m.leased_by IS NULL THEN 'delayed' ELSE 'leased' END,
       s.name, f.name, m.content
FROM mlmq.message m
LEFT JOIN mlmq.client s ON s.id = m.sender
LEFT JOIN mlmq.queue f ON f.id = m.dead_from
WHERE m.queue = $1 ORDER BY m.priority DESC, m.sent_at, m.id LIMIT $2
"""
_QUEUE = "SELECT q.id FROM mlmq.queue q WHERE q.name = $1"
_KEEP_QUEUES = "SELECT pg_advisory_xact_lock_shared(19788, 1)"  # nobody deletes one meanwhile; see the procedures
# It stays marked as delivered before, and may be delivered nearly as often again.
_MOVE = """
UPDATE mlmq.message m SET queue = $2, delivery = least(m.delivery, 1), dead_from = NULL, leased_by = NULL
WHERE m.id = ANY (ARRAY(
    SELECT w.id FROM mlmq.message w WHERE w.leased_until IS NULL AND w.queue = $1
    ORDER BY w.priority DESC, w.sent_at, w.id LIMIT $3 FOR UPDATE SKIP LOCKED
))
"""
_PURGE = """
DELETE FROM mlmq.message m WHERE m.id = ANY (ARRAY(
    SELECT w.id FROM mlmq.message w
    WHERE w.queue = $1 AND (w.leased_by IS NULL OR w.leased_until IS NULL OR w.leased_until <= clock_timestamp())
    ORDER BY w.id FOR UPDATE SKIP LOCKED
))
"""


class QueueStatistics(NamedTuple):
    """One queue, its messages and its limits."""

    name: str
    kind: str  # public, or a client's own
    owner: str | None
    waiting: int
    leased: int
    delayed: int
    dead: int  # of all of them, those that were moved here as dead letters
    content_bytes: int
    oldest_s: float
    max_deliveries: int | None
    dead_letters: str | None
    retention_s: float | None


class StoredMessage(NamedTuple):
    """One message as it is stored."""

    id: int
    priority: int
    age_s: float
    delivery: int  # how often it was delivered so far
    state: str  # waiting, leased or delayed
    sender: str | None
    dead_from: str | None
    content: bytes


async def queue_statistics(connection: Any, most: int) -> list[QueueStatistics]:
    """The longest queues. Reads every message."""
    with translated_errors():
        return [QueueStatistics(*row) for row in await connection.fetch(_QUEUES, most)]


async def stored_messages(connection: Any, queue: str, most: int) -> list[StoredMessage]:
    """The first messages of a queue, in the order of priority, leased and delayed ones among them."""
    with translated_errors():
        found = await connection.fetch(_MESSAGES, await _id_of(connection, queue), most)
        return [StoredMessage(*row) for row in found]


async def move_messages(connection: Any, source: str, target: str, most: int | None) -> int:
    """Move waiting messages to another queue, the first ones first. Returns how many."""
    with translated_errors():
        async with connection.transaction():
            await connection.execute(_KEEP_QUEUES)
            ids = await _id_of(connection, source), await _id_of(connection, target)
            return _count(await connection.execute(_MOVE, *ids, most))


async def purge_queue(connection: Any, queue: str) -> int:
    """Delete all messages of a queue that nobody holds on a lease. Returns how many."""
    with translated_errors():
        return _count(await connection.execute(_PURGE, await _id_of(connection, queue)))


async def _id_of(connection: Any, queue: str) -> int:
    found = await connection.fetchval(_QUEUE, queue)
    if found is None:
        raise ConfigError(f"there is no queue {queue!r}; crescendo mlmq queues lists them")
    return int(found)


def _count(status: str) -> int:
    """From PostgreSQL's summary, such as `DELETE 3`."""
    return int(status.rpartition(" ")[2])
