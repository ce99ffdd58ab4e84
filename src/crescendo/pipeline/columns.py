"""What are the columns called that pass through the pipeline?

Declares the names of intermediate tables and of their columns. Columns of recordings are declared in `record.schema`,
and those of published tables in `record.tables`: for these there are only shorthands here, which Spark expressions of
several tables share. Names only.
"""

from crescendo.record.table_types import column_name
from crescendo.record.tables import (
    BurstRow,
    LatencyHistogramRow,
    LatencyRow,
    LedgerRangeRow,
    OutageRow,
    ReadingRow,
    SampleStatistics,
    ThroughputRow,
)

# Columns of recordings.
SENDER, RECEIVER, SEQ = "sender", "receiver", "seq"
FIRST_SEQ, LAST_SEQ = "first_seq", "last_seq"
INTENDED_NS, SENT_NS, RECEIVED_NS, SETTLED_NS = "intended_ns", "sent_ns", "received_ns", "settled_ns"
ATTEMPT, ARRIVAL, SIZE, FLAGS, OUTCOME = "attempt", "arrival", "size", "flags", "outcome"
T_NS, SOURCE, ENTITY, METRIC, VALUE, DETAIL = "t_ns", "source", "entity", "metric", "value", "detail"
ACTION, DURATION_NS, PEER = "action", "duration_ns", "peer"

# Shorthands for columns of published tables, and of intermediate results that become one.
RUN = column_name(ReadingRow.run)
SECOND, ROLE, CONNECTION, MESSAGES, BYTES = (
    column_name(ThroughputRow.second),
    column_name(ThroughputRow.role),
    column_name(ThroughputRow.connection),
    column_name(ThroughputRow.messages),
    column_name(ThroughputRow.bytes),
)
PHASE, KIND, BUCKET, COUNT, SUM_NS, MIN_NS, MAX_NS = (
    column_name(LatencyHistogramRow.phase),
    column_name(LatencyHistogramRow.kind),
    column_name(LatencyHistogramRow.bucket),
    column_name(LatencyHistogramRow.count),
    column_name(LatencyHistogramRow.sum_ns),
    column_name(LatencyHistogramRow.min_ns),
    column_name(LatencyHistogramRow.max_ns),
)
SENDER_GROUP, DESTINATION, RECEIVER_GROUP = (
    column_name(LatencyHistogramRow.sender_group),
    column_name(LatencyHistogramRow.destination),
    column_name(LatencyHistogramRow.receiver_group),
)
SCOPE, PARTY = column_name(LatencyRow.scope), column_name(LatencyRow.party)
SUBSCRIPTION, ACKNOWLEDGED = column_name(LedgerRangeRow.subscription), column_name(LedgerRangeRow.acknowledged)
START_NS, END_NS = column_name(OutageRow.start_ns), column_name(OutageRow.end_ns)
NEGATIVE, INVERSIONS = column_name(SampleStatistics.negative), column_name(BurstRow.inversions)

# Columns of intermediate results.
VALUE_NS, WEIGHT = "value_ns", "weight"
SIDE, BLOCK, LOW_SUM, HASH = "side", "block", "low_sum", "hash"
FLOW, TICK, OFFSET_NS = "flow", "tick", "offset_ns"
JITTER_NS, OUTAGE, FADED_NS = "jitter_ns", "outage", "faded_ns"
DELAY_NS = "delay_ns"
RUN_NUMBER = "run_number"  # the position of a run among those that are scanned together

# Intermediate tables, removed when the tables made from them are written.
BLOCK_SUMS, TICKS, CONNECTION_HISTOGRAM = ".block_sums", ".ticks", ".connection_histogram"
OWN_RANGES, READ_RANGES, CORRECTIONS = ".own_ranges", ".read_ranges", ".corrections"
LATE_SPANS, PATH_EPISODES, SENDER_EPISODES = ".late_spans", ".path_episodes", ".sender_episodes"
