-- Messages that are delayed, that expire, and that nobody manages to process. All of it happens where expired leases are
-- found: a delayed message is one that is leased to nobody, and whoever looks for messages first settles what is due.

ALTER TABLE mlmq.queue
    ADD COLUMN max_deliveries integer CHECK (max_deliveries >= 1),
    ADD COLUMN dead_letters bigint REFERENCES mlmq.queue ON DELETE SET NULL,
    ADD COLUMN retention interval CHECK (retention > interval '0');
CREATE INDEX queue_dead_letters ON mlmq.queue (dead_letters) WHERE dead_letters IS NOT NULL;
ALTER TABLE mlmq.message
    ADD COLUMN expires_at timestamptz,
    ADD COLUMN dead_from bigint;  -- the queue that it was moved from when it had been delivered too often
CREATE INDEX message_by_expiry ON mlmq.message (expires_at) WHERE expires_at IS NOT NULL AND leased_until IS NULL;

-- Leases that are over return their message, or move it to the dead letters of its queue if it was delivered too often;
-- there everybody may see it, and it stays. Messages that have expired are deleted, but not while they are leased.
CREATE OR REPLACE FUNCTION mlmq.release_expired(moment timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF pg_advisory_xact_lock_shared(19788, 1) IS NULL THEN END IF;  -- the dead letters are not deleted meanwhile
    WITH due AS MATERIALIZED (
        SELECT e.id, q.dead_letters FROM mlmq.message e
        LEFT JOIN mlmq.queue q ON q.id = e.queue AND q.max_deliveries <= e.delivery AND q.dead_letters IS NOT NULL
        WHERE e.leased_until <= moment FOR UPDATE OF e SKIP LOCKED
    )
    UPDATE mlmq.message m SET
        leased_until = NULL,
        queue = coalesce(d.dead_letters, m.queue),
        dead_from = CASE WHEN d.dead_letters IS NULL THEN m.dead_from ELSE m.queue END,
        receiver = CASE WHEN d.dead_letters IS NULL THEN m.receiver END,
        leased_by = CASE WHEN d.dead_letters IS NULL THEN m.leased_by END,
        expires_at = CASE WHEN d.dead_letters IS NULL THEN m.expires_at END
    FROM due d WHERE m.id = d.id;
    DELETE FROM mlmq.message m WHERE m.id = ANY (ARRAY(
        SELECT e.id FROM mlmq.message e WHERE e.leased_until IS NULL AND e.expires_at <= moment FOR UPDATE SKIP LOCKED
    ));
END $$;

DO $$
DECLARE
    change record;
    body text;
    more text := 'delays_ms integer[], expiries_ms bigint[]';
BEGIN
    FOR change IN
        SELECT * FROM (VALUES
            ('send_many', 'numbers bigint[])', 'numbers bigint[], ' || more || ')'),
            ('send_many', 'sent_at, priority, content)', 'sent_at, priority, content, leased_until, expires_at)'),
            ('send_many', 'moment, u.priority, u.content',
             'moment, u.priority, u.content, CASE WHEN u.delay_ms > 0 THEN moment + u.delay_ms * interval ''1 ms'' END, '
             'moment + coalesce(u.expiry_ms * interval ''1 ms'', (SELECT q.retention FROM queue q WHERE q.id = u.queue))'),
            ('send_many', 'priorities, contents, verdicts)', 'priorities, contents, verdicts, delays_ms, expiries_ms)'),
            ('send_many', 'priority, content, verdict)', 'priority, content, verdict, delay_ms, expiry_ms)'),
            ('exchange_many', 'send_numbers bigint[], ', 'send_numbers bigint[], ' || more || ', '),
            ('exchange_many', 'send_slots, send_numbers)', 'send_slots, send_numbers, delays_ms, expiries_ms)'),
            ('exchange_plain', 'SELECT u.*, coalesce(q.id, o.id) AS target,',
             'SELECT u.*, coalesce(q.id, o.id) AS target, coalesce(q.retention, o.retention) AS retention,'),
            ('exchange_plain', 'sent_at, priority, content)', 'sent_at, priority, content, expires_at)'),
            ('exchange_plain', 'w.final, moment, w.priority, w.content
            FROM', 'w.final, moment, w.priority, w.content, moment + w.retention
            FROM'),
            ('exchange_plain', 'm.leased_until <= moment)', 'm.leased_until <= moment)
       OR EXISTS (SELECT 1 FROM mlmq.message m WHERE m.leased_until IS NULL AND m.expires_at <= moment)'),
            ('dequeue_many', 'm.leased_until <= moment)', 'm.leased_until <= moment)
       OR EXISTS (SELECT 1 FROM message m WHERE m.leased_until IS NULL AND m.expires_at <= moment)'),
            ('peek_many', 'm.leased_until <= moment)', 'm.leased_until <= moment)
       OR EXISTS (SELECT 1 FROM message m WHERE m.leased_until IS NULL AND m.expires_at <= moment)'),
            ('pending_many', 'm.leased_until <= moment)', 'm.leased_until <= moment)
       OR EXISTS (SELECT 1 FROM message m WHERE m.leased_until IS NULL AND m.expires_at <= moment)'),
            ('count_available', 'm.leased_until <= moment)', 'm.leased_until <= moment)
       OR EXISTS (SELECT 1 FROM message m WHERE m.leased_until IS NULL AND m.expires_at <= moment)'),
            -- Given back, its lease is over: then it is released like any other.
            ('extend_many', 'CASE WHEN leases_ms[array_position(messages, m.id)] > 0
                THEN moment + leases_ms[array_position(messages, m.id)] * interval ''1 millisecond'' END',
             'moment + leases_ms[array_position(messages, m.id)] * interval ''1 millisecond'''),
            ('abandon_many', 'leased_by = NULL, leased_until = NULL', 'leased_by = NULL, leased_until = moment')
        ) AS c (name, old, new)
    LOOP
        SELECT pg_get_functiondef(p.oid) INTO body FROM pg_proc p
        WHERE p.pronamespace = 'mlmq'::regnamespace AND p.proname = change.name ORDER BY p.oid DESC LIMIT 1;
        ASSERT length(replace(body, change.old, '')) = length(body) - length(change.old), change.name || change.old;
        EXECUTE replace(body, change.old, change.new);
        -- With further parameters it is another function.
        EXECUTE coalesce((
            SELECT string_agg(format('DROP FUNCTION %s', p.oid::regprocedure), ';') FROM (
                SELECT o.oid, row_number() OVER (ORDER BY o.oid DESC) AS age FROM pg_proc o
                WHERE o.pronamespace = 'mlmq'::regnamespace AND o.proname = change.name
            ) p WHERE p.age > 1
        ), 'SELECT');
    END LOOP;
END $$;

-- By the owner of a queue, or by any client if it has none. A null leaves the queue without that limit.
CREATE FUNCTION mlmq.configure_queues(
    clients bigint[], queues bigint[], limits integer[], dead_letters bigint[], retentions_ms bigint[]
) RETURNS TABLE (ord bigint, status integer)
LANGUAGE plpgsql SET search_path = mlmq, pg_temp AS $$
#variable_conflict use_column
DECLARE
    verdicts integer[];
BEGIN
    PERFORM 1 FROM queue q WHERE q.id = ANY (queues || dead_letters) ORDER BY q.id FOR UPDATE;
    SELECT array_agg(CASE
        WHEN NOT EXISTS (SELECT 1 FROM client c WHERE c.id = u.client) THEN 4
        WHEN q.id IS NULL OR u.dead IS NOT NULL AND d.id IS NULL THEN 5
        WHEN coalesce(q.client, q.owner, u.client) <> u.client OR coalesce(d.client, u.client) <> u.client THEN 6
        ELSE 0 END ORDER BY u.ord)
    INTO verdicts
    FROM unnest(clients, queues, dead_letters) WITH ORDINALITY AS u (client, queue, dead, ord)
    LEFT JOIN queue q ON q.id = u.queue LEFT JOIN queue d ON d.id = u.dead;
    UPDATE queue q SET max_deliveries = u.most, dead_letters = u.dead, retention = u.retention_ms * interval '1 ms'
    FROM (
        SELECT DISTINCT ON (u.queue) u.* FROM unnest(queues, limits, dead_letters, retentions_ms, verdicts)
            WITH ORDINALITY AS u (queue, most, dead, retention_ms, verdict, ord)
        WHERE u.verdict = 0 ORDER BY u.queue, u.ord DESC
    ) u WHERE q.id = u.queue;
    RETURN QUERY SELECT v.ord, v.verdict FROM unnest(verdicts) WITH ORDINALITY AS v (verdict, ord);
END $$;
