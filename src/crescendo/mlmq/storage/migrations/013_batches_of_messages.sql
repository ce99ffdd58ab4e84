-- Requests that store many messages in one queue, or take many from one, in a few short queries each. Both procedures
-- serve all of a batch or nothing: any other batch makes them raise MQ001 and goes to send_many or dequeue_many, which
-- can do everything and take nearly twice as long per message. As in exchange_plain, no row of a queue is locked: those
-- who delete queues hold (19788, 1) alone.

-- `contents` has the messages of all requests, `counts` how many of them each request has. The messages of a request
-- have rising numbers, and so have the requests.
CREATE FUNCTION mlmq.store_batches(
    keys bigint[], clients bigint[], slot_keys bigint[], numbers bigint[], queues bigint[], priorities smallint[],
    counts integer[], contents bytea[], OUT sent bigint[]
)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
    SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    slot_key bigint;
    moment timestamptz;
    known integer;
    first integer := 1;
    stored bigint[];
BEGIN
    IF pg_advisory_xact_lock_shared(19788, 1) IS NULL THEN END IF;
    FOREACH slot_key IN ARRAY keys LOOP
        IF pg_advisory_xact_lock(slot_key) IS NULL THEN END IF;
    END LOOP;
    moment := clock_timestamp();
    SELECT count(*) INTO known
    FROM unnest(clients, slot_keys, numbers, queues) AS u (client, key, number, queue)
    JOIN mlmq.queue q ON q.id = u.queue JOIN mlmq.client c ON c.id = u.client
    WHERE NOT EXISTS (
        SELECT 1 FROM mlmq.receipt r WHERE r.key = u.key AND r.number >= u.number AND r.client = u.client
    );
    IF known < cardinality(clients) THEN
        RAISE EXCEPTION 'not plain batches' USING ERRCODE = 'MQ001';
    END IF;
    sent := '{}';
    FOR nth IN 1 .. cardinality(clients) LOOP
        WITH placed AS (
            INSERT INTO mlmq.message (id, queue, sender, sent_at, priority, content, expires_at)
            SELECT nextval('mlmq.message_number'), q.id, clients[nth], moment, priorities[nth], u.content,
                   moment + q.retention
            FROM mlmq.queue q, unnest(contents[first:first + counts[nth] - 1]) AS u (content)
            WHERE q.id = queues[nth]
            RETURNING id
        ), kept AS (
            INSERT INTO mlmq.receipt (generation, key, number, client, answered_at, sent)
            SELECT g.current, slot_keys[nth], numbers[nth], clients[nth], moment, (SELECT array_agg(p.id) FROM placed p)
            FROM mlmq.receipt_rotation g
        )
        SELECT array_agg(p.id) INTO stored FROM placed p;
        sent := sent || stored;
        first := first + counts[nth];
    END LOOP;
END $$;

-- The first messages of one queue for each request, with or without a lease. Each request sees what the earlier ones
-- have left; one that finds nothing has no row, and no receipt.
CREATE FUNCTION mlmq.take_batches(
    keys bigint[], clients bigint[], slot_keys bigint[], numbers bigint[], queues bigint[], counts integer[],
    leases_ms integer[]
) RETURNS TABLE (
    ord integer, status integer, id bigint, queue bigint, sender bigint, receiver bigint, priority smallint,
    context bigint, sent_at timestamptz, delivery integer, content bytea
)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
    SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off AS $$
#variable_conflict use_column
DECLARE
    slot_key bigint;
    moment timestamptz;
    known integer;
    places tid[];
    picked mlmq.given[];
    changed integer;
BEGIN
    IF pg_advisory_xact_lock_shared(19788, 1) IS NULL THEN END IF;
    FOREACH slot_key IN ARRAY keys LOOP
        IF pg_advisory_xact_lock(slot_key) IS NULL THEN END IF;
    END LOOP;
    moment := clock_timestamp();
    IF EXISTS (SELECT 1 FROM mlmq.message m WHERE m.leased_until <= moment)
       OR EXISTS (SELECT 1 FROM mlmq.message m WHERE m.leased_until IS NULL AND m.expires_at <= moment) THEN
        PERFORM mlmq.release_expired(moment);
    END IF;
    SELECT count(*) INTO known
    FROM unnest(clients, slot_keys, numbers, queues) AS u (client, key, number, queue)
    JOIN mlmq.queue q ON q.id = u.queue AND (q.client IS NULL OR q.client = u.client)
    JOIN mlmq.client c ON c.id = u.client
    WHERE NOT EXISTS (
        SELECT 1 FROM mlmq.receipt r WHERE r.key = u.key AND r.number >= u.number AND r.client = u.client
    );
    IF known < cardinality(clients) THEN
        RAISE EXCEPTION 'not plain batches' USING ERRCODE = 'MQ001';
    END IF;
    FOR nth IN 1 .. cardinality(clients) LOOP
        SELECT array_agg(p.place), array_agg(p.one) INTO places, picked FROM (
            SELECT m.ctid AS place, ROW(m.id, m.queue, m.sender, m.receiver, m.priority, m.context, m.sent_at,
                                        m.delivery + 1, m.content)::mlmq.given AS one
            FROM mlmq.message m
            WHERE m.leased_until IS NULL AND m.queue = queues[nth]
              AND (m.receiver IS NULL OR m.receiver = clients[nth])
            ORDER BY m.priority DESC, m.sent_at, m.id LIMIT counts[nth] FOR UPDATE SKIP LOCKED
        ) p;
        CONTINUE WHEN places IS NULL;
        IF leases_ms[nth] = 0 THEN
            DELETE FROM mlmq.message m WHERE m.ctid = ANY (places);
        ELSE
            UPDATE mlmq.message m SET delivery = m.delivery + 1, leased_by = clients[nth],
                leased_until = moment + leases_ms[nth] * interval '1 millisecond'
            WHERE m.ctid = ANY (places);
        END IF;
        GET DIAGNOSTICS changed = ROW_COUNT;
        IF changed < cardinality(places) THEN  -- somebody gave one back in the middle
            RAISE EXCEPTION 'not plain batches' USING ERRCODE = 'MQ001';
        END IF;
        INSERT INTO mlmq.receipt (generation, key, number, client, answered_at, leased, given)
        SELECT g.current, slot_keys[nth], numbers[nth], clients[nth], moment, leases_ms[nth] > 0, picked
        FROM mlmq.receipt_rotation g;
        RETURN QUERY SELECT nth, 0, p.* FROM unnest(picked) p;
    END LOOP;
END $$;
