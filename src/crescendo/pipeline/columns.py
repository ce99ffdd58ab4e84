"""What are the columns called, inside the pipeline and in its tables?

Declared once, here; the columns of recordings are declared in `record.schema`. Names only.
"""

# Recordings.
SENDER, RECEIVER, SEQ = "sender", "receiver", "seq"
FIRST_SEQ, LAST_SEQ = "first_seq", "last_seq"
INTENDED_NS, SENT_NS, RECEIVED_NS, SETTLED_NS = "intended_ns", "sent_ns", "received_ns", "settled_ns"
ATTEMPT, ARRIVAL, SIZE, FLAGS, OUTCOME = "attempt", "arrival", "size", "flags", "outcome"

# Tables.
THROUGHPUT, HISTOGRAM, LATENCY = "throughput", "latency_histogram", "latency"
LEDGER, RANGES, CHECKS = "ledger", "ledger_ranges", "checks"

SECOND, PHASE, KIND = "second", "phase", "kind"
ROLE, CONNECTION, MESSAGES, BYTES = "role", "connection", "messages", "bytes"
BUCKET, COUNT, SUM_NS, MIN_NS, MAX_NS = "bucket", "count", "sum_ns", "min_ns", "max_ns"
SUBSCRIPTION, ACKNOWLEDGED = "subscription", "acknowledged"

# On the way to them.
VALUE_NS, WEIGHT = "value_ns", "weight"
SIDE, BLOCK, LOW_SUM, HASH = "side", "block", "low_sum", "hash"
