-- What an old snapshot of somebody else may cost: rows that nobody sees any more cannot be vacuumed, and every dequeue
-- passes those of its queue. And a transaction that has read our tables may hold their locks for hours.

-- Whether another transaction has held a lock on this table for longer than requests take. A session that waits for
-- such a lock stops all that come after it. An account that may not see the age of transactions takes them for old.
CREATE FUNCTION mlmq.is_held(held regclass) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT 1 FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid)
        WHERE l.locktype = 'relation' AND l.relation = held
          AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
          AND l.pid IS DISTINCT FROM pg_backend_pid()
          AND coalesce(a.xact_start < clock_timestamp() - interval '100 milliseconds', true)
    )
$$;

-- As before, but no request waits behind it for a lock that another session will not give.
DO $$
DECLARE
    body text := pg_get_functiondef('mlmq.rotate_receipts'::regproc);
    old text := E'    ELSE\n        IF rotation.current = 0 THEN\n            TRUNCATE';
BEGIN
    ASSERT length(replace(body, old, '')) = length(body) - length(old), 'it occurs once';
    EXECUTE replace(body, old, E'    ELSE
        IF is_held(format(''mlmq.receipt_%s'', 1 - rotation.current)::regclass) THEN
            RETURN ''busy'';
        END IF;
        IF rotation.current = 0 THEN
            TRUNCATE');
END $$;

-- Write what is left of the messages into a new file, if an old snapshot keeps vacuum from removing the others: a
-- truncated table has no dead rows, whatever anybody still sees. Only while few are left, so that it takes milliseconds.
-- A transaction that has read the table already holds its lock, and then nothing is done; one that reads it for the
-- first time afterwards, with a snapshot from before, sees no message.
CREATE FUNCTION mlmq.compact_messages(most_left integer, least_dead bigint) RETURNS text
LANGUAGE plpgsql SET search_path = mlmq, pg_temp SET lock_timeout = '100ms' AS $$
DECLARE
    dead bigint := pg_stat_get_dead_tuples('mlmq.message'::regclass);
    kept message[];
BEGIN
    -- The counts are late by a second, the size is not: nothing is compacted twice.
    IF dead < least_dead OR dead < 4 * pg_stat_get_live_tuples('mlmq.message'::regclass)
       OR pg_relation_size('mlmq.message') < 40 * least_dead OR NOT EXISTS (
        SELECT 1 FROM pg_stat_activity a
        WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND age(a.backend_xmin) > 1000
    ) THEN
        RETURN 'idle';
    END IF;
    IF is_held('mlmq.message') OR NOT pg_try_advisory_xact_lock(19788, 2) THEN
        RETURN 'busy';
    END IF;
    PERFORM pg_advisory_xact_lock_shared(19788, 1);  -- before any table, as requests do
    LOCK TABLE message IN ACCESS EXCLUSIVE MODE;
    SELECT array_agg(x.m) INTO kept FROM (SELECT m FROM message m LIMIT most_left + 1) x;
    IF cardinality(kept) > most_left THEN
        RETURN 'too many are left';
    END IF;
    TRUNCATE message;
    INSERT INTO message SELECT k.* FROM unnest(kept) k;
    RETURN 'compacted';
EXCEPTION WHEN lock_not_available THEN
    RETURN 'busy';
END $$;
