"""What is known about each period so far, and what arrived too late?

Holds the bucket counts of open periods and drops them when the watermark has passed, so memory grows with the number of
buckets, not with messages or the length of the run. Percentiles come from merged counts and are withheld as in the
tables. Judges nothing.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from crescendo.model.metrics import RESPONSE, SETTLE, TRANSFER
from crescendo.pipeline.columns import BUCKET, COUNT, KIND, MAX_NS, MIN_NS, SUM_NS
from crescendo.pipeline.latency.quantiles import MEAN_NS, group_statistics
from crescendo.pipeline.live.growing_counts import PERIOD
from crescendo.pipeline.live.snapshot import LatencySpread, LiveTotals, Period
from crescendo.record.schema import SENT

_NS_PER_US = 1000
_VALUES = (COUNT, SUM_NS, MIN_NS, MAX_NS)
_COUNTED = {SENT: "sent", TRANSFER: "received", SETTLE: "settled"}
_SHOWN = ("p50", "p90", "p99", "p99.9")


@dataclass(frozen=True)
class BatchInput:
    """What one batch read: its messages, and which part has messages in which period (its start in µs)."""

    messages: int
    parts: frozenset[tuple[str, int]]


class Periods:
    """The open periods and the totals of the closed ones. Batches are added in order."""

    def __init__(self, period_ns: int) -> None:
        self._period_ns = period_ns
        self._open: dict[int, dict[tuple[str, int], tuple[float, ...]]] = {}
        self._closed: Counter[str] = Counter()
        self._messages = 0
        self._parts: set[str] = set()
        self._late: set[str] = set()
        self._batch = -1

    def add_batch(self, batch: int, counts: pa.Table, batch_input: BatchInput) -> set[int]:
        """Add the counts of a batch; returns the starts of the periods that it changed."""
        changed = set()
        for row in counts.to_pylist():
            self._open.setdefault(row[PERIOD], {})[row[KIND], row[BUCKET]] = tuple(row[name] for name in _VALUES)
            changed.add(row[PERIOD])
        self._batch = batch
        self._messages += batch_input.messages
        self._parts |= {part for part, _ in batch_input.parts}
        # Messages that are not late change their period, so a period that did not change was already closed.
        self._late |= {part for part, start in batch_input.parts if start not in changed}
        return changed

    def emit(self, starts: Iterable[int], watermark_ns: int) -> list[Period]:
        """These periods as they are now, ordered by time. Periods before the watermark are closed and dropped."""
        chosen = sorted(start for start in set(starts) | self._passed(watermark_ns) if start in self._open)
        rows: dict[int, list[dict[str, object]]] = {start: [] for start in chosen}
        for row in group_statistics(self._table(chosen), [PERIOD, KIND]).to_pylist() if chosen else ():
            rows[row[PERIOD]].append(row)
        periods = [self._period(start, rows[start], watermark_ns) for start in chosen]
        for start in self._passed(watermark_ns):
            self._closed.update(self._totals(start))
            del self._open[start]
        return periods

    def totals(self) -> LiveTotals:
        totals = Counter(self._closed)
        for start in self._open:
            totals.update(self._totals(start))
        return LiveTotals(
            batch=self._batch,
            sent=totals["sent"],
            received=totals["received"],
            settled=totals["settled"],
            parts=len(self._parts),
            late_parts=len(self._late),
            # Nothing gets lost: messages that were read but are in no period arrived too late.
            late_messages=self._messages - totals.total(),
        )

    def _passed(self, watermark_ns: int) -> set[int]:
        return {start for start in self._open if start * _NS_PER_US + self._period_ns <= watermark_ns}

    def _totals(self, start: int) -> Counter[str]:
        totals: Counter[str] = Counter()
        for (kind, _), (count, *_others) in self._open[start].items():
            if kind in _COUNTED:
                totals[_COUNTED[kind]] += int(count)
        return totals

    def _table(self, starts: list[int]) -> pa.Table:
        keys = [(start, *key) for start in starts for key in self._open[start] if key[0] != SENT]
        values = [self._open[start][kind, bucket] for start, kind, bucket in keys]
        columns = dict(zip((PERIOD, KIND, BUCKET), zip(*keys, strict=True), strict=True)) if keys else {}
        columns |= dict(zip(_VALUES, zip(*values, strict=True), strict=True)) if values else {}
        integers = {name: pa.int64() for name in (PERIOD, BUCKET, COUNT, MIN_NS, MAX_NS)}
        schema = pa.schema({PERIOD: pa.int64(), KIND: pa.string(), SUM_NS: pa.float64()} | integers)
        return pa.table({name: columns.get(name, ()) for name in schema.names}, schema=schema)

    def _period(self, start: int, rows: list[dict[str, object]], watermark_ns: int) -> Period:
        start_ns = start * _NS_PER_US
        return Period(
            start_ns,
            self._period_ns,
            start_ns + self._period_ns <= watermark_ns,
            **self._totals(start),
            latency={str(row[KIND]): _spread(row) for row in rows if row[KIND] in {RESPONSE, TRANSFER, SETTLE}},
        )


def _spread(row: dict[str, object]) -> LatencySpread:
    percentiles = {name: row[name] for name in _SHOWN}
    return LatencySpread(row[COUNT], row[MEAN_NS], row[MAX_NS], percentiles)  # type: ignore[arg-type]
