"""How much of what was measured could be our own delay?

Puts together, from the counts of the whole run, what the verdict needs to know about own delay: latencies and rate
without it, and which share of the measure phase unbounded senders spent on themselves. Judges nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow.compute as pc
from msgspec import structs

from crescendo.model.metrics import metric_of, split_metric
from crescendo.pipeline import columns as c
from crescendo.pipeline.context import AnalysisContext
from crescendo.pipeline.latency.delay_ranges import own_time_ns
from crescendo.pipeline.latency.without_own_delay import (
    arrivals_moved,
    latencies_without_own_delay,
    own_part_in_seconds,
)
from crescendo.pipeline.ledger.balance import Balance
from crescendo.pipeline.ledger.block_sums import MEASURED, ON_TIME
from crescendo.pipeline.source.per_run import UNKNOWN
from crescendo.pipeline.source.run_slices import run_slices
from crescendo.pipeline.storage.table_store import TableStore
from crescendo.record.schema import OWN_DELAY
from crescendo.record.summary import Latency, Ledger, Rate
from crescendo.record.tables import LATENCY_HISTOGRAM
from crescendo.record.timeline import SECOND_NS

MOST_SHARE = 0.99
"""Of a sender that spent more than this on itself, the rate without own delay is unknown: it is taken to be this."""

STOP_SECONDS = 2
"""A limit stops a run at most this many seconds after the second in which it was exceeded."""


@dataclass(frozen=True)
class OwnDelay:
    """The measure phase without own delay."""

    latency: list[Latency]
    arrivals: float  # deliveries that would have been in the measure phase
    shares: dict[int, float]  # unbounded sender -> the share of the phase in which the system did not hold it back
    stopped_without_ns: float | None  # the value that stopped the run, less own delay


def own_delay_of(
    store: TableStore,
    context: AnalysisContext,
    balance: Balance,
    latency: Sequence[Latency],
    where: pc.Expression | None = None,
) -> OwnDelay | None:
    """None if the peers kept no account. Of a slice, the balance is its own and `where` chooses its counts."""
    if not context.accounts_own_delay:
        return None
    histogram, corrections = store.files(LATENCY_HISTOGRAM.name), store.files(c.CORRECTIONS)
    shares = _own_shares(context, balance)
    arrivals = float(arrivals_moved(corrections, where))
    for (_, sender), counts in balance.received.items():
        if sender != UNKNOWN:
            arrivals += (
                counts[MEASURED] / (1 - min(shares[sender], MOST_SHARE)) if sender in shares else counts[ON_TIME]
            )
    return OwnDelay(
        latency=latencies_without_own_delay(latency, histogram, corrections, where),
        arrivals=arrivals,
        shares=shares,
        stopped_without_ns=_stopped_without_ns(store, context) if where is None else None,
    )


def with_own_delay(rate: Rate, own: OwnDelay | None, total: Ledger, unsent: float) -> Rate:
    """The rate, with what it would have been without own delay; never lower than it was."""
    if own is None or not rate.duration_ns:
        return rate
    fan_out = total.owed / total.sent if total.owed else 1.0
    less = (own.arrivals / fan_out + unsent) / rate.duration_ns * SECOND_NS
    return structs.replace(
        rate, without_own_delay=max(less, rate.sustained), own_share=max(own.shares.values(), default=None)
    )


def _own_shares(context: AnalysisContext, balance: Balance) -> dict[int, float]:
    measure = context.timeline.measure
    if measure is None or measure.end_ns <= measure.start_ns:
        return {}
    measured = {sender: balance.measured[sender] for sender in context.connections.unbounded & balance.measured.keys()}
    times_ns = own_time_ns(context.recording.local_files(OWN_DELAY), measured) if measured else {}
    return {sender: min(ns / (measure.end_ns - measure.start_ns), 1.0) for sender, ns in times_ns.items()}


def _stopped_without_ns(store: TableStore, context: AnalysisContext) -> float | None:
    """What a receiver would have measured in the second that stopped the run."""
    exceeded, measure = context.recording.manifest.exceeded, context.timeline.measure
    of = None if exceeded is None else metric_of(exceeded.metric).latency
    if exceeded is None or of is None or measure is None:
        return None
    last = context.timeline.second_at(measure.end_ns)
    # Messages belong to the second in which they were due.
    first = context.timeline.second_at(measure.end_ns - exceeded.value_ns) - STOP_SECONDS
    histogram, corrections = store.files(LATENCY_HISTOGRAM.name), store.files(c.CORRECTIONS)
    sliced, _ = split_metric(exceeded.metric)
    where = next((each.counts for each in run_slices(context.recording.manifest) if each.name == sliced), None)
    own_ns = own_part_in_seconds(of.kind, of.statistic, histogram, corrections, first, last, where)
    return exceeded.value_ns - own_ns
