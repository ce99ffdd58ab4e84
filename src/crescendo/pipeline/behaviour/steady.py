"""Was the system in a steady state while it was measured?

Examines rate, p99 and backlog of the measure phase per second, or in longer steps if there would be more than 600. A
series drifts if its trend is significant and moves it by more than 5 % of its median over the phase. Both are required,
because in a long run every trend is significant. Percentiles of longer steps come from merged counts. Judges the
series, not the run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from crescendo.model.arrays import Floats
from crescendo.model.metrics import RESPONSE, TRANSFER
from crescendo.pipeline.behaviour.backlog import SubscriptionSeries
from crescendo.pipeline.behaviour.ticks import Ticks
from crescendo.pipeline.behaviour.trends import Trend, mser5, trend
from crescendo.pipeline.columns import BUCKET, KIND, SECOND
from crescendo.pipeline.latency.group_sums import group_sums
from crescendo.pipeline.latency.quantiles import group_statistics
from crescendo.pipeline.source.moments import Timeline
from crescendo.record.table_types import column_name
from crescendo.record.tables import SampleStatistics, SteadyStateRow
from crescendo.record.timeline import SECOND_NS

MAX_STEPS, PARTS = 600, 10
SIGNIFICANT = 0.05
DRIFT_SHARE = 0.05

_STEP = "step"

RATE, P99, BACKLOG = "rate", "p99_ns", "backlog"
STEADY, RISING, FALLING, TOO_SHORT = "steady", "rising", "falling", "too short"


@dataclass(frozen=True)
class PhaseTrend:
    """By how much one metric changed over the measure phase, and by how much at least: the near end of the interval."""

    metric: str
    seconds: int
    median: float
    p: float
    change: float
    least_change: float


@dataclass(frozen=True)
class MeasuredSeries:
    """One metric over the measure phase: a value for each step."""

    metric: str
    values: Floats
    step_s: int

    @property
    def row(self) -> SteadyStateRow:
        return steady_row(self.metric, self.values, self.step_s)

    @property
    def phase_trend(self) -> PhaseTrend | None:
        """The trend over ten equal parts of the phase; None if it is too short.

        Consecutive seconds depend on each other, which the test takes for a trend; averages over longer parts less so.
        """
        parts = min(self.values.size, PARTS)
        total = np.concatenate([[0.0], np.cumsum(self.values)])
        edges = np.linspace(0, self.values.size, parts + 1)
        found = trend(np.diff(np.interp(edges, np.arange(total.size), total)) * parts / self.values.size)
        if found is None:
            return None
        near = max(found.slope_low, 0.0) if found.slope > 0 else min(found.slope_high, 0.0)
        return PhaseTrend(
            metric=self.metric,
            seconds=self.values.size * self.step_s,
            median=float(np.median(self.values)),
            p=found.p,
            change=found.slope * (parts - 1),
            least_change=near * (parts - 1),
        )


def measured_series(
    streams: Sequence[SubscriptionSeries],
    ticks: Ticks,
    histogram: list[Path],
    timeline: Timeline,
    where: pc.Expression | None = None,
) -> list[MeasuredSeries]:
    """The series of rate, p99 and backlog; without p99 if a step has too few samples for it.

    `where` chooses the latencies of a slice; `streams` are then those that it uses.
    """
    seconds = timeline.whole_seconds
    if not seconds or not streams:
        return []
    first = seconds.start
    step_s = max(-(-len(seconds) // MAX_STEPS), 1, ticks.length_ns // SECOND_NS)
    steps = len(seconds) // step_s
    if steps < 1:
        return []
    edges = first + step_s * np.arange(steps + 1)
    percentile = _p99(histogram, int(edges[0]), step_s, int(steps), where)
    return [
        MeasuredSeries(RATE, _deliveries_between(streams, ticks, edges) / step_s, step_s),
        *([] if percentile is None else [MeasuredSeries(P99, percentile, step_s)]),
        MeasuredSeries(BACKLOG, _backlog_at(streams, ticks, edges[1:]), step_s),
    ]


def steady_row(metric: str, values: Floats, step_s: int) -> SteadyStateRow:
    """Slopes are per second; `change` is the relative change over the phase."""
    found, cut = trend(values), mser5(values)
    median, length_s = float(np.median(values)), values.size * step_s
    slope = None if found is None else found.slope / step_s
    # If the median is zero, relate the change to one message.
    change = None if slope is None else slope * length_s / max(abs(median), 1.0)
    return SteadyStateRow(
        metric=metric,
        state=TOO_SHORT if found is None or change is None else _state(found, change),
        step_s=step_s,
        samples=values.size,
        median=median,
        settled_after_s=None if cut is None else cut * step_s,
        s=None if found is None else found.s,
        z=None if found is None else found.z,
        p=None if found is None else found.p,
        slope=slope,
        slope_low=None if found is None else found.slope_low / step_s,
        slope_high=None if found is None else found.slope_high / step_s,
        change=change,
    )


def _state(found: Trend, change: float) -> str:
    if found.p >= SIGNIFICANT or abs(change) <= DRIFT_SHARE:
        return STEADY
    return RISING if change > 0 else FALLING


def _deliveries_between(streams: Sequence[SubscriptionSeries], ticks: Ticks, edges: np.ndarray) -> Floats:
    """Deliveries between consecutive edges, which are in seconds."""
    total = np.zeros(edges.size - 1)
    for stream in streams:
        cumulative = np.concatenate([[0], np.cumsum(stream.received)])
        total += np.diff(cumulative[_elapsed_ticks(stream, ticks, edges)])
    return total


def _backlog_at(streams: Sequence[SubscriptionSeries], ticks: Ticks, ends: np.ndarray) -> Floats:
    total = np.zeros(ends.size)
    for stream in streams:
        total += np.concatenate([[0], stream.backlog])[_elapsed_ticks(stream, ticks, ends)]
    return total


def _elapsed_ticks(stream: SubscriptionSeries, ticks: Ticks, seconds: np.ndarray) -> np.ndarray:
    """How many ticks of a stream have elapsed at each of these seconds."""
    elapsed: np.ndarray = np.clip(seconds * SECOND_NS // ticks.length_ns - stream.first_tick, 0, stream.sent.size)
    return elapsed


def _p99(histogram: list[Path], first: int, step_s: int, steps: int, where: pc.Expression | None) -> Floats | None:
    """p99 of response, or of transfer without a schedule; None if any step has too few samples."""
    for kind in (RESPONSE, TRANSFER):
        within = (pc.field(SECOND) >= first) & (pc.field(SECOND) < first + step_s * steps)
        within = within if where is None else within & where
        step = pc.divide(pc.field(SECOND) - first, step_s)
        counts = group_sums(histogram, [_STEP, BUCKET], where=within & (pc.field(KIND) == kind), derived={_STEP: step})
        if counts.num_rows:
            values = group_statistics(counts, [_STEP])[column_name(SampleStatistics.p99)].combine_chunks()
            return None if len(values) < steps or values.null_count else values.to_numpy().astype(np.float64)
    return None
