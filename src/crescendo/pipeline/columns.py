"""What are the columns and tables of the pipeline called?

Each name is declared once, here. `record.schema` declares the columns of recordings. Names only.
"""

# Columns of recordings.
SENDER, RECEIVER, SEQ = "sender", "receiver", "seq"
FIRST_SEQ, LAST_SEQ = "first_seq", "last_seq"
INTENDED_NS, SENT_NS, RECEIVED_NS, SETTLED_NS = "intended_ns", "sent_ns", "received_ns", "settled_ns"
ATTEMPT, ARRIVAL, SIZE, FLAGS, OUTCOME = "attempt", "arrival", "size", "flags", "outcome"
T_NS, SOURCE, ENTITY, METRIC, VALUE, DETAIL = "t_ns", "source", "entity", "metric", "value", "detail"
ACTION, DURATION_NS, PEER = "action", "duration_ns", "peer"

# Tables and their columns.
THROUGHPUT, HISTOGRAM, LATENCY = "throughput", "latency_histogram", "latency"
LEDGER, RANGES, CHECKS = "ledger", "ledger_ranges", "checks"
READINGS, READING_SUMMARY, READING_GAPS = "readings", "reading_summary", "reading_gaps"
BACKLOG, LITTLE, OUTAGES, BURSTS, EFFECTS = "backlog", "little", "outages", "bursts", "effects"
STEADY, ERRORS, JITTER, JITTER_HISTOGRAM = "steady_state", "errors", "jitter", "jitter_histogram"
SPANS, SPAN_HISTOGRAM = "spans", "span_histogram"

RUN, SECOND, PHASE, KIND = "run", "second", "phase", "kind"
ROLE, CONNECTION, MESSAGES, BYTES = "role", "connection", "messages", "bytes"
BUCKET, COUNT, SUM_NS, MIN_NS, MAX_NS = "bucket", "count", "sum_ns", "min_ns", "max_ns"
SUBSCRIPTION, ACKNOWLEDGED = "subscription", "acknowledged"
SCOPE, PARTY, DESTINATION = "scope", "party", "destination"
START_NS, END_NS, CAUGHT_UP_NS = "start_ns", "end_ns", "caught_up_ns"
NEGATIVE, INVERSIONS = "negative", "inversions"

# Columns of intermediate results.
VALUE_NS, WEIGHT = "value_ns", "weight"
SIDE, BLOCK, LOW_SUM, HASH = "side", "block", "low_sum", "hash"
FLOW, TICK, OFFSET_NS = "flow", "tick", "offset_ns"
JITTER_NS, OUTAGE, FADED_NS = "jitter_ns", "outage", "faded_ns"


# Intermediate tables, removed when the tables made from them are written.
BLOCK_SUMS, TICKS, CONNECTION_HISTOGRAM = ".block_sums", ".ticks", ".connection_histogram"
