-- The indices of messages that an experiment does without, as they were; see storage/indices.py.
CREATE TABLE mlmq.dropped_index (definition text NOT NULL);
