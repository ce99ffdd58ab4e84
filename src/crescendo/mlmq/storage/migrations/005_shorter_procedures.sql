-- The same meaning with less to do. What a statement costs is mostly setting it up, so a batch takes few of them, small
-- ones, and only those that it needs; and dequeues of one queue that ask for the same share one wave.

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
    PERFORM pg_advisory_xact_lock(o.key) FROM (
        SELECT DISTINCT hashint8extended(u.session, u.slot) AS key FROM unnest(sessions, slots) AS u (session, slot)
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
            WHEN k.number = u.number THEN -1
            WHEN k.number > u.number THEN 8
            WHEN NOT EXISTS (SELECT 1 FROM client c WHERE c.id = u.client) THEN 4
            WHEN u.receiver IS NOT NULL AND NOT EXISTS (SELECT 1 FROM client c WHERE c.id = u.receiver) THEN 4
            WHEN NOT EXISTS (SELECT 1 FROM queue q WHERE q.id = u.queue) THEN 5
            ELSE 0 END AS verdict
        FROM unnest(targets, clients, receivers, contexts, fresh, sessions, slots, numbers)
            WITH ORDINALITY AS u (queue, client, receiver, context, fresh, session, slot, number, place)
        LEFT JOIN LATERAL (
            SELECT r.number FROM receipt r
            WHERE r.client = u.client AND r.session = u.session AND r.slot = u.slot LIMIT 1
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
        INSERT INTO receipt AS r (client, session, slot, number, answered_at, sent, context)
        SELECT a.client, a.session, a.slot, a.number, moment, a.sent, a.context
        FROM answered a WHERE a.session IS NOT NULL
        ON CONFLICT (client, session, slot) DO UPDATE SET
            number = excluded.number, answered_at = excluded.answered_at, sent = excluded.sent,
            context = excluded.context, given = NULL
    )
    SELECT a.ord, 0, a.sent, a.context FROM answered a;
    IF refused THEN
        RETURN QUERY
        SELECT DISTINCT ON (u.ord) u.ord, greatest(u.verdict, 0), r.sent, r.context
        FROM unnest(ords, clients, sessions, slots, verdicts) AS u (ord, client, session, slot, verdict)
        LEFT JOIN receipt r
            ON u.verdict = -1 AND r.client = u.client AND r.session = u.session AND r.slot = u.slot
        WHERE u.verdict <> 0 ORDER BY u.ord;
    END IF;
END $$;

-- Requests that follow one another and ask the same of one queue are served together: each skips what those before it
-- get. Requests for different queues cannot want the same message and are served together as well, in one wave; of
-- different ones for one queue each has its own wave, in their order. Requests for no queue in particular come last, one by one. Rows that others
-- hold are skipped, so nobody waits and nobody gets what is taken.
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
    PERFORM pg_advisory_xact_lock(o.key) FROM (
        SELECT DISTINCT hashint8extended(u.session, u.slot) AS key FROM unnest(sessions, slots) AS u (session, slot)
        WHERE u.session IS NOT NULL ORDER BY key
    ) o;
    moment := clock_timestamp();
    -- -1: answered before. A receipt without messages was an empty answer, and such a request is served anew.
    SELECT array_agg(v.verdict ORDER BY v.ord), max(v.verdict), min(v.verdict), count(DISTINCT v.queue) = count(*),
           bool_or(v.queue IS NOT NULL AND v.context IS NULL AND NOT v.by_age), bool_or(v.context IS NOT NULL),
           bool_or(v.queue IS NOT NULL AND v.context IS NULL AND v.by_age),
           bool_or(v.queue IS NULL AND v.context IS NULL)
    INTO verdicts, worst, least, apart, by_priority, by_context, by_arrival, by_sender
    FROM (
        SELECT u.ord, u.queue, u.context, u.by_age, CASE
            WHEN k.verdict IS NOT NULL THEN k.verdict
            WHEN NOT EXISTS (SELECT 1 FROM client c WHERE c.id = u.client) THEN 4
            WHEN u.queue IS NULL THEN 0
            ELSE coalesce((SELECT CASE WHEN q.client IS NULL OR q.client = u.client THEN 0 ELSE 6 END
                           FROM queue q WHERE q.id = u.queue), 5) END AS verdict
        FROM unnest(clients, queues, contexts, by_age, sessions, slots, numbers)
            WITH ORDINALITY AS u (client, queue, context, by_age, session, slot, number, ord)
        LEFT JOIN LATERAL (
            SELECT CASE WHEN r.number > u.number THEN 8 WHEN r.given IS NOT NULL THEN -1 END AS verdict
            FROM receipt r
            WHERE r.client = u.client AND r.session = u.session AND r.slot = u.slot AND r.number >= u.number LIMIT 1
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
        SELECT u.ord, 0, k.* FROM unnest(clients, sessions, slots, verdicts)
            WITH ORDINALITY AS u (client, session, slot, verdict, ord)
        CROSS JOIN LATERAL (
            SELECT g.* FROM receipt r, unnest(r.given) g
            WHERE r.client = u.client AND r.session = u.session AND r.slot = u.slot
        ) k WHERE u.verdict = -1;
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
                WHERE m.queue = a.queue AND suits(m.sender, m.receiver, m.context, m.leased_until,
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
                WHERE m.context = a.context AND (a.queue IS NULL OR m.queue = a.queue)
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
                WHERE m.queue = a.queue AND suits(m.sender, m.receiver, m.context, m.leased_until,
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
                WHERE m.sender = a.sender
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
    -- An empty answer to a request that takes for good is remembered too. Else a lost copy of it that a slow broker
    -- still holds could later take a message for a client that has long gone on.
    INSERT INTO receipt AS r (client, session, slot, number, answered_at, given)
    SELECT u.client, u.session, u.slot, u.number, moment, k.given
    FROM unnest(clients, sessions, slots, numbers, leases_ms, verdicts)
        WITH ORDINALITY AS u (client, session, slot, number, lease_ms, verdict, ord)
    LEFT JOIN (
        SELECT p.ord, array_agg(picked[p.place]) AS given FROM unnest(places) WITH ORDINALITY AS p (ord, place)
        GROUP BY p.ord
    ) k ON k.ord = u.ord
    WHERE u.session IS NOT NULL AND u.verdict = 0 AND (u.lease_ms = 0 OR k.given IS NOT NULL)
    ON CONFLICT (client, session, slot) DO UPDATE SET
        number = excluded.number, answered_at = excluded.answered_at, given = excluded.given,
        sent = NULL, context = NULL
    WHERE r.number < excluded.number OR excluded.given IS NOT NULL;
END $$;

DROP FUNCTION mlmq.hold_slots;
