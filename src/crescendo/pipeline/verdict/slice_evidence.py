"""What was measured in each group, destination and protocol?

The same evidence as that of the run, restricted to a slice: its ledger, rate, latencies, own delay, outages and trends.
So every rule about the evidence of a run holds for a slice, too. A slice that has every message of the run has its
results. Judges nothing.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

from msgspec import structs

from crescendo.model.metrics import split_metric
from crescendo.pipeline.behaviour.behaviour_tables import Behaviour
from crescendo.pipeline.context import AnalysisContext
from crescendo.pipeline.latency.table import slice_latencies
from crescendo.pipeline.ledger import block_sums
from crescendo.pipeline.ledger.balance import Balance
from crescendo.pipeline.ledger.ledger import Discrepancies, slice_ledger
from crescendo.pipeline.source.run_slices import RunSlice, run_slices
from crescendo.pipeline.storage.table_store import TableStore
from crescendo.pipeline.verdict.evidence import Evidence
from crescendo.pipeline.verdict.own_delay_evidence import own_delay_of, with_own_delay
from crescendo.record.recorded_experiment import offered_by
from crescendo.record.summary import Ledger, Rate, SliceResult
from crescendo.record.tables import LATENCY_HISTOGRAM
from crescendo.record.timeline import SECOND_NS


@dataclass(frozen=True)
class SliceSources:
    """Where the evidence of slices comes from."""

    store: TableStore
    context: AnalysisContext
    balance: Balance
    found: Discrepancies
    behaviour: Behaviour


def slice_evidence(run: Evidence, sources: SliceSources) -> list[Evidence]:
    """Of every slice; none if the recording has no messages."""
    if run.aggregates is not None:
        return []
    judged = {split_metric(name)[0] for name in run.experiment.effective_checks}
    measured: dict[tuple[object, ...], Evidence] = {}
    found = []
    for run_slice in run_slices(run.manifest):
        # A group is often the only one of its destination and protocol: the three differ by name alone.
        same = run_slice.senders, run_slice.by_receiver and run_slice.receivers
        if same not in measured:
            measured[same] = _whole(run, run_slice) if run_slice.is_whole else _measured(run, run_slice, sources)
        evidence = replace(measured[same], run_slice=run_slice)
        if run_slice.name in judged and not run_slice.is_whole:
            used = _subscriptions(run_slice, sources)
            trends = sources.behaviour.trends_of(sources.context, sources.store, run_slice, used)
            evidence = replace(evidence, trends=trends)
        found.append(evidence)
    return found


def slice_result(evidence: Evidence) -> SliceResult:
    run_slice = evidence.run_slice
    if run_slice is None:
        raise ValueError("this is the evidence of a whole run")
    return SliceResult(
        scope=str(run_slice.scope),
        name=run_slice.name,
        rate=evidence.rate,
        latency=list(evidence.latency.values()),
        ledger=structs.replace(evidence.total, scope=str(run_slice.scope)),
        without_own_delay=list((evidence.without_own_delay or {}).values()),
        is_whole=run_slice.is_whole,
        shares_queue=evidence.shares_queue,
        outage_ns=None if evidence.recoveries is None else evidence.longest_outage_ns,
    )


def _whole(run: Evidence, run_slice: RunSlice) -> Evidence:
    return replace(run, run_slice=run_slice, stopped_without_ns=None)


def _measured(run: Evidence, run_slice: RunSlice, sources: SliceSources) -> Evidence:
    store, context = sources.store, sources.context
    total = slice_ledger(sources.balance, sources.found, context.connections, run_slice)
    used = _subscriptions(run_slice, sources)
    mine = sources.balance.only(run_slice.senders, used if run_slice.by_receiver else None)
    named = {context.connections.subscriptions[number] for number in used}
    latency = slice_latencies(store.files(LATENCY_HISTOGRAM.name), run_slice.counts)
    own = own_delay_of(store, context, mine, latency, run_slice.counts)
    rate = _rate(run, run_slice, mine, total)
    fan_out = total.owed / total.sent if total.owed else 1.0
    return replace(
        run,
        run_slice=run_slice,
        total=total,
        rate=with_own_delay(rate, own, total, _unsent(run, run_slice, rate)),
        latency={row.kind: row for row in latency},
        without_own_delay=None if own is None else {row.kind: row for row in own.latency},
        own_shares={} if own is None else own.shares,
        stopped_without_ns=None,
        arrived_at_edge=round(mine.total_received(block_sums.EDGE) / fan_out),
        trends=(),
        outages=sources.behaviour.outages_of(named),
        recoveries=sources.behaviour.recoveries_of(named),
        shares_queue=_shares_queue(run_slice, context),
    )


def _rate(run: Evidence, run_slice: RunSlice, mine: Balance, total: Ledger) -> Rate:
    seconds = run.rate.duration_ns / SECOND_NS
    offered = offered_by(run.manifest, run_slice.senders)
    if not seconds:
        return Rate(offered, 0.0, 0.0, 0, 0.0)
    fan_out = total.owed / total.sent if total.owed else 1.0
    return Rate(
        offered=offered,
        sent=mine.total_sent(block_sums.MEASURED) / seconds,
        sustained=mine.total_received(block_sums.MEASURED) / seconds / fan_out,
        duration_ns=run.rate.duration_ns,
        bytes_per_second=mine.total_received(block_sums.MEASURED_BYTES) / seconds / fan_out,
    )


def _unsent(run: Evidence, run_slice: RunSlice, rate: Rate) -> float:
    """Messages that were due and not sent for reasons of our own: at most what the slice is short of.

    Processes count them for all of their senders together.
    """
    peers = {item.peer for item in run.manifest.connections if item.role == "sender" and item.id in run_slice.senders}
    unsent = sum(peer.statistics.unsent_own or 0.0 for peer in run.manifest.peers if peer.id in peers)
    return min(unsent, max(rate.offered - rate.sent, 0.0) * rate.duration_ns / SECOND_NS)


def _subscriptions(run_slice: RunSlice, sources: SliceSources) -> Collection[int]:
    connections = sources.context.connections
    if run_slice.by_receiver:
        return {connections.subscription_of[receiver] for receiver in run_slice.receivers}
    return {number for sender in run_slice.senders for number in connections.owed_by.get(sender, ())}


def _shares_queue(run_slice: RunSlice, context: AnalysisContext) -> bool:
    """Whether others receive from the same subscriptions, so that nobody knows what the slice was owed."""
    own = {context.connections.subscription_of[receiver] for receiver in run_slice.receivers}
    others = context.connections.subscription_of.items()
    return run_slice.by_receiver and any(
        number in own for receiver, number in others if receiver not in run_slice.receivers
    )
