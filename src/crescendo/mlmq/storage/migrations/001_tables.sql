-- Who there is, where messages wait, and what was answered. All tables are logged: what a commit says, a crash keeps.

CREATE TABLE mlmq.client (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE CHECK (char_length(name) BETWEEN 1 AND 50)
);

-- Clients and public queues share one set of names: a client's own queue bears the client's name.
CREATE TABLE mlmq.queue (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE CHECK (char_length(name) BETWEEN 1 AND 50),
    client bigint UNIQUE REFERENCES mlmq.client ON DELETE CASCADE,
    owner bigint REFERENCES mlmq.client ON DELETE SET NULL,
    CHECK (client IS NULL OR owner IS NULL)
);
CREATE INDEX queue_owner ON mlmq.queue (owner) WHERE owner IS NOT NULL;

CREATE SEQUENCE mlmq.session_number;
CREATE SEQUENCE mlmq.context_number;
CREATE SEQUENCE mlmq.message_number;

-- No foreign key to the queue: its check would run once a message. The procedures hold the queue's row once a batch.
CREATE TABLE mlmq.message (
    id bigint PRIMARY KEY,
    queue bigint NOT NULL,
    sender bigint NOT NULL,
    receiver bigint,
    context bigint,
    sent_at timestamptz NOT NULL,
    leased_until timestamptz,
    leased_by bigint,
    delivery integer NOT NULL DEFAULT 0,
    priority smallint NOT NULL CHECK (priority BETWEEN 1 AND 10),
    content bytea NOT NULL CHECK (octet_length(content) <= 2000)
) WITH (
    -- Room for the version with a lease on the same page: no index need be touched.
    fillfactor = 75,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_analyze_scale_factor = 0.2, autovacuum_analyze_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
-- Small enough for its page, and not worth compressing.
ALTER TABLE mlmq.message ALTER COLUMN content SET STORAGE PLAIN;
CREATE INDEX message_by_priority ON mlmq.message (queue, priority DESC, sent_at, id);
CREATE INDEX message_by_age ON mlmq.message (queue, sent_at, id);
CREATE INDEX message_by_sender ON mlmq.message (sender);
CREATE INDEX message_by_context ON mlmq.message (context) WHERE context IS NOT NULL;

-- A message as it was handed out.
CREATE TYPE mlmq.given AS (
    id bigint, queue bigint, sender bigint, receiver bigint, priority smallint, context bigint,
    sent_at timestamptz, delivery integer, content bytea
);

-- The last answer of every slot. It is overwritten in place, so the table grows with the sessions, not with the traffic.
CREATE TABLE mlmq.receipt (
    client bigint NOT NULL,
    session bigint NOT NULL,
    slot smallint NOT NULL,
    number bigint NOT NULL,
    answered_at timestamptz NOT NULL,
    sent bigint[],
    context bigint,
    given mlmq.given[],
    PRIMARY KEY (client, session, slot)
) WITH (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
