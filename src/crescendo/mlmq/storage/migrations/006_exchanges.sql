-- Sends and dequeues that wait together share one statement and one commit, and what somebody waits for is handed over
-- in the statement that stores it, without ever lying in a queue.

-- Slots are held by numbers that a broker can put in order, and nobody's queue is deleted while messages are on their
-- way: who deletes holds this lock alone, who sends or dequeues shares it. It is of the two-number kind, which slots
-- never use.
DO $$
DECLARE
    change record;
    text text;
BEGIN
    FOR change IN
        SELECT * FROM (VALUES
            ('mlmq.send_many', 'hashint8extended(u.session, u.slot)', 'u.session * 64 + u.slot'),
            ('mlmq.dequeue_many', 'hashint8extended(u.session, u.slot)', 'u.session * 64 + u.slot'),
            ('mlmq.delete_queues', E'\nBEGIN\n', E'\nBEGIN\n    PERFORM pg_advisory_xact_lock(19788, 1);\n'),
            ('mlmq.deregister_many', E'\nBEGIN\n', E'\nBEGIN\n    PERFORM pg_advisory_xact_lock(19788, 1);\n')
        ) AS c (name, old, new)
    LOOP
        text := pg_get_functiondef(change.name::regproc);
        ASSERT length(replace(text, change.old, '')) = length(text) - length(change.old), 'it stands there once';
        EXECUTE replace(text, change.old, change.new);
    END LOOP;
END $$;

-- The first slot of a session has its row from the start: then a request only ever changes a row.
CREATE FUNCTION mlmq.begin_sessions(names text[])
RETURNS TABLE (ord bigint, status integer, client bigint, queue bigint, session bigint)
LANGUAGE sql AS $$
    WITH registered AS MATERIALIZED (
        SELECT * FROM mlmq.register_many(names)
    ), begun AS (
        INSERT INTO mlmq.receipt (client, session, slot, number, answered_at)
        SELECT r.client, r.session, 0, 0, clock_timestamp() FROM registered r WHERE r.session IS NOT NULL
    )
    SELECT r.ord, r.status, r.client, r.queue, r.session FROM registered r
$$;

-- Whatever the requests ask for. The sends come first, so that the dequeues see what they stored.
CREATE FUNCTION mlmq.exchange_many(
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

-- What nearly all requests ask for: one message for one queue or client, or the first message of one queue, each with a
-- slot that was used before. Two queries serve them all, because starting a query costs far more than a row of it. It
-- serves either all of the batch or nothing: where it finds anything out of the ordinary (a repetition, a slot's first
-- use, somebody or something that is not there) it raises MQ001, and the batch is for exchange_many.
--
-- `keys` are the slots in their order. `takers` names the dequeue that wants what is sent, counted from 1: it is handed
-- over if nothing else lies there. `skips` says how many dequeues of the same queue come before one.
CREATE FUNCTION mlmq.exchange_plain(
    keys bigint[],
    send_clients bigint[], send_sessions bigint[], send_slots smallint[], send_numbers bigint[],
    send_queues bigint[], receivers bigint[], send_contexts bigint[], fresh boolean[], priorities smallint[],
    contents bytea[], takers integer[],
    clients bigint[], sessions bigint[], slots smallint[], numbers bigint[], queues bigint[], contexts bigint[],
    skips integer[], shared boolean[],
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
    handed_over := '{}';
    IF cardinality(send_clients) > 0 THEN
        WITH wanted AS MATERIALIZED (
            SELECT u.*, coalesce(q.id, o.id) AS target, nextval('mlmq.message_number') AS id,
                   CASE WHEN u.fresh THEN nextval('mlmq.context_number') ELSE u.context END AS final,
                   u.taker IS NOT NULL AND queues[u.taker] = coalesce(q.id, o.id)
                   AND coalesce(coalesce(q.client, o.client) = clients[u.taker], true)
                   AND CASE WHEN contexts[u.taker] IS NULL
                       THEN NOT EXISTS (SELECT 1 FROM mlmq.message m WHERE m.queue = coalesce(q.id, o.id))
                       ELSE NOT EXISTS (SELECT 1 FROM mlmq.message m WHERE m.context = contexts[u.taker])
                   END AS handed
            FROM unnest(send_clients, send_sessions, send_slots, send_numbers, send_queues, receivers, send_contexts,
                        fresh, priorities, contents, takers)
                WITH ORDINALITY AS u (client, session, slot, number, queue, receiver, context, fresh, priority, content,
                                      taker, place)
            LEFT JOIN mlmq.queue q ON q.id = u.queue
            LEFT JOIN mlmq.queue o ON o.client = u.receiver
        ), stored AS (
            INSERT INTO mlmq.message (id, queue, sender, receiver, context, sent_at, priority, content)
            SELECT w.id, w.target, w.client, w.receiver, w.final, moment, w.priority, w.content
            FROM wanted w WHERE NOT w.handed AND w.target IS NOT NULL
        ), kept AS (
            UPDATE mlmq.receipt r SET number = n.number, answered_at = moment, sent = n.sent, context = n.context,
                                      given = n.given
            FROM (
                SELECT w.client, w.session, w.slot, w.number, ARRAY[w.id] AS sent, w.final AS context,
                       NULL::mlmq.given[] AS given
                FROM wanted w
                UNION ALL
                SELECT clients[w.taker], sessions[w.taker], slots[w.taker], numbers[w.taker], NULL, NULL,
                       ARRAY[ROW(w.id, w.target, w.client, w.receiver, w.priority, w.final, moment, 1, w.content
                             )::mlmq.given]
                FROM wanted w WHERE w.handed
            ) n
            WHERE r.client = n.client AND r.session = n.session AND r.slot = n.slot
              AND (r.number < n.number OR r.number = n.number AND n.given IS NOT NULL AND r.given IS NULL)
            RETURNING 1
        )
        SELECT array_agg(w.place), array_agg(w.id), array_agg(w.final),
               coalesce(array_agg(w.taker) FILTER (WHERE w.handed), '{}'),
               bool_and(w.target IS NOT NULL)
               AND count(*) + count(*) FILTER (WHERE w.handed) = (SELECT count(*) FROM kept)
        INTO sent_places, sent, sent_contexts, handed_over, whole FROM wanted w;
        IF NOT whole THEN
            RAISE EXCEPTION 'not a plain exchange' USING ERRCODE = 'MQ001';
        END IF;
    END IF;
    IF cardinality(clients) > cardinality(handed_over) THEN
        WITH picked AS MATERIALIZED (
            SELECT d.place, d.client, d.session, d.slot, d.number, coalesce(f.at, c.at) AS at,
                   CASE WHEN f.at IS NOT NULL THEN f.one ELSE c.one END AS one
            FROM unnest(clients, sessions, slots, numbers, queues, contexts, skips, shared)
                WITH ORDINALITY AS d (client, session, slot, number, queue, context, skip, shared, place)
            JOIN mlmq.queue q ON q.id = d.queue AND (q.client IS NULL OR q.client = d.client)
            LEFT JOIN LATERAL (
                SELECT m.ctid AS at, m AS one FROM mlmq.message m
                WHERE d.context IS NULL AND m.queue = d.queue AND (m.leased_until IS NULL OR m.leased_until <= moment)
                  AND (m.receiver IS NULL OR m.receiver = d.client OR d.shared)
                ORDER BY m.priority DESC, m.sent_at, m.id OFFSET d.skip LIMIT 1 FOR UPDATE SKIP LOCKED
            ) f ON true
            LEFT JOIN LATERAL (
                SELECT m.ctid AS at, m AS one FROM mlmq.message m
                WHERE m.context = d.context AND m.queue = d.queue
                  AND (m.leased_until IS NULL OR m.leased_until <= moment)
                  AND (m.receiver IS NULL OR m.receiver = d.client)
                ORDER BY m.priority DESC, m.sent_at, m.id LIMIT 1 FOR UPDATE SKIP LOCKED
            ) c ON true
            WHERE d.place <> ALL (handed_over)
        ), gone AS (
            DELETE FROM mlmq.message m WHERE m.ctid = ANY (ARRAY(SELECT p.at FROM picked p WHERE p.at IS NOT NULL))
            RETURNING 1
        ), kept AS (
            UPDATE mlmq.receipt r SET number = p.number, answered_at = moment, sent = NULL, context = NULL,
                given = CASE WHEN p.at IS NOT NULL THEN ARRAY[ROW(
                    (p.one).id, (p.one).queue, (p.one).sender, (p.one).receiver, (p.one).priority, (p.one).context,
                    (p.one).sent_at, (p.one).delivery + 1, (p.one).content)::mlmq.given] END
            FROM picked p
            WHERE r.client = p.client AND r.session = p.session AND r.slot = p.slot
              AND (r.number < p.number OR r.number = p.number AND r.given IS NULL)
            RETURNING p.place, r.given
        )
        SELECT array_agg(k.place), array_agg(k.given[1]),
               count(*) = cardinality(clients) - cardinality(handed_over)
               AND count(k.given) = (SELECT count(*) FROM gone)
               AND NOT coalesce(bool_or((k.given[1]).receiver <> clients[k.place]), false)
        INTO places, taken, whole FROM kept k;
        IF NOT whole THEN
            RAISE EXCEPTION 'not a plain exchange' USING ERRCODE = 'MQ001';
        END IF;
    END IF;
END $$;
