-- One row that a broker's health check writes: only a write proves that messages can be stored.
CREATE TABLE mlmq.health_check (checked_at timestamptz NOT NULL) WITH (fillfactor = 10);
INSERT INTO mlmq.health_check VALUES (clock_timestamp());
