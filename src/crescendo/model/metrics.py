"""What can be measured, and so be checked?

A metric is one value: its name and unit, where its number comes from, what that needs, and which doubts about the run
undermine it. Experiment files, verdicts, the terminal and the report read this registry, so a new check is one entry
here, or one entry point of `crescendo.checks` in another package. Judges nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache, partial
from typing import Any

from crescendo.model.peer_statistics import PeerStatistics
from crescendo.model.plugins import CHECKS, loaded_plugins
from crescendo.model.run_evidence import CountedMessages, MeasuredLatency, MeasuredRecovery, RunEvidence
from crescendo.model.suggestions import closest
from crescendo.model.units import format_count, format_ns, format_rate

LATENCY_KINDS = RESPONSE, TRANSFER, SETTLE = "response", "transfer", "settle"
PERCENTILES = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0, "p99.9": 99.9, "p99.99": 99.99}
SAMPLES_BEYOND = 10
"""A percentile needs at least this many samples beyond it."""

RATE = "rate"
LOST, LOST_ACKNOWLEDGED, DUPLICATED = "lost", "lost_acknowledged", "duplicated"
CONSERVATION = "conservation"
"""How often clients that account for every message found one lost, duplicated or mixed up."""

GENERATOR_KEPT_UP = "generator kept up"
CLOCK_BOUND = "clock bound"
ENOUGH_SAMPLES = "enough samples"
STEADY_STATE = "steady state"
DRAIN_LONG_ENOUGH = "drain was long enough"
DESTINATION_WAS_EMPTY = "destination was empty"
RECEIVERS_GOT_COPIES = "every receiver of a topic got its own copy"
CLIENTS_ACCOUNTED = "clients accounted for their messages"
"""Validity rules that undermine some metrics. The other rules undermine every check."""


@dataclass(frozen=True)
class Unit:
    """The unit of a metric: the bounds that fit it, and how its values are written."""

    fits: Callable[[str], bool]
    """Whether a bound with this unit fits: empty for a plain number, `msg/s`, `of offered`, or a unit of time."""

    wanted: str
    """What a bound should be instead, with an example."""

    text: Callable[[float], str]
    """A value in one line of the terminal."""

    report_text: Callable[[float], str]
    """A value in the report, which has room for more digits."""


COUNT = Unit(lambda unit: not unit, "a number without a unit, such as '<= 5'", format_count, format_count)
MESSAGES_PER_SECOND = Unit(
    lambda unit: unit in {"", "msg/s", "of offered"},
    "messages per second, such as '>= 5000'",
    lambda value: f"{format_count(value)} msg/s",
    lambda value: f"{format_rate(value)} msg/s",
)
DURATION = Unit(
    lambda unit: unit not in {"", "msg/s", "of offered"},
    "a duration with its unit, such as '<= 200ms'",
    format_ns,
    format_ns,
)


class Need(Enum):
    """What must have been recorded before a metric can have a value."""

    NOTHING = auto()
    MESSAGES = auto()  # each one, or clients that account for theirs
    RATES = auto()  # messages, or counts per second
    LATENCIES = auto()  # those of the metric's kind
    BEHAVIOUR = auto()  # over time
    FAULTS = auto()  # at least one


@dataclass(frozen=True)
class LatencyStatistic:
    """Which statistic of which latency."""

    kind: str
    statistic: str

    @property
    def percent(self) -> float | None:
        """None for min, max and mean."""
        return PERCENTILES.get(self.statistic)


@dataclass(frozen=True)
class Metric:
    """One metric, in base units: nanoseconds, messages, or messages per second."""

    name: str
    unit: Unit
    value: Callable[[RunEvidence], float | None]
    """The measured value, or None if there is none."""

    additive: bool = False
    """Counts observed events: missing evidence can only hide more of them, so exceeding a bound is proof."""

    undermined_by: frozenset[str] = frozenset()
    """Names of the validity rules that make its value doubtful, besides those that undermine every check."""

    needs: Need = Need.NOTHING
    of_clients: bool = False
    """Whether only clients measure it."""

    of_processes: bool = False
    """Whether processes measure it for all of their groups together, so that nobody knows it of a slice."""

    table: str = ""
    """The published table that its value is read from, if it is; tables are those of the whole run."""

    latency: LatencyStatistic | None = None
    in_second: Callable[[PeerStatistics], float | None] | None = None
    """Its value in the last second, as receivers report it; a metric with this may stop a run."""

    @property
    def knows_no_slices(self) -> bool:
        return self.of_processes or bool(self.table)


def table_metric(
    name: str,
    unit: Unit,
    table: str,
    value: Callable[[Sequence[Any]], float | None],
    *,
    additive: bool = False,
    undermined_by: frozenset[str] = frozenset(),
    needs: Need = Need.NOTHING,
) -> Metric:
    """A number of a published table of the run: `value` takes all of its rows, and may return None if there is none."""

    def of_run(evidence: RunEvidence) -> float | None:
        return value(evidence.rows(table))

    return Metric(name, unit, of_run, additive=additive, undermined_by=undermined_by, needs=needs, table=table)


def _counted(
    name: str,
    count: Callable[[CountedMessages], int],
    *,
    additive: bool = False,
    undermined_by: frozenset[str] = frozenset(),
) -> Metric:
    """A count of the ledger."""

    def value(evidence: RunEvidence) -> float | None:
        return None if evidence.counts is None else float(count(evidence.counts))

    return Metric(name, COUNT, value, additive=additive, undermined_by=undermined_by, needs=Need.MESSAGES)


def _after_fault(name: str, time_ns: Callable[[MeasuredRecovery], int | None], *, of_processes: bool = False) -> Metric:
    """A time after a fault, the longest of all faults. A fault without an outage has none."""

    def value(evidence: RunEvidence) -> float | None:
        if evidence.recoveries is None:
            return None
        times_ns = []
        for number, recovery in enumerate(evidence.recoveries):
            if recovery.outage_ns is None:
                continue
            measured = time_ns(recovery)
            # It did not happen while it could be seen, so it took at least that long.
            times_ns.append(evidence.load_ended_ns[number] if measured is None else measured)
        return float(max(times_ns, default=0))

    return Metric(name, DURATION, value, needs=Need.FAULTS, of_processes=of_processes)


_OTHER_STATISTICS: dict[str, Callable[[MeasuredLatency], float]] = {
    "min": lambda latency: float(latency.min_ns),
    "max": lambda latency: float(latency.max_ns),
    "mean": lambda latency: latency.mean_ns,
}


def _latency_value(of: LatencyStatistic, evidence: RunEvidence) -> float | None:
    found = evidence.latency.get(of.kind)
    if found is None:
        return None
    if of.percent is not None:
        return found.percentiles_ns[of.statistic]
    return _OTHER_STATISTICS[of.statistic](found)


def _latency(kind: str, statistic: str, in_second: Callable[[PeerStatistics], float | None] | None = None) -> Metric:
    """One of the family KIND_STATISTIC."""
    of = LatencyStatistic(kind, statistic)
    # Both ends of a settlement are read from the same clock.
    clocks = set() if kind == SETTLE else {CLOCK_BOUND}
    samples = set() if of.percent is None else {ENOUGH_SAMPLES}
    # The fastest and the slowest message happened; all other statistics claim to describe the next run too.
    lasting = set() if statistic in {"min", "max"} else {STEADY_STATE}
    return Metric(
        f"{kind}_{statistic}",
        DURATION,
        partial(_latency_value, of),
        undermined_by=frozenset({GENERATOR_KEPT_UP, DESTINATION_WAS_EMPTY} | clocks | samples | lasting),
        needs=Need.LATENCIES,
        latency=of,
        in_second=in_second,
    )


_IN_SECOND: dict[tuple[str, str], Callable[[PeerStatistics], float | None]] = {
    (RESPONSE, "p90"): lambda receiver: receiver.second_response_p90_ns,
    (RESPONSE, "max"): lambda receiver: receiver.second_response_max_ns,
}
_BY_ACCOUNT = frozenset({CLIENTS_ACCOUNTED})
_BY_OTHERS = frozenset({DESTINATION_WAS_EMPTY, RECEIVERS_GOT_COPIES})
_LOSSES = _BY_ACCOUNT | _BY_OTHERS | {DRAIN_LONG_ENOUGH}

_SINGLE_METRICS = (
    Metric(
        RATE,
        MESSAGES_PER_SECOND,
        lambda evidence: evidence.rate.sustained if evidence.rate.duration_ns else None,
        undermined_by=_BY_OTHERS | {GENERATOR_KEPT_UP, STEADY_STATE, ENOUGH_SAMPLES},
        needs=Need.RATES,
    ),
    Metric(
        CONSERVATION,
        COUNT,
        lambda evidence: evidence.violations,
        additive=True,
        undermined_by=_BY_ACCOUNT,
        needs=Need.MESSAGES,
        of_clients=True,
    ),
    _counted(LOST, lambda counts: counts.lost, undermined_by=_LOSSES),
    _counted(LOST_ACKNOWLEDGED, lambda counts: counts.lost_acknowledged, undermined_by=_LOSSES),
    _counted("lost_unacknowledged", lambda counts: counts.lost_unacknowledged, undermined_by=_LOSSES),
    _counted(DUPLICATED, lambda counts: counts.duplicated, additive=True),
    _counted("reordered", lambda counts: counts.reordered, additive=True),
    _counted("corrupt", lambda counts: counts.corrupt, additive=True),
    _counted("stray", lambda counts: counts.stray, additive=True),
    _counted("unrecorded", lambda counts: counts.unrecorded, additive=True),
    _counted("undelivered", lambda counts: counts.undelivered),
    Metric(
        "outage",
        DURATION,
        lambda evidence: None if evidence.recoveries is None else float(evidence.longest_outage_ns),
        needs=Need.BEHAVIOUR,
    ),
    table_metric(
        "backlog_peak",
        COUNT,
        "backlog",
        lambda rows: max((float(row.peak) for row in rows), default=None),
        undermined_by=frozenset({DESTINATION_WAS_EMPTY}),
        needs=Need.BEHAVIOUR,
    ),
    _after_fault("detection_time", lambda recovery: recovery.detected_ns or 0, of_processes=True),
    _after_fault("recovery_time", lambda recovery: recovery.recovered_ns),
    _after_fault("catch_up_time", lambda recovery: recovery.caught_up_ns),
    Metric(
        "never_offered",
        COUNT,
        lambda evidence: (
            None if evidence.recoveries is None else float(sum(each.never_offered for each in evidence.recoveries))
        ),
        additive=True,
        needs=Need.FAULTS,
        of_processes=True,
    ),
)
_LATENCY_METRICS = tuple(
    _latency(kind, statistic, _IN_SECOND.get((kind, statistic)))
    for kind in LATENCY_KINDS
    for statistic in (*PERCENTILES, *_OTHER_STATISTICS)
)

METRICS = {metric.name: metric for metric in (*_SINGLE_METRICS, *_LATENCY_METRICS)}
"""Our own, in the order in which messages and lists name them."""

_BY_STATISTIC = {metric.latency: metric for metric in _LATENCY_METRICS}

STOP_METRICS = tuple(metric.name for metric in METRICS.values() if metric.in_second is not None)
"""Metrics that may stop a run."""


def exceeded_in_second(
    limits: Mapping[str, int], measured: PeerStatistics, by_slice: Mapping[str, PeerStatistics]
) -> tuple[str, int, int] | None:
    """The first metric of a receiver's second that exceeds its limit: name, value and limit in nanoseconds."""
    for name, limit_ns in limits.items():
        in_second, (slice_name, _) = metric_of(name).in_second, split_metric(name)
        found = by_slice.get(slice_name) if slice_name else measured
        value_ns = None if in_second is None or found is None else in_second(found)
        if value_ns is not None and value_ns > limit_ns:
            return name, int(value_ns), int(limit_ns)
    return None


def find_metric(name: str) -> Metric | None:
    """The metric of this name, ours or another package's; None if there is none. A slice may come before it."""
    return _plain_metric(split_metric(name)[1])


def split_metric(name: str) -> tuple[str, str]:
    """The name of a slice, empty for the whole run, and that of a metric: `orders.response_p99`.

    Names of destinations may contain dots, and so do those of percentiles: what follows the slice must be a metric.
    """
    at = name.find(".")
    while at >= 0 and _plain_metric(name) is None:
        if _plain_metric(name[at + 1 :]) is not None:
            return name[:at], name[at + 1 :]
        at = name.find(".", at + 1)
    return "", name


def latency_metric(kind: str, statistic: str) -> Metric:
    """The metric of one statistic of one latency."""
    return _BY_STATISTIC[LatencyStatistic(kind, statistic)]


def _plain_metric(name: str) -> Metric | None:
    return METRICS.get(name) or plugin_metrics().get(name)


def metric_of(name: str) -> Metric:
    """The metric of this name, whatever the slice. Raises ValueError, which lists the known ones, if there is none."""
    metric = find_metric(name)
    if metric is None:
        single = ", ".join([each.name for each in _SINGLE_METRICS] + list(plugin_metrics()))
        close = closest(name, [*METRICS, *plugin_metrics()])
        meant = "" if close is None else f"did you mean {close!r}? "
        raise ValueError(
            f"no metric is called {name!r}; {meant}use {single}, or KIND_STATISTIC such as response_p99 "
            f"(kinds {', '.join(LATENCY_KINDS)}; statistics {', '.join((*PERCENTILES, *_OTHER_STATISTICS))})"
        )
    return metric


@cache
def plugin_metrics() -> dict[str, Metric]:
    """The metrics that other packages offer. A value that is not a metric of its name is reported and skipped."""
    return dict(loaded_plugins(CHECKS, Metric))


def format_value(name: str, value: float) -> str:
    """A value in one line of the terminal. A metric whose package is gone is written as a plain number."""
    metric = find_metric(name)
    return f"{value:,.6g}" if metric is None else metric.unit.text(value)


def format_report_value(name: str, value: float) -> str:
    """A value in the report."""
    metric = find_metric(name)
    return f"{value:,.6g}" if metric is None else metric.unit.report_text(value)


def metric_position(name: str) -> int:
    """Where a list that is sorted by metric puts this one: ours first."""
    known = [*METRICS, *plugin_metrics()]
    return known.index(metric_of(name).name)
