-- Whoever creates a name shares the lock that a deletion holds alone. So nothing is deleted between the check and the
-- answer, which would then name a queue without a number. One pass is enough, with names in order: a second pass, which
-- would insert while it holds names of the first, could wait for somebody who waits for this one.
CREATE OR REPLACE FUNCTION mlmq.register_many(names text[])
RETURNS TABLE (ord bigint, status integer, client bigint, queue bigint, session bigint)
LANGUAGE plpgsql SET search_path = mlmq, pg_temp AS $$
#variable_conflict use_column
BEGIN
    PERFORM pg_advisory_xact_lock_shared(19788, 1);
    WITH fresh AS (
        INSERT INTO queue (name) SELECT DISTINCT u.name FROM unnest(names) AS u (name) ORDER BY u.name
        ON CONFLICT (name) DO NOTHING RETURNING name
    )
    INSERT INTO client (name) SELECT f.name FROM fresh f;
    -- A queue without client or owner would be a public one: nobody sees it before this transaction ends.
    UPDATE queue q SET client = c.id FROM client c
    WHERE c.name = ANY (names) AND q.name = c.name AND q.client IS NULL;
    RETURN QUERY
    SELECT u.ord, CASE WHEN q.client IS NULL THEN 7 ELSE 0 END, q.client, q.id,
           CASE WHEN q.client IS NOT NULL THEN nextval('session_number') END
    FROM unnest(names) WITH ORDINALITY AS u (name, ord) JOIN queue q ON q.name = u.name;
END $$;

CREATE OR REPLACE FUNCTION mlmq.create_queues(clients bigint[], names text[])
RETURNS TABLE (ord bigint, status integer, queue bigint, name text, client bigint, owner bigint)
LANGUAGE plpgsql SET search_path = mlmq, pg_temp AS $$
#variable_conflict use_column
BEGIN
    PERFORM pg_advisory_xact_lock_shared(19788, 1);
    INSERT INTO queue (name, owner)
    SELECT DISTINCT ON (u.name) u.name, u.client
    FROM unnest(clients, names) WITH ORDINALITY AS u (client, name, ord)
    WHERE EXISTS (SELECT 1 FROM client c WHERE c.id = u.client)
    ORDER BY u.name, u.ord
    ON CONFLICT (name) DO NOTHING;
    RETURN QUERY
    SELECT u.ord,
           CASE WHEN NOT EXISTS (SELECT 1 FROM client c WHERE c.id = u.client) THEN 4
                WHEN q.client IS NOT NULL THEN 7 ELSE 0 END,
           q.id, u.name, q.client, q.owner
    FROM unnest(clients, names) WITH ORDINALITY AS u (client, name, ord) LEFT JOIN queue q ON q.name = u.name;
END $$;
