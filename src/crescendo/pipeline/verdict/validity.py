"""Which of the numbers can be trusted?

Conditions that must hold before a number means anything. Each is one rule, which reports what it found and names the
checks that it undermines if it does not hold. Judges the evidence only; `verdicts` applies the bounds.
"""

from collections.abc import Sequence

from crescendo.model.histogram import samples_beyond
from crescendo.model.metrics import (
    CLIENTS_ACCOUNTED,
    CLOCK_BOUND,
    DESTINATION_WAS_EMPTY,
    DRAIN_LONG_ENOUGH,
    ENOUGH_SAMPLES,
    GENERATOR_KEPT_UP,
    RATE,
    RECEIVERS_GOT_COPIES,
    SAMPLES_BEYOND,
    STEADY_STATE,
    Metric,
)
from crescendo.model.units import format_ns
from crescendo.pipeline.source.imported_counts import ImportedCounts
from crescendo.pipeline.verdict.conservation import clients_accounted
from crescendo.pipeline.verdict.destinations import destination_was_empty, receivers_got_copies
from crescendo.pipeline.verdict.evidence import Evidence
from crescendo.pipeline.verdict.generator import generator_kept_up
from crescendo.pipeline.verdict.late_arrivals import drain_was_long_enough
from crescendo.pipeline.verdict.rules import (
    RuleFinding,
    ValidityFinding,
    ValidityRule,
    every_metric,
    failed,
    held,
    rule,
)
from crescendo.pipeline.verdict.steadiness import is_steady
from crescendo.record.manifest import PeerRecord, State, clock_bound_ns

LOAD_WAS_SENT = "load was sent"
_GONE = {"lost", "failed"}


def findings(evidence: Evidence) -> list[ValidityFinding]:
    """The validity list, always in the same order."""
    applied = (each.apply(evidence) for each in RULES)
    return [finding for finding in applied if finding is not None]


def _load_was_sent(evidence: Evidence, metrics: Sequence[Metric]) -> RuleFinding:
    total = evidence.total
    if evidence.aggregates is not None:
        return _load_was_counted(evidence.aggregates, metrics)
    if not total.sent:
        return failed(["nothing was sent"], metrics)
    if not total.delivered:
        # The checks remain valid: a system that delivers nothing may well fail them.
        return failed([f"of {total.sent:,} messages sent, none was delivered"], ())
    return held(f"{total.sent:,} sent, {total.delivered:,} delivered of {total.owed:,} owed")


def _load_was_counted(kept: ImportedCounts, metrics: Sequence[Metric]) -> RuleFinding:
    """Without messages the counts decide; without counts the load is assumed to have been sent."""
    if not kept.has_rates:
        return held(f"no messages were kept, only {' and '.join(kept.tables)}")
    if not kept.sent and not kept.received:
        return failed(["the counts are all zero"], metrics)
    return held(f"no messages were kept; the counts say {kept.sent:,} sent and {kept.received:,} received")


def _recording_complete(evidence: Evidence, metrics: Sequence[Metric]) -> RuleFinding:
    manifest = evidence.manifest
    if manifest.state is State.SEALED:
        return held("sealed")
    reason = f"the recording is {manifest.state.value}" + (f": {manifest.reason}" if manifest.reason else "")
    return failed([reason], metrics)


def _every_part_intact(evidence: Evidence, metrics: Sequence[Metric]) -> RuleFinding:
    faults = [f"{path} {fault}" for path, fault in sorted(evidence.damaged.items())]
    if evidence.unlisted:
        faults.append(f"{evidence.unlisted:,} deliveries belong to receivers that the manifest does not list")
    return failed(faults, metrics) if faults else held("sizes, hashes and footers agree")


def _every_peer_finished(evidence: Evidence, metrics: Sequence[Metric]) -> RuleFinding:
    load = [peer for peer in evidence.manifest.peers if peer.role != "inspector"]
    gone = [_peer_ending(peer) for peer in load if peer.ended in _GONE]
    if gone:
        return failed(gone, metrics)
    # No message passes through an inspector: losing one hides facts about the system, but not about the load.
    inspectors = [peer for peer in evidence.manifest.peers if peer.role == "inspector"]
    lost_inspectors = [_peer_ending(peer) for peer in inspectors if peer.ended in _GONE]
    return held("; ".join([f"{len(load)} of {len(load)}", *lost_inspectors]))


def _peer_ending(peer: PeerRecord) -> str:
    how = "was lost" if peer.ended == "lost" else peer.ended
    return f"{peer.id} {how}" + (f": {peer.reason}" if peer.reason else "")


def _clock_bound(evidence: Evidence, metrics: Sequence[Metric]) -> RuleFinding:
    bound_ns = clock_bound_ns(evidence.manifest.clocks)
    doubts = {}
    for metric in metrics:
        value = evidence.value_of(metric)
        if value is not None and bound_ns > value:
            apart = f"the clocks may be {format_ns(bound_ns)} apart"
            doubts[metric.name] = [f"{apart}, more than {metric.name} {format_ns(value)}"]
    detail = _joined(doubts) or (format_ns(bound_ns) if bound_ns else "one clock")
    return RuleFinding(not doubts, detail, doubts)


def _enough_samples(evidence: Evidence, metrics: Sequence[Metric]) -> RuleFinding:
    doubts = {}
    for metric in metrics:
        if metric.name == RATE and _is_decided_by_one_message(evidence, metric):
            doubts[metric.name] = ["one message more in the measure phase would turn rate into a pass; measure longer"]
        of = metric.latency
        row = None if of is None else evidence.latency.get(of.kind)
        if of is None or row is None or of.percent is None or evidence.value_of(metric) is not None:
            continue
        beyond = samples_beyond(row.count, of.percent)
        doubts[metric.name] = [
            f"{metric.name} has {beyond} samples beyond it of {row.count:,}; {SAMPLES_BEYOND} are needed"
        ]
    detail = _joined(doubts) or f"{SAMPLES_BEYOND} or more beyond every judged percentile"
    return RuleFinding(not doubts, detail, doubts)


def _is_decided_by_one_message(evidence: Evidence, metric: Metric) -> bool:
    """Whether a rate fails that would not with one message more, which may have missed the edge of the phase."""
    value, bound = evidence.value_of(metric), evidence.checks[metric.name]
    if value is None or bound.caps or not evidence.rate.duration_ns:
        return False
    offered, one_more = evidence.rate.offered, value + 1e9 / evidence.rate.duration_ns
    return not bound.holds(value, offered) and bound.holds(one_more, offered)


def _joined(doubts: dict[str, list[str]]) -> str:
    return "; ".join(reason for reasons in doubts.values() for reason in reasons)


RULES = (
    ValidityRule(LOAD_WAS_SENT, _load_was_sent, every_metric),
    ValidityRule("recording complete", _recording_complete, every_metric),
    ValidityRule("every part intact", _every_part_intact, every_metric),
    ValidityRule("every peer finished", _every_peer_finished, every_metric),
    rule(GENERATOR_KEPT_UP, generator_kept_up),
    rule(CLOCK_BOUND, _clock_bound),
    rule(ENOUGH_SAMPLES, _enough_samples),
    rule(DESTINATION_WAS_EMPTY, destination_was_empty),
    rule(STEADY_STATE, is_steady),
    rule(RECEIVERS_GOT_COPIES, receivers_got_copies),
    rule(DRAIN_LONG_ENOUGH, drain_was_long_enough),
    rule(CLIENTS_ACCOUNTED, clients_accounted),
)
"""In the order of the validity list."""
