"""What would the latencies be without our own delay?

The counts of the histogram plus the corrections of the messages that are in a range. A response without own delay is a
transfer, so the counts of transfer are the ones to correct. Every statistic then follows from counts, as for the
latencies themselves; none is ever larger than as measured. Reads no messages.
"""

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from crescendo.model.metrics import PERCENTILES, RESPONSE, SETTLE, TRANSFER
from crescendo.pipeline import columns as c
from crescendo.pipeline.latency.corrections import ARRIVALS, RESPONSE_KIND, SETTLE_KIND, TRANSFER_KIND
from crescendo.pipeline.latency.group_sums import group_sums, merged_sums
from crescendo.pipeline.latency.quantiles import MEAN_NS, group_statistics
from crescendo.record.summary import Latency
from crescendo.record.timeline import MEASURE

_BASE = {RESPONSE: (TRANSFER, RESPONSE_KIND), TRANSFER: (TRANSFER, TRANSFER_KIND), SETTLE: (SETTLE, SETTLE_KIND)}
"""Kind -> the kind whose counts are corrected, and the kind of its corrections."""


def latencies_without_own_delay(
    measured: Iterable[Latency], histogram: list[Path], corrections: list[Path], where: pc.Expression | None = None
) -> list[Latency]:
    """The latencies of the measure phase, less own delay; of the rows that `where` chooses."""
    within = pc.field(c.PHASE) == MEASURE if where is None else (pc.field(c.PHASE) == MEASURE) & where
    found = []
    for row in measured:
        if row.phase == MEASURE and row.kind in _BASE:
            counts = _counts(row.kind, histogram, corrections, [], within)
            if counts.num_rows:
                found.append(_at_most(row, group_statistics(counts, []).to_pylist()[0]))
    return found


def own_part_in_seconds(
    kind: str,
    statistic: str,
    histogram: list[Path],
    corrections: list[Path],
    first: int,
    last: int,
    where: pc.Expression | None = None,
) -> int:
    """By how much own delay increased this statistic in one of these seconds, at most. `where` chooses rows."""
    within = (pc.field(c.SECOND) >= first) & (pc.field(c.SECOND) <= last)
    within = within if where is None else within & where
    plain = _by_second(
        group_sums(histogram, [c.SECOND, c.BUCKET], where=within & (pc.field(c.KIND) == kind)), statistic
    )
    less = _by_second(_counts(kind, histogram, corrections, [c.SECOND], within), statistic)
    return max((value - less[second] for second, value in plain.items() if second in less), default=0)


def arrivals_moved(corrections: list[Path], where: pc.Expression | None = None) -> int:
    """How many more messages would have arrived in the measure phase, because of the ranges."""
    if not corrections:
        return 0
    chosen = pc.field(c.KIND) == ARRIVALS
    counts = group_sums(corrections, [c.KIND], {c.COUNT: "sum"}, where=chosen if where is None else chosen & where)
    return int(pc.sum(counts[c.COUNT]).as_py() or 0)


def _counts(
    kind: str, histogram: list[Path], corrections: list[Path], keys: list[str], within: pc.Expression
) -> pa.Table:
    """The corrected counts by bucket. What was taken out of a bucket leaves no minimum or maximum behind."""
    base, number = _BASE[kind]
    counts = group_sums(histogram, [*keys, c.BUCKET], where=within & (pc.field(c.KIND) == base))
    if corrections:
        changes = group_sums(corrections, [*keys, c.BUCKET], where=within & (pc.field(c.KIND) == number))
        counts = merged_sums(counts, changes.select(counts.column_names), [*keys, c.BUCKET])
    return counts.filter(pc.field(c.COUNT) > 0)


def _by_second(counts: pa.Table, statistic: str) -> dict[int, int]:
    column = c.MAX_NS if statistic == "max" else statistic
    rows = group_statistics(counts, [c.SECOND]).to_pylist() if counts.num_rows else []
    return {row[c.SECOND]: row[column] for row in rows if row[column] is not None}


def _at_most(measured: Latency, less: dict[str, float]) -> Latency:
    """The statistics less own delay. A message sent before it was due has a transfer longer than its response."""

    def smaller(value_ns: float | None, less_ns: float | None) -> int | None:
        return None if value_ns is None or less_ns is None else int(min(value_ns, less_ns))

    return structs.replace(
        measured,
        min_ns=int(min(measured.min_ns, less[c.MIN_NS])),
        max_ns=int(min(measured.max_ns, less[c.MAX_NS])),
        mean_ns=min(measured.mean_ns, less[MEAN_NS]),
        percentiles_ns={name: smaller(measured.percentiles_ns[name], less[name]) for name in PERCENTILES},
    )
