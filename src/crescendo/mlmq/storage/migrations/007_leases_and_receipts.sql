-- What is leased is not in the way of what is free, and an answer is remembered by inserting, never by updating:
-- neither 100,000 leases nor somebody's old snapshot makes a request slower.

-- Only free messages are in the indices that dequeues read. A message whose lease has expired becomes free again by
-- release_expired, which everybody calls before looking, if there is one. `leased_by` stays: until another client gets
-- the message, a late acknowledgement still counts.
DROP INDEX mlmq.message_by_priority, mlmq.message_by_age, mlmq.message_by_sender, mlmq.message_by_context;
CREATE INDEX message_by_priority ON mlmq.message (queue, priority DESC, sent_at, id) WHERE leased_until IS NULL;
CREATE INDEX message_by_age ON mlmq.message (queue, sent_at, id) WHERE leased_until IS NULL;
CREATE INDEX message_by_sender ON mlmq.message (sender) WHERE leased_until IS NULL;
CREATE INDEX message_by_context ON mlmq.message (context) WHERE leased_until IS NULL AND context IS NOT NULL;
CREATE INDEX message_by_lease ON mlmq.message (leased_until) WHERE leased_until IS NOT NULL;

CREATE FUNCTION mlmq.release_expired(moment timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE mlmq.message m SET leased_until = NULL WHERE m.ctid = ANY (ARRAY(
        SELECT e.ctid FROM mlmq.message e WHERE e.leased_until <= moment FOR UPDATE SKIP LOCKED
    ));
END $$;

-- The answers that may have to be repeated, of every slot the one with the highest number. They are written into one of
-- two tables; when it has grown, the other becomes the current one, the last answer of every slot is copied there, and
-- the first is truncated. `key` is session * 64 + slot.
ALTER TABLE mlmq.receipt RENAME TO receipt_until_006;
CREATE TABLE mlmq.receipt (
    generation smallint NOT NULL,
    leased boolean NOT NULL DEFAULT false,
    key bigint NOT NULL,
    number bigint NOT NULL,
    client bigint NOT NULL,
    answered_at timestamptz NOT NULL,
    sent bigint[],
    context bigint,
    given mlmq.given[]
) PARTITION BY LIST (generation);
-- Nothing in them is ever updated or deleted, so there is nothing to vacuum.
CREATE TABLE mlmq.receipt_0 PARTITION OF mlmq.receipt FOR VALUES IN (0) WITH (autovacuum_enabled = off);
CREATE TABLE mlmq.receipt_1 PARTITION OF mlmq.receipt FOR VALUES IN (1) WITH (autovacuum_enabled = off);
CREATE INDEX receipt_by_key ON mlmq.receipt (key, number);

CREATE TABLE mlmq.receipt_rotation (
    current smallint NOT NULL,
    step text NOT NULL CHECK (step IN ('idle', 'switched', 'copied')),
    switched_at timestamptz NOT NULL
);
INSERT INTO mlmq.receipt_rotation VALUES (0, 'idle', clock_timestamp());

-- Whether these were given with a lease is not known any more; saying so gives nothing back twice.
INSERT INTO mlmq.receipt (generation, leased, key, number, client, answered_at, sent, context, given)
SELECT 0, true, r.session * 64 + r.slot, r.number, r.client, r.answered_at, r.sent, r.context, r.given
FROM mlmq.receipt_until_006 r WHERE r.sent IS NOT NULL OR r.given IS NOT NULL;
DROP TABLE mlmq.receipt_until_006;
DROP FUNCTION mlmq.forget_receipts, mlmq.begin_sessions;

-- One step of the rotation, each in a transaction of its own: whoever reads the receipts while the old ones are being
-- truncated has seen the copies. Receipts older than `forget_s`, and those of clients that are gone, are not copied.
-- Whoever writes a receipt shares the lock (19788, 1), so that nothing is written into a table that is not current.
CREATE FUNCTION mlmq.rotate_receipts(max_bytes bigint, forget_s double precision) RETURNS text
LANGUAGE plpgsql SET search_path = mlmq, pg_temp SET lock_timeout = '200ms' AS $$
DECLARE
    rotation receipt_rotation;
    cutoff timestamptz := clock_timestamp() - forget_s * interval '1 second';
BEGIN
    IF NOT pg_try_advisory_xact_lock(19788, 2) THEN
        RETURN 'busy';
    END IF;
    SELECT * INTO rotation FROM receipt_rotation;
    CASE rotation.step
    WHEN 'idle' THEN
        IF pg_relation_size(format('mlmq.receipt_%s', rotation.current)::regclass) <= max_bytes
           AND (rotation.switched_at > cutoff OR NOT EXISTS (SELECT 1 FROM receipt)) THEN
            RETURN 'idle';
        END IF;
        PERFORM pg_advisory_xact_lock(19788, 1);
        UPDATE receipt_rotation SET current = 1 - current, step = 'switched', switched_at = clock_timestamp();
        RETURN 'switched';
    WHEN 'switched' THEN
        INSERT INTO receipt (generation, leased, key, number, client, answered_at, sent, context, given)
        SELECT rotation.current, r.leased, r.key, r.number, r.client, r.answered_at, r.sent, r.context, r.given
        FROM (
            SELECT DISTINCT ON (o.key, o.client) o.* FROM receipt o WHERE o.generation = 1 - rotation.current
            ORDER BY o.key, o.client, o.number DESC
        ) r
        WHERE r.answered_at >= cutoff AND EXISTS (SELECT 1 FROM client c WHERE c.id = r.client);
        UPDATE receipt_rotation SET step = 'copied';
        RETURN 'copied';
    ELSE
        IF rotation.current = 0 THEN
            TRUNCATE receipt_1;
        ELSE
            TRUNCATE receipt_0;
        END IF;
        UPDATE receipt_rotation SET step = 'idle';
        RETURN 'truncated';
    END CASE;
EXCEPTION WHEN lock_not_available THEN
    RETURN 'busy';
END $$;

-- A client gives up answers that it never got: messages that were taken for it go back, marked as delivered before, and
-- copies of those requests that a slow broker still holds become stale. Each has the number after the request's.
CREATE FUNCTION mlmq.abandon_many(clients bigint[], sessions bigint[], slots smallint[], numbers bigint[])
RETURNS TABLE (ord bigint, status integer)
LANGUAGE plpgsql SET search_path = mlmq, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    moment timestamptz;
BEGIN
    IF pg_advisory_xact_lock_shared(19788, 1) IS NULL THEN END IF;
    PERFORM pg_advisory_xact_lock(o.key) FROM (
        SELECT DISTINCT u.session * 64 + u.slot AS key FROM unnest(sessions, slots) AS u (session, slot) ORDER BY key
    ) o;
    moment := clock_timestamp();
    WITH asked AS MATERIALIZED (
        SELECT DISTINCT u.client, u.session * 64 + u.slot AS key, u.number
        FROM unnest(clients, sessions, slots, numbers) AS u (client, session, slot, number)
        WHERE EXISTS (SELECT 1 FROM client c WHERE c.id = u.client) AND NOT EXISTS (
            SELECT 1 FROM receipt r
            WHERE r.key = u.session * 64 + u.slot AND r.number >= u.number AND r.client = u.client
        )
    ), lost AS MATERIALIZED (
        SELECT a.client, r.leased, g.* FROM asked a
        JOIN receipt r ON r.key = a.key AND r.number = a.number - 1 AND r.client = a.client
        CROSS JOIN LATERAL unnest(r.given) g
    ), stored AS (
        INSERT INTO message (id, queue, sender, receiver, context, sent_at, delivery, priority, content)
        SELECT l.id, l.queue, l.sender, l.receiver, l.context, l.sent_at, l.delivery, l.priority, l.content
        FROM lost l WHERE NOT l.leased AND EXISTS (SELECT 1 FROM queue q WHERE q.id = l.queue)
        ON CONFLICT (id) DO NOTHING
    ), released AS (
        UPDATE message m SET leased_by = NULL, leased_until = NULL FROM lost l
        WHERE l.leased AND m.id = l.id AND m.leased_by = l.client AND m.delivery = l.delivery
    )
    INSERT INTO receipt (generation, key, number, client, answered_at)
    SELECT (SELECT g.current FROM receipt_rotation g), a.key, a.number, a.client, moment FROM asked a;
    RETURN QUERY
    SELECT u.ord, CASE WHEN EXISTS (SELECT 1 FROM client c WHERE c.id = u.client) THEN 0 ELSE 4 END
    FROM unnest(clients) WITH ORDINALITY AS u (client, ord);
END $$;

-- What could be dequeued now, at most `most` of each, whoever may see it: one look for all dequeues that wait for the
-- same. It writes only if a lease has expired.
CREATE FUNCTION mlmq.count_available(queues bigint[], senders bigint[], contexts bigint[], most integer)
RETURNS TABLE (ord bigint, available bigint)
LANGUAGE plpgsql SET search_path = mlmq, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    moment timestamptz := clock_timestamp();
BEGIN
    IF EXISTS (SELECT 1 FROM message m WHERE m.leased_until <= moment) THEN
        PERFORM release_expired(moment);
    END IF;
    RETURN QUERY
    SELECT u.ord, CASE
        WHEN u.context IS NOT NULL THEN (SELECT count(*) FROM (
            SELECT 1 FROM message m WHERE m.leased_until IS NULL AND m.context = u.context
              AND (u.queue IS NULL OR m.queue = u.queue) AND (u.sender IS NULL OR m.sender = u.sender) LIMIT most
        ) x)
        WHEN u.sender IS NOT NULL THEN (SELECT count(*) FROM (
            SELECT 1 FROM message m WHERE m.leased_until IS NULL AND m.sender = u.sender
              AND (u.queue IS NULL OR m.queue = u.queue) LIMIT most
        ) x)
        ELSE (SELECT count(*) FROM (
            SELECT 1 FROM message m WHERE m.leased_until IS NULL AND m.queue = u.queue LIMIT most
        ) x) END
    FROM unnest(queues, senders, contexts) WITH ORDINALITY AS u (queue, sender, context, ord);
END $$;

-- Messages are locked in the order of their ids, as acknowledgements lock them.
CREATE OR REPLACE FUNCTION mlmq.empty_queues(queues bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path = mlmq, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    doomed bigint[];
BEGIN
    SELECT array_agg(x.id) INTO doomed FROM (
        SELECT m.id FROM message m WHERE m.leased_until IS NULL AND m.queue = ANY (queues)
        UNION ALL
        SELECT m.id FROM message m WHERE m.leased_until IS NOT NULL AND m.queue = ANY (queues)
    ) x;
    PERFORM 1 FROM message m WHERE m.id = ANY (doomed) ORDER BY m.id FOR UPDATE;
    DELETE FROM message m WHERE m.id = ANY (doomed);
END $$;

-- The next rotation does not copy the receipts of a client that is gone; until then none of its requests is served.
DO $$
DECLARE
    body text := pg_get_functiondef('mlmq.deregister_many'::regproc);
    old text := E'    DELETE FROM receipt r WHERE r.client = ANY (clients);\n';
BEGIN
    ASSERT length(replace(body, old, '')) = length(body) - length(old), 'it occurs once';
    EXECUTE replace(body, old, '');
END $$;

-- As before, but for what is free and for receipts that are inserted.
CREATE OR REPLACE FUNCTION mlmq.send_many(
    ords integer[], queues bigint[], clients bigint[], contents bytea[], priorities smallint[], receivers bigint[],
    contexts bigint[], fresh boolean[], sessions bigint[], slots smallint[], numbers bigint[]
) RETURNS TABLE (ord integer, status integer, sent bigint[], context bigint)
LANGUAGE plpgsql SET search_path = mlmq, pg_temp
    SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    moment timestamptz;
    targets bigint[];
    verdicts integer[];
    finals bigint[];
    ids bigint[];
    refused boolean;
BEGIN
    IF pg_advisory_xact_lock_shared(19788, 1) IS NULL THEN END IF;
    PERFORM pg_advisory_xact_lock(o.key) FROM (
        SELECT DISTINCT u.session * 64 + u.slot AS key FROM unnest(sessions, slots) AS u (session, slot)
        WHERE u.session IS NOT NULL ORDER BY key
    ) o;
    -- Without a queue: the receiver's own. A receiver that is not there leaves a null, and is judged below.
    targets := queues;
    IF array_position(queues, NULL) IS NOT NULL THEN
        SELECT array_agg(coalesce(u.queue, (SELECT q.id FROM queue q WHERE q.client = u.receiver)) ORDER BY u.place)
        INTO targets FROM unnest(queues, receivers) WITH ORDINALITY AS u (queue, receiver, place);
    END IF;
    -- From here to our commit nobody deletes these queues.
    PERFORM 1 FROM queue q WHERE q.id = ANY (targets) ORDER BY q.id FOR KEY SHARE;
    moment := clock_timestamp();
    -- -1: answered before. Numbers drawn for what is refused after all are lost, and nobody misses them.
    SELECT array_agg(j.verdict ORDER BY j.place),
           array_agg(CASE WHEN j.fresh THEN nextval('context_number') ELSE j.context END ORDER BY j.place),
           array_agg(nextval('message_number') ORDER BY j.place), bool_or(j.verdict <> 0)
    INTO verdicts, finals, ids, refused
    FROM (
        SELECT u.place, u.context, u.fresh, CASE
            WHEN NOT EXISTS (SELECT 1 FROM client c WHERE c.id = u.client) THEN 4
            WHEN k.number = u.number THEN -1
            WHEN k.number > u.number THEN 8
            WHEN u.receiver IS NOT NULL AND NOT EXISTS (SELECT 1 FROM client c WHERE c.id = u.receiver) THEN 4
            WHEN NOT EXISTS (SELECT 1 FROM queue q WHERE q.id = u.queue) THEN 5
            ELSE 0 END AS verdict
        FROM unnest(targets, clients, receivers, contexts, fresh, sessions, slots, numbers)
            WITH ORDINALITY AS u (queue, client, receiver, context, fresh, session, slot, number, place)
        LEFT JOIN LATERAL (
            SELECT r.number FROM receipt r
            WHERE r.key = u.session * 64 + u.slot AND r.number >= u.number AND r.client = u.client
            ORDER BY r.number DESC LIMIT 1
        ) k ON true
    ) j;
    -- A request for several queues is one: stored for all of them or for none, with one context.
    IF ords[cardinality(ords)] - ords[1] + 1 < cardinality(ords) THEN
        SELECT array_agg(w.verdict ORDER BY w.place), array_agg(w.context ORDER BY w.place) INTO verdicts, finals
        FROM (
            SELECT u.place, max(u.verdict) OVER one AS verdict, min(u.context) OVER one AS context
            FROM unnest(ords, verdicts, finals) WITH ORDINALITY AS u (ord, verdict, context, place)
            WINDOW one AS (PARTITION BY u.ord)
        ) w;
    END IF;
    INSERT INTO message (id, queue, sender, receiver, context, sent_at, priority, content)
    SELECT u.id, u.queue, u.client, u.receiver, u.context, moment, u.priority, u.content
    FROM unnest(ids, targets, clients, receivers, finals, priorities, contents, verdicts)
        AS u (id, queue, client, receiver, context, priority, content, verdict)
    WHERE u.verdict = 0;
    RETURN QUERY
    WITH answered AS MATERIALIZED (
        SELECT u.ord, array_agg(u.id) AS sent, max(u.context) AS context, max(u.client) AS client,
               max(u.session) AS session, max(u.slot) AS slot, max(u.number) AS number
        FROM unnest(ords, ids, finals, clients, sessions, slots, numbers, verdicts)
            AS u (ord, id, context, client, session, slot, number, verdict)
        WHERE u.verdict = 0 GROUP BY u.ord
    ), kept AS (
        INSERT INTO receipt (generation, key, number, client, answered_at, sent, context)
        SELECT (SELECT g.current FROM receipt_rotation g), a.session * 64 + a.slot, a.number, a.client, moment, a.sent,
               a.context
        FROM answered a WHERE a.session IS NOT NULL
    )
    SELECT a.ord, 0, a.sent, a.context FROM answered a;
    IF refused THEN
        RETURN QUERY
        SELECT DISTINCT ON (u.ord) u.ord, greatest(u.verdict, 0), k.sent, k.context
        FROM unnest(ords, clients, sessions, slots, numbers, verdicts)
            AS u (ord, client, session, slot, number, verdict)
        LEFT JOIN LATERAL (
            SELECT r.sent, r.context FROM receipt r
            WHERE r.key = u.session * 64 + u.slot AND r.number = u.number AND r.client = u.client LIMIT 1
        ) k ON u.verdict = -1
        WHERE u.verdict <> 0 ORDER BY u.ord;
    END IF;
END $$;

CREATE OR REPLACE FUNCTION mlmq.dequeue_many(
    clients bigint[], queues bigint[], senders bigint[], contexts bigint[], by_age boolean[], counts integer[],
    leases_ms integer[], sessions bigint[], slots smallint[], numbers bigint[]
) RETURNS TABLE (
    ord bigint, status integer, id bigint, queue bigint, sender bigint, receiver bigint, priority smallint,
    context bigint, sent_at timestamptz, delivery integer, content bytea
)
LANGUAGE plpgsql SET search_path = mlmq, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_incremental_sort = off AS $$
#variable_conflict use_column
DECLARE
    moment timestamptz;
    verdicts integer[];
    worst integer;
    least integer;
    apart boolean;  -- each for a queue, and no two for the same
    by_priority boolean;  -- whether anybody asks so, and below
    by_context boolean;
    by_arrival boolean;
    by_sender boolean;
    waves bigint[];  -- null: not served
    turn bigint := 1;
    last_wave bigint := 1;
    skips integer[];
    asking bigint[] := clients;  -- null: several clients ask together, and see what is meant for any one of them
    tangled boolean;  -- they saw such a message, or what somebody gave back in the middle: some got the same
    more_tangled boolean;
    more_places bigint[];
    more_picked given[];
    wave_places bigint[];
    wave_picked given[];
    places bigint[] := '{}';
    picked given[] := '{}';
    taken bigint[];
    leased bigint[];
    holders bigint[];
    spans integer[];
BEGIN
    IF pg_advisory_xact_lock_shared(19788, 1) IS NULL THEN END IF;
    PERFORM pg_advisory_xact_lock(o.key) FROM (
        SELECT DISTINCT u.session * 64 + u.slot AS key FROM unnest(sessions, slots) AS u (session, slot)
        WHERE u.session IS NOT NULL ORDER BY key
    ) o;
    moment := clock_timestamp();
    IF EXISTS (SELECT 1 FROM message m WHERE m.leased_until <= moment) THEN
        PERFORM release_expired(moment);
    END IF;
    -- -1: answered before. A receipt without messages was an empty answer, and such a request is served anew.
    SELECT array_agg(v.verdict ORDER BY v.ord), max(v.verdict), min(v.verdict), count(DISTINCT v.queue) = count(*),
           bool_or(v.queue IS NOT NULL AND v.context IS NULL AND NOT v.by_age), bool_or(v.context IS NOT NULL),
           bool_or(v.queue IS NOT NULL AND v.context IS NULL AND v.by_age),
           bool_or(v.queue IS NULL AND v.context IS NULL)
    INTO verdicts, worst, least, apart, by_priority, by_context, by_arrival, by_sender
    FROM (
        SELECT u.ord, u.queue, u.context, u.by_age, CASE
            WHEN NOT EXISTS (SELECT 1 FROM client c WHERE c.id = u.client) THEN 4
            WHEN k.verdict IS NOT NULL THEN k.verdict
            WHEN u.queue IS NULL THEN 0
            ELSE coalesce((SELECT CASE WHEN q.client IS NULL OR q.client = u.client THEN 0 ELSE 6 END
                           FROM queue q WHERE q.id = u.queue), 5) END AS verdict
        FROM unnest(clients, queues, contexts, by_age, sessions, slots, numbers)
            WITH ORDINALITY AS u (client, queue, context, by_age, session, slot, number, ord)
        LEFT JOIN LATERAL (
            SELECT CASE WHEN r.number > u.number THEN 8 WHEN r.given IS NOT NULL THEN -1 END AS verdict
            FROM receipt r
            WHERE r.key = u.session * 64 + u.slot AND r.number >= u.number AND r.client = u.client
            ORDER BY r.number DESC LIMIT 1
        ) k ON true
    ) v;
    IF worst > 0 THEN
        RETURN QUERY
        SELECT v.ord, v.verdict, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::smallint, NULL::bigint,
               NULL::timestamptz, NULL::integer, NULL::bytea
        FROM unnest(verdicts) WITH ORDINALITY AS v (verdict, ord) WHERE v.verdict > 0;
    END IF;
    IF least < 0 THEN
        RETURN QUERY
        SELECT u.ord, 0, g.* FROM unnest(clients, sessions, slots, numbers, verdicts)
            WITH ORDINALITY AS u (client, session, slot, number, verdict, ord)
        CROSS JOIN LATERAL (
            SELECT r.given FROM receipt r
            WHERE r.key = u.session * 64 + u.slot AND r.number = u.number AND r.client = u.client LIMIT 1
        ) k CROSS JOIN LATERAL unnest(k.given) g WHERE u.verdict = -1;
    END IF;

    IF apart AND worst = 0 AND least = 0 THEN
        waves := array_fill(1::bigint, ARRAY[cardinality(clients)]);
        skips := array_fill(0, ARRAY[cardinality(clients)]);
    ELSE
        SELECT array_agg(w.wave ORDER BY w.ord), array_agg(w.skip ORDER BY w.ord), array_agg(w.asking ORDER BY w.ord),
               max(w.wave)
        INTO waves, skips, asking, last_wave FROM (
            SELECT f.ord, f.skip, f.asking, CASE
                WHEN f.verdict <> 0 THEN NULL
                WHEN f.queue IS NULL THEN cardinality(clients) + f.ord
                ELSE dense_rank() OVER (PARTITION BY f.queue, f.verdict ORDER BY f.first) END AS wave
            FROM (
                SELECT u.*, CASE WHEN u.queue IS NULL THEN 0
                           ELSE (sum(u.count) OVER (alike ORDER BY u.ord) - u.count)::integer END AS skip,
                       min(u.ord) OVER alike AS first,
                       CASE WHEN u.queue IS NULL OR min(u.client) OVER alike = max(u.client) OVER alike
                            THEN u.client END AS asking
                FROM (
                    -- Those of one queue that ask the same and have no other between them have the same difference.
                    SELECT u.*, row_number() OVER (PARTITION BY u.queue, u.verdict ORDER BY u.ord) - row_number() OVER (
                               PARTITION BY u.queue, u.verdict, u.sender, u.context, u.by_age ORDER BY u.ord
                           ) AS stretch
                    FROM unnest(clients, queues, senders, contexts, by_age, counts, verdicts)
                        WITH ORDINALITY AS u (client, queue, sender, context, by_age, count, verdict, ord)
                ) u
                WINDOW alike AS (PARTITION BY u.queue, u.sender, u.context, u.by_age, u.verdict, u.stretch)
            ) f
        ) w;
    END IF;

    WHILE turn <= last_wave LOOP
        wave_places := '{}';
        wave_picked := '{}';
        tangled := false;
        IF by_priority THEN
            SELECT array_agg(a.ord), array_agg(ROW(
                       g.id, g.queue, g.sender, g.receiver, g.priority, g.context, g.sent_at, g.delivery + 1, g.content
                   )::given), bool_or(a.client IS NULL AND g.receiver IS NOT NULL)
            INTO more_places, more_picked, more_tangled
            FROM unnest(asking, queues, senders, contexts, by_age, counts, skips, waves)
                WITH ORDINALITY AS a (client, queue, sender, context, by_age, count, skip, wave, ord)
            CROSS JOIN LATERAL (
                SELECT m.* FROM message m
                WHERE m.leased_until IS NULL AND m.queue = a.queue
                  AND suits(m.sender, m.receiver, m.context, m.leased_until,
                            coalesce(a.client, m.receiver), a.sender, NULL, moment)
                ORDER BY m.priority DESC, m.sent_at, m.id OFFSET a.skip LIMIT a.count FOR UPDATE SKIP LOCKED
            ) g WHERE a.wave = turn AND a.queue IS NOT NULL AND a.context IS NULL AND NOT a.by_age;
            wave_places := wave_places || more_places;
            wave_picked := wave_picked || more_picked;
            tangled := tangled OR coalesce(more_tangled, false);
        END IF;
        IF by_context THEN
            SELECT array_agg(a.ord), array_agg(ROW(
                       g.id, g.queue, g.sender, g.receiver, g.priority, g.context, g.sent_at, g.delivery + 1, g.content
                   )::given), bool_or(a.client IS NULL AND g.receiver IS NOT NULL)
            INTO more_places, more_picked, more_tangled
            FROM unnest(asking, queues, senders, contexts, by_age, counts, skips, waves)
                WITH ORDINALITY AS a (client, queue, sender, context, by_age, count, skip, wave, ord)
            CROSS JOIN LATERAL (
                SELECT m.* FROM message m
                WHERE m.leased_until IS NULL AND m.context = a.context AND (a.queue IS NULL OR m.queue = a.queue)
                  AND suits(m.sender, m.receiver, m.context, m.leased_until,
                            coalesce(a.client, m.receiver), a.sender, NULL, moment)
                  AND EXISTS (SELECT 1 FROM queue q WHERE q.id = m.queue AND (q.client IS NULL OR q.client = a.client))
                ORDER BY CASE WHEN a.by_age THEN 0 ELSE -m.priority END, m.sent_at, m.id
                OFFSET a.skip LIMIT a.count FOR UPDATE SKIP LOCKED
            ) g WHERE a.wave = turn AND a.context IS NOT NULL;
            wave_places := wave_places || more_places;
            wave_picked := wave_picked || more_picked;
            tangled := tangled OR coalesce(more_tangled, false);
        END IF;
        IF by_arrival THEN
            SELECT array_agg(a.ord), array_agg(ROW(
                       g.id, g.queue, g.sender, g.receiver, g.priority, g.context, g.sent_at, g.delivery + 1, g.content
                   )::given), bool_or(a.client IS NULL AND g.receiver IS NOT NULL)
            INTO more_places, more_picked, more_tangled
            FROM unnest(asking, queues, senders, contexts, by_age, counts, skips, waves)
                WITH ORDINALITY AS a (client, queue, sender, context, by_age, count, skip, wave, ord)
            CROSS JOIN LATERAL (
                SELECT m.* FROM message m
                WHERE m.leased_until IS NULL AND m.queue = a.queue
                  AND suits(m.sender, m.receiver, m.context, m.leased_until,
                            coalesce(a.client, m.receiver), a.sender, NULL, moment)
                ORDER BY m.sent_at, m.id OFFSET a.skip LIMIT a.count FOR UPDATE SKIP LOCKED
            ) g WHERE a.wave = turn AND a.queue IS NOT NULL AND a.context IS NULL AND a.by_age;
            wave_places := wave_places || more_places;
            wave_picked := wave_picked || more_picked;
            tangled := tangled OR coalesce(more_tangled, false);
        END IF;
        IF by_sender THEN
            SELECT array_agg(a.ord), array_agg(ROW(
                       g.id, g.queue, g.sender, g.receiver, g.priority, g.context, g.sent_at, g.delivery + 1, g.content
                   )::given), bool_or(a.client IS NULL AND g.receiver IS NOT NULL)
            INTO more_places, more_picked, more_tangled
            FROM unnest(asking, queues, senders, contexts, by_age, counts, skips, waves)
                WITH ORDINALITY AS a (client, queue, sender, context, by_age, count, skip, wave, ord)
            CROSS JOIN LATERAL (
                SELECT m.* FROM message m
                WHERE m.leased_until IS NULL AND m.sender = a.sender
                  AND suits(m.sender, m.receiver, m.context, m.leased_until, a.client, a.sender, NULL, moment)
                  AND EXISTS (SELECT 1 FROM queue q WHERE q.id = m.queue AND (q.client IS NULL OR q.client = a.client))
                ORDER BY CASE WHEN a.by_age THEN 0 ELSE -m.priority END, m.sent_at, m.id
                LIMIT a.count FOR UPDATE SKIP LOCKED
            ) g WHERE a.wave = turn AND a.queue IS NULL AND a.context IS NULL;
            wave_places := wave_places || more_places;
            wave_picked := wave_picked || more_picked;
            tangled := tangled OR coalesce(more_tangled, false);
        END IF;

        IF NOT apart THEN
            SELECT tangled OR count(DISTINCT p.id) < count(*) INTO tangled FROM unnest(wave_picked) p;
        END IF;
        IF tangled THEN  -- none may skip by what the others get: each by itself, before the waves to come
            SELECT array_agg(CASE WHEN u.wave = turn THEN turn + u.ord
                                  WHEN u.wave > turn THEN u.wave + cardinality(clients) ELSE u.wave END ORDER BY u.ord),
                   array_agg(CASE WHEN u.wave = turn THEN 0 ELSE u.skip END ORDER BY u.ord),
                   array_agg(CASE WHEN u.wave = turn THEN u.client ELSE u.asking END ORDER BY u.ord)
            INTO waves, skips, asking
            FROM unnest(waves, skips, asking, clients) WITH ORDINALITY AS u (wave, skip, asking, client, ord);
            last_wave := last_wave + cardinality(clients);
        END IF;
        turn := turn + 1;
        CONTINUE WHEN tangled OR wave_places = '{}';
        places := places || wave_places;
        picked := picked || wave_picked;
        SELECT array_agg(p.id) FILTER (WHERE p.lease_ms = 0), array_agg(p.id) FILTER (WHERE p.lease_ms > 0),
               array_agg(p.client) FILTER (WHERE p.lease_ms > 0), array_agg(p.lease_ms) FILTER (WHERE p.lease_ms > 0)
        INTO taken, leased, holders, spans FROM (
            SELECT g.id, clients[g.ord] AS client, leases_ms[g.ord] AS lease_ms
            FROM ROWS FROM (unnest(wave_places), unnest(wave_picked))
                AS g (ord, id, queue, sender, receiver, priority, context, sent_at, delivery, content)
        ) p;
        IF taken IS NOT NULL THEN
            DELETE FROM message m WHERE m.id = ANY (taken);
        END IF;
        IF leased IS NOT NULL THEN
            UPDATE message m SET
                delivery = m.delivery + 1,
                leased_by = holders[array_position(leased, m.id)],
                leased_until = moment + spans[array_position(leased, m.id)] * interval '1 millisecond'
            WHERE m.id = ANY (leased);
        END IF;
    END LOOP;

    RETURN QUERY
    SELECT p.ord, 0, p.id, p.queue, p.sender, p.receiver, p.priority, p.context, p.sent_at, p.delivery, p.content
    FROM ROWS FROM (unnest(places), unnest(picked))
        AS p (ord, id, queue, sender, receiver, priority, context, sent_at, delivery, content);
    -- An empty answer is not kept: repeating the request asks again.
    INSERT INTO receipt (generation, key, number, client, answered_at, leased, given)
    SELECT (SELECT g.current FROM receipt_rotation g), sessions[k.ord] * 64 + slots[k.ord], numbers[k.ord],
           clients[k.ord], moment, leases_ms[k.ord] > 0, k.given
    FROM (
        SELECT p.ord, array_agg(picked[p.place]) AS given FROM unnest(places) WITH ORDINALITY AS p (ord, place)
        GROUP BY p.ord
    ) k WHERE sessions[k.ord] IS NOT NULL;
END $$;

CREATE OR REPLACE FUNCTION mlmq.peek_many(
    clients bigint[], queues bigint[], senders bigint[], contexts bigint[], by_age boolean[], counts integer[]
) RETURNS TABLE (
    ord bigint, status integer, id bigint, queue bigint, sender bigint, receiver bigint, priority smallint,
    context bigint, sent_at timestamptz, delivery integer, content bytea
)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET search_path = mlmq, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_incremental_sort = off AS $$
#variable_conflict use_column
DECLARE
    moment timestamptz := clock_timestamp();
    verdicts integer[];
BEGIN
    IF EXISTS (SELECT 1 FROM message m WHERE m.leased_until <= moment) THEN
        PERFORM release_expired(moment);
    END IF;
    SELECT array_agg(
        CASE WHEN NOT EXISTS (SELECT 1 FROM client c WHERE c.id = u.client) THEN 4
             WHEN u.queue IS NULL THEN 0
             ELSE coalesce((SELECT CASE WHEN q.client IS NULL OR q.client = u.client THEN 0 ELSE 6 END
                            FROM queue q WHERE q.id = u.queue), 5) END
        ORDER BY u.ord
    ) INTO verdicts FROM unnest(clients, queues) WITH ORDINALITY AS u (client, queue, ord);
    RETURN QUERY
    WITH asked AS MATERIALIZED (
        SELECT u.* FROM unnest(clients, queues, senders, contexts, by_age, counts, verdicts)
            WITH ORDINALITY AS u (client, queue, sender, context, by_age, count, verdict, ord)
    )
    SELECT a.ord, a.verdict, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::smallint, NULL::bigint,
           NULL::timestamptz, NULL::integer, NULL::bytea
    FROM asked a WHERE a.verdict <> 0
    UNION ALL
    SELECT a.ord, 0, g.id, g.queue, g.sender, g.receiver, g.priority, g.context, g.sent_at, 0, g.content
    FROM asked a CROSS JOIN LATERAL (
        SELECT m.* FROM message m
        WHERE m.leased_until IS NULL AND m.queue = a.queue
          AND suits(m.sender, m.receiver, m.context, m.leased_until, a.client, a.sender, a.context, moment)
        ORDER BY m.priority DESC, m.sent_at, m.id LIMIT a.count
    ) g WHERE a.verdict = 0 AND a.queue IS NOT NULL AND a.context IS NULL AND NOT a.by_age
    UNION ALL
    SELECT a.ord, 0, g.id, g.queue, g.sender, g.receiver, g.priority, g.context, g.sent_at, 0, g.content
    FROM asked a CROSS JOIN LATERAL (
        SELECT m.* FROM message m
        WHERE m.leased_until IS NULL AND m.queue = a.queue
          AND suits(m.sender, m.receiver, m.context, m.leased_until, a.client, a.sender, a.context, moment)
        ORDER BY m.sent_at, m.id LIMIT a.count
    ) g WHERE a.verdict = 0 AND a.queue IS NOT NULL AND a.context IS NULL AND a.by_age
    UNION ALL
    SELECT a.ord, 0, g.id, g.queue, g.sender, g.receiver, g.priority, g.context, g.sent_at, 0, g.content
    FROM asked a CROSS JOIN LATERAL (
        SELECT m.* FROM message m
        WHERE m.leased_until IS NULL AND m.context = a.context AND (a.queue IS NULL OR m.queue = a.queue)
          AND suits(m.sender, m.receiver, m.context, m.leased_until, a.client, a.sender, a.context, moment)
          AND EXISTS (SELECT 1 FROM queue q WHERE q.id = m.queue AND (q.client IS NULL OR q.client = a.client))
        ORDER BY CASE WHEN a.by_age THEN 0 ELSE -m.priority END, m.sent_at, m.id LIMIT a.count
    ) g WHERE a.verdict = 0 AND a.context IS NOT NULL
    UNION ALL
    SELECT a.ord, 0, g.id, g.queue, g.sender, g.receiver, g.priority, g.context, g.sent_at, 0, g.content
    FROM asked a CROSS JOIN LATERAL (
        SELECT m.* FROM message m
        WHERE m.leased_until IS NULL AND m.sender = a.sender
          AND suits(m.sender, m.receiver, m.context, m.leased_until, a.client, a.sender, a.context, moment)
          AND EXISTS (SELECT 1 FROM queue q WHERE q.id = m.queue AND (q.client IS NULL OR q.client = a.client))
        ORDER BY CASE WHEN a.by_age THEN 0 ELSE -m.priority END, m.sent_at, m.id LIMIT a.count
    ) g WHERE a.verdict = 0 AND a.queue IS NULL AND a.context IS NULL;
END $$;

CREATE OR REPLACE FUNCTION mlmq.pending_many(clients bigint[], limits integer[])
RETURNS TABLE (ord bigint, status integer, own bigint, queue bigint, name text, owner bigint)
LANGUAGE plpgsql SET search_path = mlmq, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    moment timestamptz := clock_timestamp();
BEGIN
    IF EXISTS (SELECT 1 FROM message m WHERE m.leased_until <= moment) THEN
        PERFORM release_expired(moment);
    END IF;
    RETURN QUERY
    SELECT u.ord, CASE WHEN EXISTS (SELECT 1 FROM client c WHERE c.id = u.client) THEN 0 ELSE 4 END, (
        SELECT count(*) FROM message m
        WHERE m.leased_until IS NULL AND m.queue = (SELECT q.id FROM queue q WHERE q.client = u.client)
          AND suits(m.sender, m.receiver, m.context, m.leased_until, u.client, NULL, NULL, moment)
    ), NULL::bigint, NULL::text, NULL::bigint
    FROM unnest(clients) WITH ORDINALITY AS u (client, ord)
    UNION ALL
    SELECT u.ord, 0, NULL::bigint, g.id, g.name, g.owner
    FROM unnest(clients, limits) WITH ORDINALITY AS u (client, max_queues, ord) CROSS JOIN LATERAL (
        SELECT q.id, q.name, q.owner FROM queue q
        WHERE q.client IS NULL AND EXISTS (
            SELECT 1 FROM message m WHERE m.leased_until IS NULL AND m.queue = q.id
              AND suits(m.sender, m.receiver, m.context, m.leased_until, u.client, NULL, NULL, moment)
        ) ORDER BY q.id LIMIT u.max_queues
    ) g;
END $$;

-- Whatever the requests ask for. The sends come first, so that the dequeues see what they stored.
CREATE OR REPLACE FUNCTION mlmq.exchange_many(
    ords integer[], send_queues bigint[], send_clients bigint[], contents bytea[], priorities smallint[],
    receivers bigint[], send_contexts bigint[], fresh boolean[], send_sessions bigint[], send_slots smallint[],
    send_numbers bigint[],
    clients bigint[], queues bigint[], senders bigint[], contexts bigint[], by_age boolean[], counts integer[],
    leases_ms integer[], sessions bigint[], slots smallint[], numbers bigint[]
) RETURNS TABLE (
    of_send boolean, ord bigint, status integer, sent bigint[], id bigint, queue bigint, sender bigint,
    receiver bigint, priority smallint, context bigint, sent_at timestamptz, delivery integer, content bytea
)
LANGUAGE plpgsql SET search_path = mlmq, pg_temp SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    IF pg_advisory_xact_lock_shared(19788, 1) IS NULL THEN END IF;
    -- All of them at once and in one order: two statements that each held some of the other's would never end.
    PERFORM pg_advisory_xact_lock(o.key) FROM (
        SELECT DISTINCT u.session * 64 + u.slot AS key
        FROM unnest(send_sessions || sessions, send_slots || slots) AS u (session, slot)
        WHERE u.session IS NOT NULL ORDER BY key
    ) o;
    RETURN QUERY
    SELECT true, s.ord::bigint, s.status, s.sent, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint,
           NULL::smallint, s.context, NULL::timestamptz, NULL::integer, NULL::bytea
    FROM send_many(ords, send_queues, send_clients, contents, priorities, receivers, send_contexts, fresh,
                   send_sessions, send_slots, send_numbers) s;
    RETURN QUERY
    SELECT false, d.ord, d.status, NULL::bigint[], d.id, d.queue, d.sender, d.receiver, d.priority, d.context,
           d.sent_at, d.delivery, d.content
    FROM dequeue_many(clients, queues, senders, contexts, by_age, counts, leases_ms, sessions, slots, numbers) d;
END $$;

-- What nearly all requests ask for: one message for one queue or client, or the first message of one queue. Two
-- queries serve them all, because starting a query costs far more than a row of it. It serves either all of the batch
-- or nothing: where it finds anything out of the ordinary (a repetition, a client or queue that does not exist, two
-- dequeues that picked the same message) it raises MQ001, and the batch is for exchange_many.
--
-- A slot is named by its key; `keys` are all of them in order. `takers` names the dequeue that wants what is sent,
-- counted from 1: it is handed over if nothing else is there that the dequeue might want. `in_context` says that all
-- dequeues of that queue name a context, so that only messages of the same context matter. `skips` says how many
-- dequeues of the same queue come before one.
DROP FUNCTION mlmq.exchange_plain;
CREATE FUNCTION mlmq.exchange_plain(
    keys bigint[],
    send_clients bigint[], send_keys bigint[], send_numbers bigint[], send_queues bigint[], receivers bigint[],
    send_contexts bigint[], fresh boolean[], priorities smallint[], contents bytea[], takers integer[],
    in_context boolean[],
    clients bigint[], dequeue_keys bigint[], numbers bigint[], queues bigint[], contexts bigint[], skips integer[],
    shared boolean[],
    OUT moment timestamptz, OUT sent_places bigint[], OUT sent bigint[], OUT sent_contexts bigint[],
    OUT handed_over integer[], OUT places bigint[], OUT taken mlmq.given[]
)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
    SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off AS $$
#variable_conflict use_column
DECLARE
    slot_key bigint;
    whole boolean;
BEGIN
    IF pg_advisory_xact_lock_shared(19788, 1) IS NULL THEN END IF;
    FOREACH slot_key IN ARRAY keys LOOP
        IF pg_advisory_xact_lock(slot_key) IS NULL THEN END IF;
    END LOOP;
    moment := clock_timestamp();
    IF EXISTS (SELECT 1 FROM mlmq.message m WHERE m.leased_until <= moment) THEN
        PERFORM mlmq.release_expired(moment);
    END IF;
    handed_over := '{}';
    IF cardinality(send_clients) > 0 THEN
        WITH wanted AS MATERIALIZED (
            SELECT u.*, coalesce(q.id, o.id) AS target, nextval('mlmq.message_number') AS id,
                   CASE WHEN u.fresh THEN nextval('mlmq.context_number') ELSE u.context END AS final,
                   EXISTS (SELECT 1 FROM mlmq.client c WHERE c.id = u.client) AND NOT EXISTS (
                       SELECT 1 FROM mlmq.receipt r
                       WHERE r.key = u.key AND r.number >= u.number AND r.client = u.client
                   ) AS first_time,
                   u.taker IS NOT NULL AND queues[u.taker] = coalesce(q.id, o.id)
                   AND coalesce(coalesce(q.client, o.client) = clients[u.taker], true)
                   AND CASE WHEN u.in_context
                       THEN NOT EXISTS (SELECT 1 FROM mlmq.message m
                                        WHERE m.leased_until IS NULL AND m.context = contexts[u.taker])
                       ELSE NOT EXISTS (SELECT 1 FROM mlmq.message m
                                        WHERE m.leased_until IS NULL AND m.queue = coalesce(q.id, o.id))
                   END
                   AND EXISTS (SELECT 1 FROM mlmq.client c WHERE c.id = clients[u.taker]) AND NOT EXISTS (
                       SELECT 1 FROM mlmq.receipt r
                       WHERE r.key = dequeue_keys[u.taker] AND r.number >= numbers[u.taker]
                         AND r.client = clients[u.taker]
                   ) AS handed
            FROM unnest(send_clients, send_keys, send_numbers, send_queues, receivers, send_contexts, fresh, priorities,
                        contents, takers, in_context)
                WITH ORDINALITY AS u (client, key, number, queue, receiver, context, fresh, priority, content, taker,
                                      in_context, place)
            LEFT JOIN mlmq.queue q ON q.id = u.queue
            LEFT JOIN mlmq.queue o ON o.client = u.receiver
        ), stored AS (
            INSERT INTO mlmq.message (id, queue, sender, receiver, context, sent_at, priority, content)
            SELECT w.id, w.target, w.client, w.receiver, w.final, moment, w.priority, w.content
            FROM wanted w WHERE NOT w.handed AND w.target IS NOT NULL
        ), kept AS (
            INSERT INTO mlmq.receipt (generation, key, number, client, answered_at, sent, context, given)
            SELECT (SELECT g.current FROM mlmq.receipt_rotation g), n.* FROM (
                SELECT w.key, w.number, w.client, moment, ARRAY[w.id], w.final, NULL::mlmq.given[] FROM wanted w
                UNION ALL
                SELECT dequeue_keys[w.taker], numbers[w.taker], clients[w.taker], moment, NULL, NULL,
                       ARRAY[ROW(w.id, w.target, w.client, w.receiver, w.priority, w.final, moment, 1, w.content
                             )::mlmq.given]
                FROM wanted w WHERE w.handed
            ) n
        )
        SELECT array_agg(w.place), array_agg(w.id), array_agg(w.final),
               coalesce(array_agg(w.taker) FILTER (WHERE w.handed), '{}'),
               bool_and(w.target IS NOT NULL AND w.first_time)
        INTO sent_places, sent, sent_contexts, handed_over, whole FROM wanted w;
        IF NOT whole THEN
            RAISE EXCEPTION 'not a plain exchange' USING ERRCODE = 'MQ001';
        END IF;
    END IF;
    IF cardinality(clients) > cardinality(handed_over) THEN
        WITH picked AS MATERIALIZED (
            SELECT d.place, d.client, d.key, d.number, coalesce(f.at, c.at) AS at,
                   CASE WHEN f.at IS NOT NULL THEN f.one ELSE c.one END AS one,
                   EXISTS (SELECT 1 FROM mlmq.client c WHERE c.id = d.client) AND NOT EXISTS (
                       SELECT 1 FROM mlmq.receipt r
                       WHERE r.key = d.key AND r.number >= d.number AND r.client = d.client
                   ) AS first_time
            FROM unnest(clients, dequeue_keys, numbers, queues, contexts, skips, shared)
                WITH ORDINALITY AS d (client, key, number, queue, context, skip, shared, place)
            JOIN mlmq.queue q ON q.id = d.queue AND (q.client IS NULL OR q.client = d.client)
            LEFT JOIN LATERAL (
                SELECT m.ctid AS at, ROW(m.id, m.queue, m.sender, m.receiver, m.priority, m.context, m.sent_at,
                                         m.delivery + 1, m.content)::mlmq.given AS one
                FROM mlmq.message m
                WHERE d.context IS NULL AND m.leased_until IS NULL AND m.queue = d.queue
                  AND (m.receiver IS NULL OR m.receiver = d.client OR d.shared)
                ORDER BY m.priority DESC, m.sent_at, m.id OFFSET d.skip LIMIT 1 FOR UPDATE SKIP LOCKED
            ) f ON true
            LEFT JOIN LATERAL (
                SELECT m.ctid AS at, ROW(m.id, m.queue, m.sender, m.receiver, m.priority, m.context, m.sent_at,
                                         m.delivery + 1, m.content)::mlmq.given AS one
                FROM mlmq.message m
                WHERE m.leased_until IS NULL AND m.context = d.context AND m.queue = d.queue
                  AND (m.receiver IS NULL OR m.receiver = d.client)
                ORDER BY m.priority DESC, m.sent_at, m.id LIMIT 1 FOR UPDATE SKIP LOCKED
            ) c ON true
            WHERE d.place <> ALL (handed_over)
        ), gone AS (
            DELETE FROM mlmq.message m WHERE m.ctid = ANY (ARRAY(SELECT p.at FROM picked p WHERE p.at IS NOT NULL))
            RETURNING 1
        ), kept AS (
            INSERT INTO mlmq.receipt (generation, key, number, client, answered_at, given)
            SELECT (SELECT g.current FROM mlmq.receipt_rotation g), p.key, p.number, p.client, moment, ARRAY[p.one]
            FROM picked p WHERE p.at IS NOT NULL
        )
        SELECT array_agg(p.place) FILTER (WHERE p.at IS NOT NULL), array_agg(p.one) FILTER (WHERE p.at IS NOT NULL),
               count(*) = cardinality(clients) - cardinality(handed_over) AND bool_and(p.first_time)
               AND count(p.at) = (SELECT count(*) FROM gone)
               AND NOT coalesce(bool_or((p.one).receiver <> p.client), false)
        INTO places, taken, whole FROM picked p;
        IF NOT whole THEN
            RAISE EXCEPTION 'not a plain exchange' USING ERRCODE = 'MQ001';
        END IF;
    END IF;
END $$;
