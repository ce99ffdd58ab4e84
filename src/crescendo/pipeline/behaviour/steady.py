"""Was the system in a steady state while it was measured?

Examines rate, p99 and backlog of the measure phase per second, or in longer steps if there would be more than 600. A
series drifts if its trend is significant and moves it by more than 5 % of its median over the phase. Both are required,
because in a long run every trend is significant. Percentiles of longer steps come from merged counts. Judges the
series, not the run.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crescendo.model.arrays import Floats
from crescendo.pipeline.behaviour.backlog import SubscriptionSeries
from crescendo.pipeline.behaviour.ticks import Ticks
from crescendo.pipeline.behaviour.trends import Trend, mser5, trend
from crescendo.pipeline.columns import BUCKET, KIND, METRIC, SECOND
from crescendo.pipeline.latency.group_sums import group_sums
from crescendo.pipeline.latency.quantiles import group_statistics
from crescendo.pipeline.latency.samples import RESPONSE, TRANSFER
from crescendo.pipeline.source.moments import Timeline
from crescendo.record.timeline import SECOND_NS

MAX_STEPS = 600
SIGNIFICANT = 0.05
DRIFT_SHARE = 0.05

_STEP = "step"

RATE, P99, BACKLOG = "rate", "p99_ns", "backlog"
STEADY, RISING, FALLING, TOO_SHORT = "steady", "rising", "falling", "too short"

STEADY_SCHEMA = pa.schema(
    [
        (METRIC, pa.string()), ("state", pa.string()), ("step_s", pa.int64()), ("samples", pa.int64()),
        ("median", pa.float64()), ("settled_after_s", pa.int64()), ("s", pa.int64()), ("z", pa.float64()),
        ("p", pa.float64()), ("slope", pa.float64()), ("slope_low", pa.float64()), ("slope_high", pa.float64()),
        ("change", pa.float64()),
    ]
)  # fmt: skip


def steady_rows(
    streams: list[SubscriptionSeries], ticks: Ticks, histogram: list[Path], timeline: Timeline
) -> list[dict[str, Any]]:
    """One row per measured metric. Slopes are per second; `change` is the relative change over the phase."""
    seconds = timeline.whole_seconds
    if not seconds or not streams:
        return []
    first = seconds.start
    step_s = max(-(-len(seconds) // MAX_STEPS), 1, ticks.length_ns // SECOND_NS)
    steps = len(seconds) // step_s
    if steps < 1:
        return []
    edges = first + step_s * np.arange(steps + 1)
    rows = [
        _row(RATE, _deliveries_between(streams, ticks, edges) / step_s, step_s),
        _row(BACKLOG, _backlog_at(streams, ticks, edges[1:]), step_s),
    ]
    percentile = _p99(histogram, int(edges[0]), step_s, int(steps))
    return [rows[0], *([] if percentile is None else [_row(P99, percentile, step_s)]), rows[1]]


def _row(metric: str, values: Floats, step_s: int) -> dict[str, Any]:
    found, cut = trend(values), mser5(values)
    median, length_s = float(np.median(values)), values.size * step_s
    row: dict[str, Any] = {METRIC: metric, "step_s": step_s, "samples": values.size, "median": median}
    row["settled_after_s"] = None if cut is None else cut * step_s
    if found is None:
        return row | {"state": TOO_SHORT}
    slope = {name: getattr(found, name) / step_s for name in ("slope", "slope_low", "slope_high")}
    # If the median is zero, relate the change to one message.
    change = slope["slope"] * length_s / max(abs(median), 1.0)
    return row | slope | {"s": found.s, "z": found.z, "p": found.p, "change": change, "state": _state(found, change)}


def _state(found: Trend, change: float) -> str:
    if found.p >= SIGNIFICANT or abs(change) <= DRIFT_SHARE:
        return STEADY
    return RISING if change > 0 else FALLING


def _deliveries_between(streams: list[SubscriptionSeries], ticks: Ticks, edges: np.ndarray) -> Floats:
    """Deliveries between consecutive edges, which are in seconds."""
    total = np.zeros(edges.size - 1)
    for stream in streams:
        cumulative = np.concatenate([[0], np.cumsum(stream.received)])
        total += np.diff(cumulative[_elapsed_ticks(stream, ticks, edges)])
    return total


def _backlog_at(streams: list[SubscriptionSeries], ticks: Ticks, ends: np.ndarray) -> Floats:
    total = np.zeros(ends.size)
    for stream in streams:
        total += np.concatenate([[0], stream.backlog])[_elapsed_ticks(stream, ticks, ends)]
    return total


def _elapsed_ticks(stream: SubscriptionSeries, ticks: Ticks, seconds: np.ndarray) -> np.ndarray:
    """How many ticks of a stream have elapsed at each of these seconds."""
    elapsed: np.ndarray = np.clip(seconds * SECOND_NS // ticks.length_ns - stream.first_tick, 0, stream.sent.size)
    return elapsed


def _p99(histogram: list[Path], first: int, step_s: int, steps: int) -> Floats | None:
    """p99 of response, or of transfer without a schedule; None if any step has too few samples."""
    for kind in (RESPONSE, TRANSFER):
        within = (pc.field(SECOND) >= first) & (pc.field(SECOND) < first + step_s * steps)
        step = pc.divide(pc.field(SECOND) - first, step_s)
        counts = group_sums(histogram, [_STEP, BUCKET], where=within & (pc.field(KIND) == kind), derived={_STEP: step})
        if counts.num_rows:
            values = group_statistics(counts, [_STEP])["p99"].combine_chunks()
            return None if len(values) < steps or values.null_count else values.to_numpy().astype(np.float64)
    return None
