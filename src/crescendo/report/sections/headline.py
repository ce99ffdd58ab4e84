"""What is at the top of the page?

The verdict in one sentence and a handful of numbers. A run that lost acknowledged messages gets no performance
headline, and the numbers of an invalid run are marked as observations. Judges nothing: the verdict comes from the
pipeline.
"""

from dataclasses import dataclass

from crescendo.model.metrics import split_metric
from crescendo.model.own_delay import is_notable
from crescendo.model.units import format_ns
from crescendo.model.verdict import Check, Outcome
from crescendo.record.summary import Latency, Summary
from crescendo.report import formats

ICONS = {Outcome.PASS: "✓", Outcome.FAIL: "✕", Outcome.INVALID: "?"}
CAUGHT_UP = 1.01
"""More than this share of what was offered can only be left from before."""

_MAX_FAILED_NAMED = 3
"""How many failed checks one sentence names."""


@dataclass(frozen=True)
class HeadlineTile:
    """One headline number."""

    label: str
    value: str
    unit: str = ""
    note: str = ""
    warn: bool = False


@dataclass(frozen=True)
class Headline:
    outcome: str
    title: str
    icon: str
    sentence: str
    caution: str
    remarks: list[str]
    tiles: list[HeadlineTile]


def headline(summary: Summary) -> Headline:
    outcome = summary.verdict.outcome
    lost = summary.total.lost_acknowledged
    if lost:
        caution = (
            f"No performance headline: {formats.plural(lost, 'acknowledged message')} lost. "
            "The speed of a system that loses acknowledged messages is not a result."
        )
    elif outcome is Outcome.INVALID:
        caution = "These numbers were observed, but the evidence does not support claiming them."
    else:
        caution = ""
    performance = [] if lost else [_rate_tile(summary), *_latency_tiles(summary)]
    return Headline(
        outcome=str(outcome),
        title=summary.outcome_text,
        icon=ICONS[outcome],
        sentence=verdict_sentence(summary),
        caution=caution,
        remarks=summary.remarks,
        tiles=[*performance, _integrity_tile(summary)],
    )


def verdict_sentence(summary: Summary) -> str:
    """One sentence for the whole verdict."""
    verdict = summary.verdict
    failed = [check for check in verdict.checks if check.outcome is Outcome.FAIL]
    if verdict.outcome is Outcome.FAIL:
        named = "; ".join(_failed_check(check) for check in failed[:_MAX_FAILED_NAMED])
        more = f"; and {len(failed) - _MAX_FAILED_NAMED} more" if len(failed) > _MAX_FAILED_NAMED else ""
        return f"{len(failed)} of {formats.plural(len(verdict.checks), 'check')} failed: {named}{more}."
    if verdict.outcome is Outcome.INVALID:
        doubts = [*verdict.reasons, *(reason for check in verdict.checks for reason in check.reasons)]
        doubts = list(dict.fromkeys(doubts)) or ["there is nothing to judge"]
        more = f", and {formats.plural(len(doubts) - 1, 'more doubt')}" if len(doubts) > 1 else ""
        return f"Inconclusive: {doubts[0].rstrip('.')}{more}."
    every = "The only check" if len(verdict.checks) == 1 else f"All {len(verdict.checks)} checks"
    return f"{every} passed on sound evidence."


def _failed_check(check: Check) -> str:
    name, value = check.metric.replace("_", " "), formats.metric_value(check.metric, check.value)
    return f"{name} was {value} (bound {formats.bound(check.bound)})"


def metric_name(metric: str) -> str:
    part, plain = split_metric(metric)
    name = plain.replace("_", " ")
    return f"{part}: {name}" if part else name[:1].upper() + name[1:]


def _rate_tile(summary: Summary) -> HeadlineTile:
    rate = summary.rate
    if rate.offered:
        note = f"{formats.percent(rate.sustained / rate.offered)} of {formats.rate(rate.offered)} offered"
        if rate.sustained > CAUGHT_UP * rate.offered:
            note += "; caught up with the warm-up"
    else:
        note = f"unbounded; {formats.rate(rate.sent)} sent"
    return HeadlineTile("Sustained rate", formats.rate(rate.sustained), "msg/s", note)


def judged_latency(summary: Summary) -> Latency | None:
    """Response if there are intended times, otherwise transfer; None if nothing arrived."""
    return summary.latency_of("response") or summary.latency_of("transfer")


def _latency_tiles(summary: Summary) -> list[HeadlineTile]:
    latency = judged_latency(summary)
    if latency is None or not latency.count:
        return [HeadlineTile("Latency", formats.NOTHING, note="nothing was measured")]
    note = {"response": "from the intended time", "transfer": "from the send time"}[latency.kind]
    tiles = []
    for name in ("p50", "p99"):
        value_ns = latency.percentiles_ns.get(name)
        label = f"{latency.kind.capitalize()} {name}"
        if value_ns is None:
            tiles.append(HeadlineTile(label, formats.NOTHING, note="too few samples: 10 must lie beyond it"))
        else:
            value, _, unit = format_ns(value_ns).partition(" ")
            tiles.append(
                HeadlineTile(label, value, unit, note + _own_delay_note(summary, latency.kind, name, value_ns))
            )
    return tiles


def _own_delay_note(summary: Summary, kind: str, percentile: str, value_ns: int) -> str:
    """Named where it is a notable part of the number."""
    less = next((row.percentiles_ns.get(percentile) for row in summary.without_own_delay if row.kind == kind), None)
    if less is None or not is_notable(value_ns, less):
        return ""
    return f"; own delay up to {format_ns(value_ns - less)}"


def _integrity_tile(summary: Summary) -> HeadlineTile:
    total = summary.total
    values = (total.lost, total.duplicated, total.reordered)
    undelivered = f"; {formats.count(total.undelivered)} undelivered" if total.undelivered else ""
    return HeadlineTile(
        "Lost · duplicated · reordered",
        " · ".join(formats.count(value) for value in values),
        note=f"of {formats.plural(total.owed, 'message')} owed{undelivered}",
        warn=any(values),
    )


def generator_sentence(summary: Summary) -> str:
    """How much of what the machine can do the generator needed, and how well its clocks agree."""
    if summary.ceiling_percent is None:
        load = "What this machine can do at most is unknown: crescendo calibrate measures its ceiling"
    else:
        load = f"The load was {summary.ceiling_percent:.0f} % of this machine's calibrated ceiling"
    if summary.clock_bound_ns == 0:
        return f"{load}. All peers read one clock."
    return f"{load}. The peers' clocks are at most {format_ns(summary.clock_bound_ns)} apart (the clock bound)."
