"""What are the columns called, inside the pipeline and in its tables?

Declared once, here; the columns of recordings are declared in `record.schema`. Names only.
"""

# Recordings.
SENDER, RECEIVER, SEQ = "sender", "receiver", "seq"
FIRST_SEQ, LAST_SEQ = "first_seq", "last_seq"
INTENDED_NS, SENT_NS, RECEIVED_NS, SETTLED_NS = "intended_ns", "sent_ns", "received_ns", "settled_ns"
ATTEMPT, ARRIVAL, SIZE, FLAGS, OUTCOME = "attempt", "arrival", "size", "flags", "outcome"
T_NS, SOURCE, ENTITY, METRIC, VALUE, DETAIL = "t_ns", "source", "entity", "metric", "value", "detail"

# Tables.
THROUGHPUT, HISTOGRAM, LATENCY = "throughput", "latency_histogram", "latency"
LEDGER, RANGES, CHECKS = "ledger", "ledger_ranges", "checks"
READINGS, READING_SUMMARY, READING_GAPS = "readings", "reading_summary", "reading_gaps"

RUN, SECOND, PHASE, KIND = "run", "second", "phase", "kind"
ROLE, CONNECTION, MESSAGES, BYTES = "role", "connection", "messages", "bytes"
BUCKET, COUNT, SUM_NS, MIN_NS, MAX_NS = "bucket", "count", "sum_ns", "min_ns", "max_ns"
SUBSCRIPTION, ACKNOWLEDGED = "subscription", "acknowledged"

# On the way to them.
VALUE_NS, WEIGHT = "value_ns", "weight"
SIDE, BLOCK, LOW_SUM, HASH = "side", "block", "low_sum", "hash"
