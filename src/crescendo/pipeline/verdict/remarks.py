"""What must a reader of the verdict know besides the checks?

Own delay that is a notable part of a number that is shown, whether or not a check judges it; losses that no check
judges; messages that were still arriving, or arrived at the edge of the measure phase; deliveries that stopped; drift
that undermines no check, or was accepted. A remark changes no outcome.
"""

from collections.abc import Iterable, Iterator, Sequence

from crescendo.model.metrics import LOST, RATE, RESPONSE, TRANSFER, Metric, latency_metric, metric_of
from crescendo.model.own_delay import NOTABLE_SHARE, is_notable
from crescendo.model.units import format_ns
from crescendo.pipeline.verdict.evidence import Evidence
from crescendo.pipeline.verdict.late_arrivals import edge_sentence, undelivered_sentence
from crescendo.pipeline.verdict.steadiness import drifts_of, puts_in_doubt
from crescendo.record.timeline import RunTimeline

HEADLINE = ("p50", "p99")
"""The percentiles that every summary of a run shows."""

MOST_NAMED = 3
"""Numbers in one sentence."""

_LOSSES = {LOST, "lost_unacknowledged"}


def remarks_on(evidence: Evidence, slices: Sequence[Evidence] = ()) -> list[str]:
    checked = [each for each in slices if each.checks]
    of_slices = [sentence for each in checked for sentence in _own_delay(each)]
    return [
        *_source_latency(evidence),
        *_outages(evidence),
        *_drift(evidence),
        *filter(None, map(edge_sentence, (evidence, *checked))),
        *_losses(evidence, checked),
        *_own_delay(evidence),
        *of_slices,
    ]


def _source_latency(evidence: Evidence) -> Iterator[str]:
    """What an imported file says about latency where its messages are unknown. It is quoted, not judged."""
    reported = {} if evidence.aggregates is None else evidence.aggregates.source_latency
    if reported:
        quoted = ", ".join(f"{metric} {value:,.6g}" for metric, value in reported.items())
        yield f"latency as the source measured it, medians of its periods: {quoted}"


def _outages(evidence: Evidence) -> Iterator[str]:
    """One sentence for the times in the measure phase in which deliveries stopped, on whichever subscription."""
    timeline = RunTimeline.of(evidence.manifest.phases)
    measure = timeline.measure
    if measure is None:
        return
    found = [
        outage
        for outage in evidence.outages
        if outage.start_ns < measure.end_ns and outage.start_ns + outage.gap_ns > measure.start_ns
    ]
    if not found:
        return
    longest = max(found, key=lambda outage: outage.gap_ns)
    at = f"{format_ns(longest.gap_ns)} at {timeline.seconds_since_start(longest.start_ns):,.1f} s"
    times = _apart((outage.start_ns, outage.start_ns + outage.gap_ns) for outage in found)
    if times == 1:
        yield f"deliveries stopped once in the measure phase, for {at}"
    else:
        yield f"deliveries stopped {times:,} times in the measure phase, the longest time for {at}"


def _apart(intervals: Iterable[tuple[int, int]]) -> int:
    """How many there are, if those that overlap count once: one pause stops several subscriptions."""
    count, end_ns = 0, -1
    for start_ns, until_ns in sorted(intervals):
        count += start_ns > end_ns
        end_ns = max(end_ns, until_ns)
    return count


def _own_delay(evidence: Evidence) -> Iterator[str]:
    """One sentence for the numbers of which own delay may be a notable part, the largest part first."""
    if evidence.without_own_delay is None:
        return
    notable = [found for metric in _shown(evidence) if (found := _notable_part(evidence, metric)) is not None]
    if notable:
        yield "own delay up to " + ", ".join(part for _, part in sorted(notable, reverse=True)[:MOST_NAMED])
    share = evidence.rate.own_share
    if share is not None and share > NOTABLE_SHARE:
        yield f"own delay up to {share:.0%} of the measure phase: the generator's own time, although unbounded"


def _shown(evidence: Evidence) -> list[Metric]:
    if evidence.run_slice is not None:
        return evidence.metrics
    kind = RESPONSE if RESPONSE in evidence.latency else TRANSFER
    rate = metric_of(RATE)
    shown = dict.fromkeys([rate, *(latency_metric(kind, name) for name in HEADLINE), *evidence.metrics])
    if evidence.unbounded:
        del shown[rate]  # the share of it is named
    return list(shown)


def _notable_part(evidence: Evidence, metric: Metric) -> tuple[float, str] | None:
    """Which share of the number own delay may be, and how that is said."""
    (value, _), (without, _) = evidence.measure(metric), evidence.less_own_delay.measure(metric)
    if not value or without is None or not is_notable(value, without):
        return None
    part = metric.unit.text(abs(value - without))
    name = metric.name if evidence.run_slice is None else f"{evidence.run_slice.name}.{metric.name}"
    return abs(value - without) / abs(value), f"{part} in {name} {metric.unit.text(value)}"


def _losses(evidence: Evidence, checked: Sequence[Evidence]) -> Iterator[str]:
    counts = evidence.counts
    if counts is None:
        return
    judged = max((each.total.lost_unacknowledged for each in checked if each.checks.keys() & _LOSSES), default=0)
    if counts.lost_unacknowledged > judged and not evidence.checks.keys() & _LOSSES:
        yield f"{counts.lost_unacknowledged:,} unacknowledged messages were lost; no check judges them"
    if counts.undelivered:
        yield undelivered_sentence(counts.undelivered, evidence.held)


def _drift(evidence: Evidence) -> Iterator[str]:
    """What drifted, unless a check is in doubt because of it: then that check says so."""
    if evidence.experiment.accept_drift:
        yield from (f"{drift.sentence}; accepted" for drift in drifts_of(evidence))
    else:
        yield from (drift.sentence for drift in drifts_of(evidence) if not puts_in_doubt(evidence, drift))
