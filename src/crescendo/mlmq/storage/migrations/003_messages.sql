-- Messages come, are shown, are handed out and end. Every procedure serves a whole batch in one transaction.
-- Tables are reached through LATERAL ... LIMIT or = ANY, and where order matters sorting is forbidden: whatever the
-- planner believes about sizes, it walks the index that has the order. Queues grow faster than statistics.

-- Two requests of one slot, the lost one and its repetition, run one after the other, on whatever broker they are.
CREATE FUNCTION mlmq.hold_slots(sessions bigint[], slots smallint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(o.key) FROM (
        SELECT DISTINCT hashint8extended(u.session, u.slot) AS key FROM unnest(sessions, slots) AS u (session, slot)
        WHERE u.session IS NOT NULL ORDER BY key
    ) o;
END $$;

-- Whether a message that waits is one that this request may see and wants. Inlined into the queries below.
CREATE FUNCTION mlmq.suits(
    sender bigint, receiver bigint, context bigint, leased_until timestamptz,
    asking bigint, wanted_sender bigint, wanted_context bigint, moment timestamptz
) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT (wanted_sender IS NULL OR sender = wanted_sender)
       AND (wanted_context IS NULL OR context = wanted_context)
       AND (receiver IS NULL OR receiver = asking)
       AND (leased_until IS NULL OR leased_until <= moment)
$$;

-- One row a message: a request for three queues has three rows with the same `ord`. Stored for all of them or for none.
CREATE FUNCTION mlmq.send_many(
    ords integer[], queues bigint[], clients bigint[], contents bytea[], priorities smallint[], receivers bigint[],
    contexts bigint[], fresh boolean[], sessions bigint[], slots smallint[], numbers bigint[]
) RETURNS TABLE (ord integer, status integer, sent bigint[], context bigint)
LANGUAGE plpgsql SET search_path = mlmq, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    targets bigint[];
    moment timestamptz;
BEGIN
    PERFORM hold_slots(sessions, slots);
    -- Without a queue: the receiver's own. A receiver that is not there leaves a null, and is judged below.
    SELECT array_agg(coalesce(u.queue, (SELECT q.id FROM queue q WHERE q.client = u.receiver)) ORDER BY u.place)
    INTO targets FROM unnest(queues, receivers) WITH ORDINALITY AS u (queue, receiver, place);
    -- From here to our commit nobody deletes these queues.
    PERFORM 1 FROM queue q WHERE q.id = ANY (targets) ORDER BY q.id FOR KEY SHARE;
    moment := clock_timestamp();
    RETURN QUERY
    WITH asked AS MATERIALIZED (
        SELECT u.*, k.number AS known, k.sent AS was_sent, k.context AS was_context,
               CASE WHEN u.fresh AND row_number() OVER (PARTITION BY u.ord ORDER BY u.place) = 1
                    THEN nextval('context_number') ELSE u.context END AS own_context,
               CASE WHEN k.number = u.number THEN -1
                    WHEN k.number > u.number THEN 8
                    WHEN NOT EXISTS (SELECT 1 FROM client c WHERE c.id = u.client) THEN 4
                    WHEN u.receiver IS NOT NULL AND NOT EXISTS (SELECT 1 FROM client c WHERE c.id = u.receiver) THEN 4
                    WHEN NOT EXISTS (SELECT 1 FROM queue q WHERE q.id = u.queue) THEN 5
                    ELSE 0 END AS verdict
        FROM unnest(
            ords, targets, clients, contents, priorities, receivers, contexts, fresh, sessions, slots, numbers
        ) WITH ORDINALITY AS u (
            ord, queue, client, content, priority, receiver, context, fresh, session, slot, number, place
        ) LEFT JOIN LATERAL (
            SELECT r.number, r.sent, r.context FROM receipt r
            WHERE r.client = u.client AND r.session = u.session AND r.slot = u.slot LIMIT 1
        ) k ON true
    ), judged AS MATERIALIZED (
        SELECT a.*, max(a.verdict) OVER (PARTITION BY a.ord) AS overall,
               max(a.own_context) OVER (PARTITION BY a.ord) AS final_context
        FROM asked a
    ), numbered AS MATERIALIZED (
        SELECT nextval('message_number') AS id, j.*
        FROM (SELECT * FROM judged WHERE overall = 0 ORDER BY place) j
    ), stored AS (
        INSERT INTO message (id, queue, sender, receiver, context, sent_at, priority, content)
        SELECT n.id, n.queue, n.client, n.receiver, n.final_context, moment, n.priority, n.content
        FROM numbered n ORDER BY n.id
    ), answered AS MATERIALIZED (
        SELECT n.ord, array_agg(n.id ORDER BY n.place) AS sent, max(n.final_context) AS context,
               max(n.client) AS client, max(n.session) AS session, max(n.slot) AS slot, max(n.number) AS number
        FROM numbered n GROUP BY n.ord
    ), kept AS (
        INSERT INTO receipt AS r (client, session, slot, number, answered_at, sent, context)
        SELECT a.client, a.session, a.slot, a.number, moment, a.sent, a.context
        FROM answered a WHERE a.session IS NOT NULL
        ON CONFLICT (client, session, slot) DO UPDATE SET
            number = excluded.number, answered_at = excluded.answered_at, sent = excluded.sent,
            context = excluded.context, given = NULL
    )
    SELECT a.ord, 0, a.sent, a.context FROM answered a
    UNION ALL
    SELECT DISTINCT ON (j.ord) j.ord, greatest(j.overall, 0),
           CASE WHEN j.overall = -1 THEN j.was_sent END, CASE WHEN j.overall = -1 THEN j.was_context END
    FROM judged j WHERE j.overall <> 0;
END $$;

CREATE FUNCTION mlmq.peek_many(
    clients bigint[], queues bigint[], senders bigint[], contexts bigint[], by_age boolean[], counts integer[]
) RETURNS TABLE (
    ord bigint, status integer, id bigint, queue bigint, sender bigint, receiver bigint, priority smallint,
    context bigint, sent_at timestamptz, delivery integer, content bytea
)
LANGUAGE plpgsql STABLE SET search_path = mlmq, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_incremental_sort = off AS $$
#variable_conflict use_column
DECLARE
    moment timestamptz := clock_timestamp();
    verdicts integer[];
BEGIN
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
        WHERE m.queue = a.queue AND suits(m.sender, m.receiver, m.context, m.leased_until,
                                          a.client, a.sender, a.context, moment)
        ORDER BY m.priority DESC, m.sent_at, m.id LIMIT a.count
    ) g WHERE a.verdict = 0 AND a.queue IS NOT NULL AND a.context IS NULL AND NOT a.by_age
    UNION ALL
    SELECT a.ord, 0, g.id, g.queue, g.sender, g.receiver, g.priority, g.context, g.sent_at, 0, g.content
    FROM asked a CROSS JOIN LATERAL (
        SELECT m.* FROM message m
        WHERE m.queue = a.queue AND suits(m.sender, m.receiver, m.context, m.leased_until,
                                          a.client, a.sender, a.context, moment)
        ORDER BY m.sent_at, m.id LIMIT a.count
    ) g WHERE a.verdict = 0 AND a.queue IS NOT NULL AND a.context IS NULL AND a.by_age
    UNION ALL
    SELECT a.ord, 0, g.id, g.queue, g.sender, g.receiver, g.priority, g.context, g.sent_at, 0, g.content
    FROM asked a CROSS JOIN LATERAL (
        SELECT m.* FROM message m
        WHERE m.context = a.context AND (a.queue IS NULL OR m.queue = a.queue)
          AND suits(m.sender, m.receiver, m.context, m.leased_until, a.client, a.sender, a.context, moment)
          AND EXISTS (SELECT 1 FROM queue q WHERE q.id = m.queue AND (q.client IS NULL OR q.client = a.client))
        ORDER BY CASE WHEN a.by_age THEN 0 ELSE -m.priority END, m.sent_at, m.id LIMIT a.count
    ) g WHERE a.verdict = 0 AND a.context IS NOT NULL
    UNION ALL
    SELECT a.ord, 0, g.id, g.queue, g.sender, g.receiver, g.priority, g.context, g.sent_at, 0, g.content
    FROM asked a CROSS JOIN LATERAL (
        SELECT m.* FROM message m
        WHERE m.sender = a.sender
          AND suits(m.sender, m.receiver, m.context, m.leased_until, a.client, a.sender, a.context, moment)
          AND EXISTS (SELECT 1 FROM queue q WHERE q.id = m.queue AND (q.client IS NULL OR q.client = a.client))
        ORDER BY CASE WHEN a.by_age THEN 0 ELSE -m.priority END, m.sent_at, m.id LIMIT a.count
    ) g WHERE a.verdict = 0 AND a.queue IS NULL AND a.context IS NULL;
END $$;

-- Requests for different queues cannot want the same message and are served together, in one wave. Of several for one
-- queue each has its own wave, in their order: it sees what the ones before it have left. Requests for no queue in
-- particular come last, one by one. Rows that others hold are skipped, so nobody waits and nobody gets what is taken.
CREATE FUNCTION mlmq.dequeue_many(
    clients bigint[], queues bigint[], senders bigint[], contexts bigint[], by_age boolean[], counts integer[],
    leases_ms integer[], sessions bigint[], slots smallint[], numbers bigint[]
) RETURNS TABLE (
    ord bigint, status integer, id bigint, queue bigint, sender bigint, receiver bigint, priority smallint,
    context bigint, sent_at timestamptz, delivery integer, content bytea
)
LANGUAGE plpgsql SET search_path = mlmq, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_incremental_sort = off AS $$
#variable_conflict use_column
DECLARE
    moment timestamptz;
    verdicts integer[];
    waves bigint[];
    last_wave bigint;
    places bigint[];
    picked given[];
    taken bigint[];
    leased bigint[];
    holders bigint[];
    spans integer[];
BEGIN
    PERFORM hold_slots(sessions, slots);
    moment := clock_timestamp();
    -- -1: answered before. A receipt without messages was an empty answer, and such a request is served anew.
    SELECT array_agg(
        CASE WHEN k.verdict IS NOT NULL THEN k.verdict
             WHEN NOT EXISTS (SELECT 1 FROM client c WHERE c.id = u.client) THEN 4
             WHEN u.queue IS NULL THEN 0
             ELSE coalesce((SELECT CASE WHEN q.client IS NULL OR q.client = u.client THEN 0 ELSE 6 END
                            FROM queue q WHERE q.id = u.queue), 5) END
        ORDER BY u.ord
    ) INTO verdicts
    FROM unnest(clients, queues, sessions, slots, numbers)
        WITH ORDINALITY AS u (client, queue, session, slot, number, ord)
    LEFT JOIN LATERAL (
        SELECT CASE WHEN r.number > u.number THEN 8 WHEN r.given IS NOT NULL THEN -1 END AS verdict
        FROM receipt r
        WHERE r.client = u.client AND r.session = u.session AND r.slot = u.slot AND r.number >= u.number LIMIT 1
    ) k ON true;

    RETURN QUERY
    SELECT v.ord, v.verdict, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::smallint, NULL::bigint,
           NULL::timestamptz, NULL::integer, NULL::bytea
    FROM unnest(verdicts) WITH ORDINALITY AS v (verdict, ord) WHERE v.verdict > 0;
    IF -1 = ANY (verdicts) THEN
        RETURN QUERY
        SELECT u.ord, 0, k.* FROM unnest(clients, sessions, slots, verdicts)
            WITH ORDINALITY AS u (client, session, slot, verdict, ord)
        CROSS JOIN LATERAL (
            SELECT g.* FROM receipt r, unnest(r.given) g
            WHERE r.client = u.client AND r.session = u.session AND r.slot = u.slot
        ) k WHERE u.verdict = -1;
    END IF;

    SELECT array_agg(w.wave ORDER BY w.ord), max(w.wave) INTO waves, last_wave FROM (
        SELECT u.ord, CASE
            WHEN u.verdict <> 0 THEN NULL
            WHEN u.queue IS NOT NULL THEN row_number() OVER (PARTITION BY u.queue, u.verdict ORDER BY u.ord)
            ELSE count(*) FILTER (WHERE u.queue IS NOT NULL) OVER ()
                 + row_number() OVER (PARTITION BY u.queue, u.verdict ORDER BY u.ord)
            END AS wave
        FROM unnest(queues, verdicts) WITH ORDINALITY AS u (queue, verdict, ord)
    ) w;

    FOR turn IN 1 .. coalesce(last_wave, 0) LOOP
        CONTINUE WHEN NOT turn = ANY (waves);
        WITH asked AS MATERIALIZED (
            SELECT u.* FROM unnest(clients, queues, senders, contexts, by_age, counts, leases_ms, waves)
                WITH ORDINALITY AS u (client, queue, sender, context, by_age, count, lease_ms, wave, ord)
            WHERE u.wave = turn
        ), picks AS MATERIALIZED (
            SELECT a.ord, a.client, a.lease_ms, g.* FROM asked a CROSS JOIN LATERAL (
                SELECT m.* FROM message m
                WHERE m.queue = a.queue AND suits(m.sender, m.receiver, m.context, m.leased_until,
                                                  a.client, a.sender, a.context, moment)
                ORDER BY m.priority DESC, m.sent_at, m.id LIMIT a.count FOR UPDATE SKIP LOCKED
            ) g WHERE a.queue IS NOT NULL AND a.context IS NULL AND NOT a.by_age
            UNION ALL
            SELECT a.ord, a.client, a.lease_ms, g.* FROM asked a CROSS JOIN LATERAL (
                SELECT m.* FROM message m
                WHERE m.queue = a.queue AND suits(m.sender, m.receiver, m.context, m.leased_until,
                                                  a.client, a.sender, a.context, moment)
                ORDER BY m.sent_at, m.id LIMIT a.count FOR UPDATE SKIP LOCKED
            ) g WHERE a.queue IS NOT NULL AND a.context IS NULL AND a.by_age
            UNION ALL
            SELECT a.ord, a.client, a.lease_ms, g.* FROM asked a CROSS JOIN LATERAL (
                SELECT m.* FROM message m
                WHERE m.context = a.context AND (a.queue IS NULL OR m.queue = a.queue)
                  AND suits(m.sender, m.receiver, m.context, m.leased_until, a.client, a.sender, a.context, moment)
                  AND EXISTS (SELECT 1 FROM queue q WHERE q.id = m.queue AND (q.client IS NULL OR q.client = a.client))
                ORDER BY CASE WHEN a.by_age THEN 0 ELSE -m.priority END, m.sent_at, m.id
                LIMIT a.count FOR UPDATE SKIP LOCKED
            ) g WHERE a.context IS NOT NULL
            UNION ALL
            SELECT a.ord, a.client, a.lease_ms, g.* FROM asked a CROSS JOIN LATERAL (
                SELECT m.* FROM message m
                WHERE m.sender = a.sender
                  AND suits(m.sender, m.receiver, m.context, m.leased_until, a.client, a.sender, a.context, moment)
                  AND EXISTS (SELECT 1 FROM queue q WHERE q.id = m.queue AND (q.client IS NULL OR q.client = a.client))
                ORDER BY CASE WHEN a.by_age THEN 0 ELSE -m.priority END, m.sent_at, m.id
                LIMIT a.count FOR UPDATE SKIP LOCKED
            ) g WHERE a.queue IS NULL AND a.context IS NULL
        )
        SELECT array_agg(p.ord), array_agg(ROW(
                   p.id, p.queue, p.sender, p.receiver, p.priority, p.context, p.sent_at, p.delivery + 1, p.content
               )::given),
               array_agg(p.id) FILTER (WHERE p.lease_ms = 0), array_agg(p.id) FILTER (WHERE p.lease_ms > 0),
               array_agg(p.client) FILTER (WHERE p.lease_ms > 0), array_agg(p.lease_ms) FILTER (WHERE p.lease_ms > 0)
        INTO places, picked, taken, leased, holders, spans FROM picks p;

        CONTINUE WHEN picked IS NULL;
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
        RETURN QUERY
        SELECT p.ord, 0, p.id, p.queue, p.sender, p.receiver, p.priority, p.context, p.sent_at, p.delivery, p.content
        FROM ROWS FROM (unnest(places), unnest(picked))
            AS p (ord, id, queue, sender, receiver, priority, context, sent_at, delivery, content);
        INSERT INTO receipt AS r (client, session, slot, number, answered_at, given)
        SELECT clients[p.ord], sessions[p.ord], slots[p.ord], numbers[p.ord], moment, array_agg(picked[p.place]
               ORDER BY p.place)
        FROM unnest(places) WITH ORDINALITY AS p (ord, place) WHERE sessions[p.ord] IS NOT NULL GROUP BY p.ord
        ON CONFLICT (client, session, slot) DO UPDATE SET
            number = excluded.number, answered_at = excluded.answered_at, given = excluded.given,
            sent = NULL, context = NULL;
    END LOOP;

    -- An empty answer to a request that takes for good is remembered too. Else a lost copy of it that a slow broker
    -- still holds could later take a message for a client that has long gone on.
    INSERT INTO receipt AS r (client, session, slot, number, answered_at)
    SELECT u.client, u.session, u.slot, u.number, moment
    FROM unnest(clients, sessions, slots, numbers, leases_ms, verdicts)
        AS u (client, session, slot, number, lease_ms, verdict)
    WHERE u.session IS NOT NULL AND u.lease_ms = 0 AND u.verdict = 0
    ORDER BY u.client, u.session, u.slot
    ON CONFLICT (client, session, slot) DO UPDATE SET
        number = excluded.number, answered_at = excluded.answered_at, given = NULL, sent = NULL, context = NULL
    WHERE r.number < excluded.number;
END $$;

-- Only the client that holds this very delivery may end it. Returns what it did hold.
CREATE FUNCTION mlmq.acknowledge_many(clients bigint[], messages bigint[], deliveries integer[])
RETURNS TABLE (client bigint, message bigint, delivery integer)
LANGUAGE plpgsql SET search_path = mlmq, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH held AS MATERIALIZED (
        SELECT m.id FROM message m
        WHERE m.id = ANY (messages) AND (m.leased_by, m.id, m.delivery) IN (
            SELECT u.client, u.message, u.delivery FROM unnest(clients, messages, deliveries)
                AS u (client, message, delivery)
        ) ORDER BY m.id FOR UPDATE
    )
    DELETE FROM message m WHERE m.id = ANY (ARRAY(SELECT h.id FROM held h))
    RETURNING m.leased_by, m.id, m.delivery;
END $$;

-- A message given back keeps its count of deliveries: the next to get it is told that somebody had it.
CREATE FUNCTION mlmq.extend_many(clients bigint[], messages bigint[], deliveries integer[], leases_ms integer[])
RETURNS TABLE (client bigint, message bigint, delivery integer)
LANGUAGE plpgsql SET search_path = mlmq, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    moment timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    WITH held AS MATERIALIZED (
        SELECT m.id, m.leased_by FROM message m
        WHERE m.id = ANY (messages) AND (m.leased_by, m.id, m.delivery) IN (
            SELECT u.client, u.message, u.delivery FROM unnest(clients, messages, deliveries)
                AS u (client, message, delivery)
        ) ORDER BY m.id FOR UPDATE
    ), changed AS (
        UPDATE message m SET
            leased_by = CASE WHEN leases_ms[array_position(messages, m.id)] > 0 THEN m.leased_by END,
            leased_until = CASE WHEN leases_ms[array_position(messages, m.id)] > 0
                THEN moment + leases_ms[array_position(messages, m.id)] * interval '1 millisecond' END
        WHERE m.id = ANY (ARRAY(SELECT h.id FROM held h))
        RETURNING m.id, m.delivery
    )
    SELECT (SELECT h.leased_by FROM held h WHERE h.id = c.id), c.id, c.delivery FROM changed c;
END $$;

-- Only public queues are listed, and only what this client could dequeue now is counted.
CREATE FUNCTION mlmq.pending_many(clients bigint[], limits integer[])
RETURNS TABLE (ord bigint, status integer, own bigint, queue bigint, name text, owner bigint)
LANGUAGE plpgsql STABLE SET search_path = mlmq, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    moment timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    SELECT u.ord, CASE WHEN EXISTS (SELECT 1 FROM client c WHERE c.id = u.client) THEN 0 ELSE 4 END, (
        SELECT count(*) FROM message m WHERE m.queue = (SELECT q.id FROM queue q WHERE q.client = u.client)
          AND suits(m.sender, m.receiver, m.context, m.leased_until, u.client, NULL, NULL, moment)
    ), NULL::bigint, NULL::text, NULL::bigint
    FROM unnest(clients) WITH ORDINALITY AS u (client, ord)
    UNION ALL
    SELECT u.ord, 0, NULL::bigint, g.id, g.name, g.owner
    FROM unnest(clients, limits) WITH ORDINALITY AS u (client, max_queues, ord) CROSS JOIN LATERAL (
        SELECT q.id, q.name, q.owner FROM queue q
        WHERE q.client IS NULL AND EXISTS (
            SELECT 1 FROM message m WHERE m.queue = q.id
              AND suits(m.sender, m.receiver, m.context, m.leased_until, u.client, NULL, NULL, moment)
        ) ORDER BY q.id LIMIT u.max_queues
    ) g;
END $$;

-- What waits and what is leased, queue by queue, the longest first. For inspectors.
CREATE FUNCTION mlmq.queue_lengths(max_queues integer)
RETURNS TABLE (queue bigint, name text, waiting bigint, leased bigint)
LANGUAGE plpgsql STABLE SET search_path = mlmq, pg_temp AS $$
#variable_conflict use_column
DECLARE
    moment timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    SELECT q.id, q.name, count(m.id) FILTER (WHERE m.leased_until IS NULL OR m.leased_until <= moment),
           count(m.id) FILTER (WHERE m.leased_until > moment)
    FROM queue q LEFT JOIN message m ON m.queue = q.id GROUP BY q.id, q.name
    ORDER BY count(m.id) DESC, q.id LIMIT max_queues;
END $$;

-- Receipts of sessions that have been silent for that long.
CREATE FUNCTION mlmq.forget_receipts(older_than_s double precision) RETURNS bigint
LANGUAGE plpgsql SET search_path = mlmq, pg_temp AS $$
DECLARE
    forgotten bigint;
BEGIN
    DELETE FROM receipt r WHERE r.answered_at < clock_timestamp() - older_than_s * interval '1 second';
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    RETURN forgotten;
END $$;
