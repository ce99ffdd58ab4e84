"""Which of the numbers can be trusted?

Seven conditions must hold before a number means anything. Each is tested separately, reports what it found, and names
the checks that it undermines if it does not hold. Judges the evidence only; `verdicts` applies the bounds.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from crescendo.model.histogram import samples_beyond
from crescendo.model.mlmq_clients import CLIENT
from crescendo.model.units import format_ns
from crescendo.model.verdict import PERCENTILES, SAMPLES_BEYOND
from crescendo.pipeline.latency.samples import RESPONSE, SETTLE
from crescendo.pipeline.source.imported_counts import ImportedCounts
from crescendo.pipeline.verdict.evidence import RATE, Evidence, latency_metric
from crescendo.record.manifest import PeerRecord, State
from crescendo.record.summary import Validity

BLOCKED_SHARE = 0.05
LATENESS_SHARE = 0.10
BUSY_SHARE = 0.90
_GONE = {"lost", "failed"}


@dataclass(frozen=True)
class ValidityFinding:
    """One item of the validity list, and the reasons for each check that it undermines."""

    validity: Validity
    doubts: dict[str, list[str]] = field(default_factory=dict)


def findings(evidence: Evidence) -> list[ValidityFinding]:
    """The validity list, always in the same order."""
    return [
        _load_was_sent(evidence),
        _recording_complete(evidence),
        _every_part_intact(evidence),
        _every_peer_finished(evidence),
        _generator_kept_up(evidence),
        _clock_bound(evidence),
        _enough_samples(evidence),
    ]


def _load_was_sent(evidence: Evidence) -> ValidityFinding:
    name, total = "load was sent", evidence.total
    if evidence.aggregates is not None:
        return _load_was_counted(name, evidence, evidence.aggregates)
    if not total.sent:
        return _failed(name, ["nothing was sent"], evidence.checks)
    if not total.delivered:
        # The checks remain valid: a system that delivers nothing may well fail them.
        return _failed(name, [f"of {total.sent:,} messages sent, none was delivered"], ())
    return _held(name, f"{total.sent:,} sent, {total.delivered:,} delivered of {total.owed:,} owed")


def _load_was_counted(name: str, evidence: Evidence, kept: ImportedCounts) -> ValidityFinding:
    """Without messages the counts decide; without counts the load is assumed to have been sent."""
    if not kept.has_rates:
        return _held(name, f"no messages were kept, only {' and '.join(kept.tables)}")
    if not kept.sent and not kept.received:
        return _failed(name, ["the counts are all zero"], evidence.checks)
    return _held(name, f"no messages were kept; the counts say {kept.sent:,} sent and {kept.received:,} received")


def _recording_complete(evidence: Evidence) -> ValidityFinding:
    name, manifest = "recording complete", evidence.manifest
    if manifest.state is State.SEALED:
        return _held(name, "sealed")
    reason = f"the recording is {manifest.state.value}" + (f": {manifest.reason}" if manifest.reason else "")
    return _failed(name, [reason], evidence.checks)


def _every_part_intact(evidence: Evidence) -> ValidityFinding:
    name = "every part intact"
    faults = [f"{path} {fault}" for path, fault in sorted(evidence.damaged.items())]
    if evidence.unlisted:
        faults.append(f"{evidence.unlisted:,} deliveries belong to receivers that the manifest does not list")
    return _failed(name, faults, evidence.checks) if faults else _held(name, "sizes, hashes and footers agree")


def _every_peer_finished(evidence: Evidence) -> ValidityFinding:
    name = "every peer finished"
    load = [peer for peer in evidence.manifest.peers if peer.role != "inspector"]
    gone = [_peer_ending(peer) for peer in load if peer.ended in _GONE]
    if gone:
        return _failed(name, gone, evidence.checks)
    # No message passes through an inspector: losing one hides facts about the system, but not about the load.
    inspectors = [peer for peer in evidence.manifest.peers if peer.role == "inspector"]
    lost_inspectors = [_peer_ending(peer) for peer in inspectors if peer.ended in _GONE]
    return _held(name, "; ".join([f"{len(load)} of {len(load)}", *lost_inspectors]))


def _peer_ending(peer: PeerRecord) -> str:
    how = "was lost" if peer.ended == "lost" else peer.ended
    return f"{peer.id} {how}" + (f": {peer.reason}" if peer.reason else "")


def _generator_kept_up(evidence: Evidence) -> ValidityFinding:
    senders = [peer for peer in evidence.manifest.peers if peer.role == "sender"]
    receivers = [peer for peer in evidence.manifest.peers if peer.role in {"receiver", CLIENT}]
    latencies = [metric for metric in evidence.checks if latency_metric(metric)[0]]
    failures: list[str] = []
    tolerated: list[str] = []
    unknown: list[str] = []
    doubts: dict[str, list[str]] = {}

    def doubt(sentence: str, metrics: Iterable[str]) -> None:
        failures.append(sentence)
        for metric in metrics:
            doubts.setdefault(metric, []).append(sentence)

    def suspect(sentence: str, metrics: Iterable[str]) -> None:
        """A doubt if the generator may have decided the outcome, a remark if the bound holds anyway."""
        undermined = [metric for metric in metrics if not _holds_despite_generator(evidence, metric)]
        if undermined:
            doubt(sentence, undermined)
        else:
            tolerated.append(f"{sentence}, but the bound holds anyway")

    if evidence.unbounded:
        free = {peer: share for peer, share in _reported(senders, "blocked_share", unknown) if share < BLOCKED_SHARE}
        if free:
            times = ", ".join(f"{peer} {share:.1%}" for peer, share in free.items())
            doubt(
                f"the sustained rate is the generator's, not the system's: blocked under {BLOCKED_SHARE:.0%} of the "
                f"time ({times}) although unbounded",
                [RATE] if RATE in evidence.checks else [],
            )
    else:
        late_ns = max((value for _, value in _reported(senders, "lateness_p99_ns", unknown)), default=0.0)
        for metric in latencies:
            value = evidence.value_of(metric)
            if latency_metric(metric)[1] in PERCENTILES and value is not None and late_ns > LATENESS_SHARE * value:
                sentence = f"sender lateness p99 {format_ns(late_ns)} is over {LATENESS_SHARE:.0%} of {metric} "
                suspect(sentence + format_ns(value), [metric])
    busy = {peer: share for peer, share in _reported(receivers, "busy_share", unknown) if share > BUSY_SHARE}
    if busy:
        times = ", ".join(f"{peer} {share:.0%}" for peer, share in busy.items())
        suspect(f"receivers were busy over {BUSY_SHARE:.0%} of the time ({times})", [*latencies, RATE])
    unknowns = [f"unknown: {', '.join(unknown)}"] if unknown else []
    detail = "; ".join(failures + tolerated + unknowns) or "below every limit"
    return ValidityFinding(Validity("generator kept up", not failures, detail), doubts)


def _holds_despite_generator(evidence: Evidence, metric: str) -> bool:
    """Whether a bound holds although the generator was slow.

    A slow generator only makes responses longer and rates lower, so a bound that holds with it holds without it. This
    is not true of transfer and settle, which start when a message was actually sent: a late sender may have reduced the
    load. Nor is it true of an unbounded rate, which claims to be the system's limit, whatever the bound says.
    """
    bound, value = evidence.checks.get(metric), evidence.value_of(metric)
    if bound is None or value is None:
        return False
    if metric == RATE:
        return not evidence.unbounded and not bound.caps and bound.holds(value, evidence.rate.offered)
    return latency_metric(metric)[0] == RESPONSE and bound.caps and bound.holds(value, evidence.rate.offered)


def _clock_bound(evidence: Evidence) -> ValidityFinding:
    bound_ns = max((clock.bound_ns for clock in evidence.manifest.clocks), default=0)
    doubts = {}
    for metric in evidence.checks:
        kind, _ = latency_metric(metric)
        value = evidence.value_of(metric)
        # Both ends of a settlement are read from the same clock.
        if kind and kind != SETTLE and value is not None and bound_ns > value:
            doubts[metric] = [f"the clocks may be {format_ns(bound_ns)} apart, more than {metric} {format_ns(value)}"]
    detail = _joined(doubts) or (format_ns(bound_ns) if bound_ns else "one clock")
    return ValidityFinding(Validity("clock bound", not doubts, detail), doubts)


def _enough_samples(evidence: Evidence) -> ValidityFinding:
    doubts = {}
    for metric in evidence.checks:
        kind, statistic = latency_metric(metric)
        row = evidence.latency.get(kind)
        if row is not None and statistic in PERCENTILES and row.percentiles_ns[statistic] is None:
            beyond = samples_beyond(row.count, PERCENTILES[statistic])
            doubts[metric] = [f"{metric} has {beyond} samples beyond it of {row.count:,}; {SAMPLES_BEYOND} are needed"]
    detail = _joined(doubts) or f"{SAMPLES_BEYOND} or more beyond every judged percentile"
    return ValidityFinding(Validity("enough samples", not doubts, detail), doubts)


def _reported(peers: list[PeerRecord], key: str, unknown: list[str]) -> list[tuple[str, float]]:
    unknown += [f"{key} of {peer.id}" for peer in peers if key not in peer.statistics]
    return [(peer.id, peer.statistics[key]) for peer in peers if key in peer.statistics]


def _held(name: str, detail: str) -> ValidityFinding:
    return ValidityFinding(Validity(name, True, detail))


def _failed(name: str, reasons: list[str], undermined: Iterable[str]) -> ValidityFinding:
    return ValidityFinding(Validity(name, False, "; ".join(reasons)), {metric: reasons for metric in undermined})


def _joined(doubts: dict[str, list[str]]) -> str:
    return "; ".join(reason for reasons in doubts.values() for reason in reasons)
