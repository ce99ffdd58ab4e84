-- Clients and queues come and go. Status numbers are those of operations.Refusal; 0 is well.
-- Rows are locked in the order of their names or ids everywhere, so that two batches never wait for each other.

CREATE FUNCTION mlmq.register_many(names text[])
RETURNS TABLE (ord bigint, status integer, client bigint, queue bigint, session bigint)
LANGUAGE plpgsql SET search_path = mlmq, pg_temp AS $$
#variable_conflict use_column
BEGIN
    LOOP
        WITH fresh AS (
            INSERT INTO queue (name) SELECT DISTINCT u.name FROM unnest(names) AS u (name) ORDER BY u.name
            ON CONFLICT (name) DO NOTHING RETURNING name
        )
        INSERT INTO client (name) SELECT f.name FROM fresh f;
        -- A queue without client or owner would be a public one: nobody sees it before this transaction ends.
        UPDATE queue q SET client = c.id FROM client c
        WHERE c.name = ANY (names) AND q.name = c.name AND q.client IS NULL;
        -- Somebody may have deleted a name between our look and now: then it is free, and we try again.
        EXIT WHEN NOT EXISTS (
            SELECT 1 FROM unnest(names) AS u (name) WHERE NOT EXISTS (SELECT 1 FROM queue q WHERE q.name = u.name)
        );
    END LOOP;
    RETURN QUERY
    SELECT u.ord, CASE WHEN q.client IS NULL THEN 7 ELSE 0 END, q.client, q.id,
           CASE WHEN q.client IS NOT NULL THEN nextval('session_number') END
    FROM unnest(names) WITH ORDINALITY AS u (name, ord) JOIN queue q ON q.name = u.name;
END $$;

CREATE FUNCTION mlmq.create_queues(clients bigint[], names text[])
RETURNS TABLE (ord bigint, status integer, queue bigint, name text, client bigint, owner bigint)
LANGUAGE plpgsql SET search_path = mlmq, pg_temp AS $$
#variable_conflict use_column
BEGIN
    PERFORM 1 FROM client c WHERE c.id = ANY (clients) ORDER BY c.id FOR KEY SHARE;
    LOOP
        INSERT INTO queue (name, owner)
        SELECT DISTINCT ON (u.name) u.name, u.client
        FROM unnest(clients, names) WITH ORDINALITY AS u (client, name, ord)
        WHERE EXISTS (SELECT 1 FROM client c WHERE c.id = u.client)
        ORDER BY u.name, u.ord
        ON CONFLICT (name) DO NOTHING;
        EXIT WHEN NOT EXISTS (
            SELECT 1 FROM unnest(clients, names) AS u (client, name)
            WHERE EXISTS (SELECT 1 FROM client c WHERE c.id = u.client)
              AND NOT EXISTS (SELECT 1 FROM queue q WHERE q.name = u.name)
        );
    END LOOP;
    RETURN QUERY
    SELECT u.ord,
           CASE WHEN NOT EXISTS (SELECT 1 FROM client c WHERE c.id = u.client) THEN 4
                WHEN q.client IS NOT NULL THEN 7 ELSE 0 END,
           q.id, u.name, q.client, q.owner
    FROM unnest(clients, names) WITH ORDINALITY AS u (client, name, ord) LEFT JOIN queue q ON q.name = u.name;
END $$;

-- Messages are locked in the order of their ids, as acknowledgements lock them.
CREATE FUNCTION mlmq.empty_queues(queues bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path = mlmq, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
    PERFORM 1 FROM message m WHERE m.queue = ANY (queues) ORDER BY m.id FOR UPDATE;
    DELETE FROM message m WHERE m.queue = ANY (queues);
END $$;

CREATE FUNCTION mlmq.delete_queues(clients bigint[], queues bigint[])
RETURNS TABLE (ord bigint, status integer)
LANGUAGE plpgsql SET search_path = mlmq, pg_temp AS $$
#variable_conflict use_column
DECLARE
    verdicts integer[];
    doomed bigint[];
BEGIN
    PERFORM 1 FROM queue q WHERE q.id = ANY (queues) ORDER BY q.id FOR UPDATE;
    SELECT array_agg(j.verdict ORDER BY j.ord), array_agg(DISTINCT j.queue) FILTER (WHERE j.verdict = 0)
    INTO verdicts, doomed FROM (
        SELECT u.ord, u.queue,
               CASE WHEN NOT EXISTS (SELECT 1 FROM client c WHERE c.id = u.client) THEN 4
                    WHEN q.id IS NULL THEN 5
                    WHEN q.client IS NOT NULL OR q.owner IS DISTINCT FROM u.client AND q.owner IS NOT NULL THEN 6
                    -- Of two requests in one batch for one queue the first deletes it.
                    WHEN row_number() OVER (
                        PARTITION BY u.queue, q.owner IS NULL OR q.owner = u.client ORDER BY u.ord
                    ) > 1 THEN 5
                    ELSE 0 END AS verdict
        FROM unnest(clients, queues) WITH ORDINALITY AS u (client, queue, ord) LEFT JOIN queue q ON q.id = u.queue
    ) j;
    IF doomed IS NOT NULL THEN
        PERFORM empty_queues(doomed);
        DELETE FROM queue q WHERE q.id = ANY (doomed);
    END IF;
    RETURN QUERY SELECT v.ord, v.verdict FROM unnest(verdicts) WITH ORDINALITY AS v (verdict, ord);
END $$;

CREATE FUNCTION mlmq.deregister_many(clients bigint[])
RETURNS TABLE (ord bigint, status integer)
LANGUAGE plpgsql SET search_path = mlmq, pg_temp AS $$
#variable_conflict use_column
DECLARE
    known bigint[];
    own bigint[];
BEGIN
    PERFORM 1 FROM client c WHERE c.id = ANY (clients) ORDER BY c.id FOR UPDATE;
    PERFORM 1 FROM queue q WHERE q.client = ANY (clients) OR q.owner = ANY (clients) ORDER BY q.id FOR UPDATE;
    SELECT array_agg(c.id) INTO known FROM client c WHERE c.id = ANY (clients);
    SELECT array_agg(q.id) INTO own FROM queue q WHERE q.client = ANY (clients);
    IF own IS NOT NULL THEN
        PERFORM empty_queues(own);
    END IF;
    DELETE FROM receipt r WHERE r.client = ANY (clients);
    DELETE FROM client c WHERE c.id = ANY (clients);
    RETURN QUERY
    SELECT u.ord, CASE WHEN u.client = ANY (known) THEN 0 ELSE 4 END
    FROM unnest(clients) WITH ORDINALITY AS u (client, ord);
END $$;

CREATE FUNCTION mlmq.find_clients(names text[]) RETURNS TABLE (ord bigint, client bigint)
LANGUAGE plpgsql STABLE SET search_path = mlmq, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT u.ord, c.id FROM unnest(names) WITH ORDINALITY AS u (name, ord) JOIN client c ON c.name = u.name;
END $$;

CREATE FUNCTION mlmq.find_queues(names text[], clients bigint[])
RETURNS TABLE (ord bigint, queue bigint, name text, client bigint, owner bigint)
LANGUAGE plpgsql STABLE SET search_path = mlmq, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT u.ord, q.id, q.name, q.client, q.owner
    FROM unnest(names) WITH ORDINALITY AS u (name, ord) JOIN queue q ON q.name = u.name
    UNION ALL
    SELECT u.ord, q.id, q.name, q.client, q.owner
    FROM unnest(clients) WITH ORDINALITY AS u (client, ord) JOIN queue q ON q.client = u.client;
END $$;
