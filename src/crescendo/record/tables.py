"""What are the tables of an analysed run, and what do their columns mean?

Every table under `RUN/tables` is declared here, once: its name, its row class with the columns in their order, and the
function that computes it, if it is computed from the recording alone. The pipeline writes what is declared, and readers
use the row classes. Tables of other packages are found by `published_tables`. Columns of recordings are in `schema`.
Knows neither Spark nor the pipeline.
"""

from typing import Annotated, Any

from msgspec import Struct, field

from crescendo.record.table_types import Int32, Table

TABLES_VERSION = 7
"""Increase it when a table is added or changed: every run is then computed again."""

Second = Annotated[int, "seconds since the start of the first phase, rounded down"]
PhaseName = Annotated[str, "name of the phase, or `outside` for a time that is in none"]
Subscription = Annotated[str, "name of the subscription"]
Sender = Annotated[Int32, "number of the sender"]
Receiver = Annotated[Int32, "number of the receiver"]
Bucket = Annotated[Int32, "bucket of `model.histogram`; negative for negative values"]
SampleCount = Annotated[int, "samples in the bucket"]
SumNs = Annotated[int, "sum of the samples"]
MinNs = Annotated[int, "smallest sample"]
MaxNs = Annotated[int, "largest sample"]
Percentile = Annotated[int | None, "percentile in nanoseconds; null with fewer than ten samples beyond it"]
LowEnd = Annotated[int | None, "lower end of its 95 % confidence interval; null if there is none"]
HighEnd = Annotated[int | None, "upper end of its 95 % confidence interval; null if there is none"]


class SampleStatistics(Struct, frozen=True):
    """What bucket counts say about one group of samples. The columns of several tables."""

    count: Annotated[int, "number of samples"]
    min_ns: MinNs
    max_ns: MaxNs
    negative: Annotated[int, "samples below zero"]
    mean_ns: Annotated[float, "mean of the samples"]
    p50: Percentile
    p50_low: LowEnd
    p50_high: HighEnd
    p90: Percentile
    p90_low: LowEnd
    p90_high: HighEnd
    p95: Percentile
    p95_low: LowEnd
    p95_high: HighEnd
    p99: Percentile
    p99_low: LowEnd
    p99_high: HighEnd
    p99_9: Percentile = field(name="p99.9")
    p99_9_low: LowEnd = field(name="p99.9_low")
    p99_9_high: HighEnd = field(name="p99.9_high")
    p99_99: Percentile = field(name="p99.99")
    p99_99_low: LowEnd = field(name="p99.99_low")
    p99_99_high: HighEnd = field(name="p99.99_high")


class ThroughputRow(Struct, frozen=True):
    """What one connection carried in one second."""

    second: Second
    role: Annotated[str, "sender or receiver"]
    connection: Annotated[Int32, "number of the connection among those of its role"]
    messages: Annotated[int, "messages, redeliveries and resends included"]
    bytes: Annotated[int, "their payloads; 0 if unknown"]


class LatencyHistogramRow(Struct, frozen=True):
    """The latencies of one kind in one second, phase, slice and bucket."""

    second: Second
    phase: PhaseName
    kind: Annotated[str, "response, transfer, settle, lateness, round trip or one way"]
    bucket: Bucket
    count: SampleCount
    sum_ns: SumNs
    min_ns: MinNs
    max_ns: MaxNs
    sender_group: Annotated[str | None, "group of the sender; null if unknown, or with more than 32 groups"]
    destination: Annotated[str | None, "queue or topic of the sender; null if unknown, or with more than 32 of them"]
    receiver_group: Annotated[str | None, "group of the receiver; null for settle and lateness, or as above"]


class LatencyRow(Struct, frozen=True):
    """The latencies of one kind, of the part of the run that the scope names."""

    scope: Annotated[str, "total, phase, second, sender, receiver or destination"]
    phase: PhaseName | None
    second: Second | None
    party: Annotated[str | None, "number of the connection, or name of the destination"]
    kind: Annotated[str, "response, transfer, settle, lateness, round trip or one way"]
    statistics: SampleStatistics


class LedgerRow(Struct, frozen=True):
    """Every message accounted for: in total, of one sender, or of one subscription."""

    scope: Annotated[str, "total, sender or subscription"]
    subscription: Subscription | None
    sent: Annotated[int, "messages sent; a resent one counts once"]
    owed: Annotated[int, "sent, times the subscriptions of the address"]
    settled: Annotated[int, "messages that the system accepted"]
    delivered: Annotated[int, "owed messages that arrived at least once"]
    lost_acknowledged: Annotated[int, "accepted messages that never arrived"]
    lost_unacknowledged: Annotated[int, "other owed messages that never arrived"]
    duplicated: Annotated[int, "deliveries after the first of a message"]
    reordered: Annotated[int, "first deliveries out of order"]
    corrupt: Annotated[int, "deliveries with damaged content"]
    stray: Annotated[int, "deliveries from another run"]
    unrecorded: Annotated[int, "messages that arrived without being owed"]
    sender: Sender | None


class LedgerRangeRow(Struct, frozen=True):
    """Consecutive messages with the same discrepancy."""

    kind: Annotated[str, "lost, undelivered, duplicated, reordered or unrecorded"]
    subscription: Subscription
    sender: Sender
    first_seq: Annotated[int, "first sequence number"]
    last_seq: Annotated[int, "last sequence number"]
    acknowledged: Annotated[bool | None, "whether the system accepted them; only for messages that did not arrive"]
    count: Annotated[int, "surplus deliveries of duplicated messages; otherwise messages"]


class VerdictCheckRow(Struct, frozen=True):
    """One check of the verdict."""

    metric: Annotated[str, "what was checked"]
    bound: Annotated[str, "the bound as written"]
    outcome: Annotated[str, "pass, fail or invalid"]
    value: Annotated[float | None, "measured value in base units"]
    limit: Annotated[float | None, "the bound's value in base units"]
    reasons: Annotated[list[str], "doubts about the evidence"]


class ReadingRow(Struct, frozen=True):
    """What one inspector read about one entity in one poll. One more column per metric, a double, has its value."""

    run: Annotated[str, "name of the run"]
    source: Annotated[str, "name of the inspector"]
    entity: Annotated[str, "what was inspected"]
    t_ns: Annotated[int, "time of the poll"]


class ReadingSummaryRow(Struct, frozen=True):
    """One metric of one entity over the measure phase; null where there are too few samples."""

    run: Annotated[str, "name of the run"]
    source: Annotated[str, "name of the inspector"]
    entity: Annotated[str, "what was inspected"]
    metric: Annotated[str, "name of the metric"]
    samples: Annotated[int, "finite readings in the measure phase"]
    first: Annotated[float | None, "first reading"]
    last: Annotated[float | None, "last reading"]
    min: Annotated[float | None, "smallest reading"]
    mean: Annotated[float | None, "mean of the readings"]
    peak: Annotated[float | None, "largest reading"]
    slope: Annotated[float | None, "change per second of the least-squares line"]
    r2: Annotated[float | None, "share of the variance that this line explains"]


class ReadingGapRow(Struct, frozen=True):
    """A time in which an inspector got no readings."""

    source: Annotated[str, "name of the inspector"]
    start_ns: Annotated[int, "first failed poll"]
    end_ns: Annotated[int | None, "next successful poll; null if there was none"]
    reason: Annotated[str, "what the first failed poll reported"]


class BacklogRow(Struct, frozen=True):
    """The messages sent to one subscription and not yet received, in one second."""

    subscription: Subscription
    second: Second
    sent: Annotated[int, "messages sent in this second"]
    received: Annotated[int, "messages received in this second"]
    backlog: Annotated[int, "at the end of the second"]
    peak: Annotated[int, "highest backlog at the end of a tick of the second"]


class LittleRow(Struct, frozen=True):
    """Little's law in the measure phase, over all subscriptions."""

    mean_backlog: Annotated[float, "mean number of messages in the system"]
    rate: Annotated[float, "deliveries per second"]
    mean_transfer_ns: Annotated[float, "mean transfer latency"]
    rate_times_transfer: Annotated[float, "what the mean backlog should be"]
    ratio: Annotated[float | None, "mean backlog, relative to that"]
    holds: Annotated[bool, "whether both agree within a tenth, or within one message"]


class OutageRow(Struct, frozen=True):
    """One gap in deliveries and the recovery from it; null means not before the recording ended."""

    subscription: Subscription
    start_ns: Annotated[int, "last delivery before the gap"]
    end_ns: Annotated[int | None, "first delivery after it"]
    gap_ns: Annotated[int, "length; until the end of the load if deliveries never resumed"]
    earlier_rate: Annotated[float, "deliveries per second in the five seconds before"]
    recovered_ns: Annotated[int | None, "from `start_ns` until a whole second had 95 % of the earlier rate"]
    area_lost: Annotated[float, "messages expected at the earlier rate until then, minus those received"]
    caught_up_ns: Annotated[int | None, "from `end_ns` until the backlog was no larger than before the gap"]
    catch_up_messages: Annotated[int | None, "deliveries while catching up"]
    peak_rate: Annotated[float | None, "in the fastest tick while catching up"]


class BurstRow(Struct, frozen=True):
    """The deliveries of one receiver after one outage, until the backlog was drained."""

    subscription: Subscription
    start_ns: Annotated[int, "start of the outage"]
    receiver: Receiver
    messages: Annotated[int, "deliveries"]
    negative: Annotated[int, "deliveries with negative jitter"]
    inversions: Annotated[int, "deliveries out of order"]
    max_jitter_ns: Annotated[int | None, "largest jitter"]
    length_ns: Annotated[int, "from the first to the last of them"]


class EffectRow(Struct, frozen=True):
    """The traffic before and after one event."""

    t_ns: Annotated[int, "time of the event"]
    second: Second
    source: Annotated[str, "which peer recorded it"]
    kind: Annotated[str, "fault, cure, disconnect, reconnect, lost or failed"]
    detail: Annotated[str, "details of the event as JSON"]
    rate_before: Annotated[float, "deliveries per second in the five seconds before"]
    rate_after: Annotated[float, "deliveries per second in the five seconds after"]
    p99_before_ns: Percentile
    p99_after_ns: Percentile
    backlog_before: Annotated[int, "messages in the system just before"]
    backlog_peak: Annotated[int, "the most in the five seconds after"]
    outage_start_ns: Annotated[int | None, "start of the longest outage near the event"]
    outage_gap_ns: Annotated[int | None, "its length"]


class RecoveryRow(Struct, frozen=True):
    """What one fault did to the traffic, and how long until it was well again."""

    fault: Annotated[int, "number of the fault, in order of time"]
    action: Annotated[str, "what was done"]
    target: Annotated[str, "the node it was done to"]
    means: Annotated[str, "by which means, where there are several"]
    planned_ns: Annotated[int, "when it was due"]
    start_ns: Annotated[int, "when it began"]
    end_ns: Annotated[int | None, "when it was undone; null if it lasted until the run was over"]
    detected_ns: Annotated[int | None, "from `start_ns` until the first connection was lost; null if none was"]
    outage_ns: Annotated[int | None, "longest gap in deliveries; null if there was no outage"]
    resumed: Annotated[bool, "whether deliveries resumed before the load ended"]
    recovered_ns: Annotated[int | None, "from `start_ns` until a whole second had 95 % of the earlier rate"]
    caught_up_ns: Annotated[
        int | None, "from `start_ns` until the backlog was no larger than before, lost messages aside"
    ]
    until_ns: Annotated[int, "until when its messages count: it was undone, recovered and caught up, or the next began"]
    lost: Annotated[int, "messages that never arrived"]
    lost_acknowledged: Annotated[int, "those of them that the system had accepted"]
    never_offered: Annotated[int, "messages shed or not sent; without a schedule, those missing at the earlier rate"]
    redelivered: Annotated[int, "deliveries that the system marked as repeated"]
    duplicated: Annotated[int, "deliveries after the first of a message"]
    reordered: Annotated[int, "first deliveries out of order"]
    p99_before_ns: Percentile
    p99_during_ns: Percentile
    p99_after_ns: Percentile


class SteadyStateRow(Struct, frozen=True):
    """The trend of one metric over the measure phase; null where there are too few samples."""

    metric: Annotated[str, "rate, p99_ns or backlog"]
    state: Annotated[str, "steady, rising, falling or too short"]
    step_s: Annotated[int, "seconds per sample"]
    samples: Annotated[int, "number of samples"]
    median: Annotated[float, "median of the samples"]
    settled_after_s: Annotated[int | None, "end of the initial transient by MSER-5"]
    s: Annotated[int | None, "statistic of the Mann-Kendall test"]
    z: Annotated[float | None, "its standard score"]
    p: Annotated[float | None, "its two-sided p-value"]
    slope: Annotated[float | None, "Theil-Sen slope per second"]
    slope_low: Annotated[float | None, "lower end of its 95 % interval"]
    slope_high: Annotated[float | None, "upper end of its 95 % interval"]
    change: Annotated[float | None, "change over the phase, relative to the median"]


class ErrorRow(Struct, frozen=True):
    """Messages of one sender that were settled with one outcome other than accepted, in one second."""

    second: Second
    sender: Sender
    outcome: Annotated[str, "rejected, released, modified or shed"]
    messages: Annotated[int, "messages with this outcome"]
    share: Annotated[float, "of all messages settled for that sender in that second"]


class JitterRow(Struct, frozen=True):
    """The jitter of one receiver."""

    receiver: Receiver
    statistics: SampleStatistics
    mean_abs_ns: Annotated[float, "mean of the absolute jitter"]
    rfc3550_ns: Annotated[float, "running estimate of RFC 3550 at the end of the run"]


class JitterHistogramRow(Struct, frozen=True):
    """The jitter of one receiver in one bucket."""

    receiver: Receiver
    bucket: Bucket
    count: SampleCount


class JitterSeriesRow(Struct, frozen=True):
    """One delivery of a receiver, in order of arrival."""

    receiver: Receiver
    arrival: Annotated[int, "number of the delivery at this receiver"]
    t_ns: Annotated[int, "when it arrived"]
    jitter_ns: Annotated[int, "its jitter"]


class SpanRow(Struct, frozen=True):
    """The spans of one action in one phase."""

    phase: PhaseName
    action: Annotated[str, "what was timed; `request/tier` for a part of a request"]
    outcome: Annotated[str | None, "one outcome of the action; null for all of them together"]
    statistics: SampleStatistics
    total_ns: Annotated[float, "sum of the durations"]
    share: Annotated[float | None, "of the request's total time, or of the longest action's"]


class SpanHistogramRow(Struct, frozen=True):
    """The durations of one action with one outcome in one second, phase and bucket."""

    second: Second
    phase: PhaseName
    action: Annotated[str, "what was timed"]
    outcome: Annotated[str, "how it ended"]
    bucket: Bucket
    count: SampleCount
    sum_ns: SumNs
    min_ns: MinNs
    max_ns: MaxNs


SENDER_END, RECEIVER_END = "sender", "receiver"


class HopRow(Struct, frozen=True):
    """One step of sampled messages through a network: over a link, or through a node. The steps of a route add up."""

    route: Annotated[str, "the nodes that the messages passed, in order"]
    position: Annotated[Int32, "number of the step on its route; even for links, odd for nodes"]
    start: Annotated[str, "where the step begins: `sender`, or the name of a node"]
    end: Annotated[str, "where it ends: the name of a node, or `receiver`; the same as `start` for a node itself"]
    messages: Annotated[int, "messages that took this route and were sampled"]
    mean_ns: Annotated[float, "mean duration of the step"]
    p50_ns: Percentile
    p90_ns: Percentile
    p99_ns: Percentile
    max_ns: Annotated[int, "longest duration"]


_TRAFFIC, _LATENCY = "crescendo.pipeline.traffic", "crescendo.pipeline.latency"

THROUGHPUT = Table("throughput", ThroughputRow, build=f"{_TRAFFIC}.throughput:build_throughput")
LATENCY_HISTOGRAM = Table(
    "latency_histogram", LatencyHistogramRow, build=f"{_LATENCY}.histogram_table:build_latency_histogram"
)
LATENCY = Table("latency", LatencyRow)
LEDGER = Table("ledger", LedgerRow)
LEDGER_RANGES = Table("ledger_ranges", LedgerRangeRow)
CHECKS = Table("checks", VerdictCheckRow)
READINGS = Table("readings", ReadingRow, build=f"{_TRAFFIC}.readings:build_readings", more_columns=True)
READING_SUMMARY = Table("reading_summary", ReadingSummaryRow, build=f"{_TRAFFIC}.readings:build_reading_summary")
READING_GAPS = Table("reading_gaps", ReadingGapRow)
BACKLOG = Table("backlog", BacklogRow)
LITTLE = Table("little", LittleRow)
OUTAGES = Table("outages", OutageRow)
BURSTS = Table("bursts", BurstRow)
EFFECTS = Table("effects", EffectRow)
RECOVERY = Table("recovery", RecoveryRow)
STEADY_STATE = Table("steady_state", SteadyStateRow)
ERRORS = Table("errors", ErrorRow, build="crescendo.pipeline.ledger.refusals:build_errors")
JITTER = Table("jitter", JitterRow)
JITTER_HISTOGRAM = Table("jitter_histogram", JitterHistogramRow)
JITTER_SERIES = Table("jitter_series", JitterSeriesRow)
SPANS = Table("spans", SpanRow)
SPAN_HISTOGRAM = Table("span_histogram", SpanHistogramRow, build=f"{_TRAFFIC}.spans:build_span_histogram")
HOPS = Table("hops", HopRow, build=f"{_TRAFFIC}.hops:build_hops")

TABLES: tuple[Table[Any], ...] = (
    THROUGHPUT, LATENCY_HISTOGRAM, LATENCY, LEDGER, LEDGER_RANGES, CHECKS, READINGS, READING_SUMMARY, READING_GAPS,
    BACKLOG, LITTLE, OUTAGES, BURSTS, EFFECTS, RECOVERY, STEADY_STATE, ERRORS, JITTER, JITTER_HISTOGRAM, JITTER_SERIES,
    SPANS, SPAN_HISTOGRAM, HOPS,
)  # fmt: skip
