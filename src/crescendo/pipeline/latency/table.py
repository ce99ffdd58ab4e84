"""What are the latencies of the run, of each phase, second, connection and destination?

Reads bucket counts, one range of seconds at a time, and computes the statistics of each group (see `quantiles`), for
phases with intervals (see `interval_statistics`). Memory grows with buckets, connections and seconds, not with
messages. A destination is the sum of its receivers, or of its senders for the kinds that only senders measure. Reads no
messages.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from crescendo.model.metrics import LATENCY_KINDS, PERCENTILES, SETTLE
from crescendo.pipeline import columns as c
from crescendo.pipeline.latency.group_sums import SAMPLES, dataset_of, group_sums, merged_sums
from crescendo.pipeline.latency.interval_statistics import IntervalStatistics, interval_statistics
from crescendo.pipeline.latency.quantiles import HIGH, LOW, MEAN_NS, group_statistics
from crescendo.pipeline.latency.samples import LATENESS, ONE_WAY, ROUND_TRIP
from crescendo.record.manifest import ConnectionRecord
from crescendo.record.summary import Latency
from crescendo.record.tables import LATENCY
from crescendo.record.timeline import MEASURE

KINDS = (*LATENCY_KINDS, LATENESS, ROUND_TRIP, ONE_WAY)
TOTAL = "total"

LATENCY_SCHEMA = LATENCY.arrow_schema()

_CHUNK_S = 600
_OF_PHASE = [c.PHASE, c.KIND]
_SENDER_KINDS = {SETTLE, LATENESS}
"""Kinds that only senders measure."""


def latency_table(histogram: list[Path]) -> IntervalStatistics:
    """The rows of the run, of its phases and of its seconds; why percentiles of (phase, kind) have no interval."""
    by_phase, seconds = None, [LATENCY_SCHEMA.empty_table()]
    for chunk in _chunks(histogram):
        by_phase = merged_sums(chunk[:0] if by_phase is None else by_phase, chunk, [c.PHASE, c.KIND, c.BUCKET])
        seconds.append(_rows(c.SECOND, group_statistics(chunk, [c.SECOND, c.KIND])))
    if by_phase is None:
        return IntervalStatistics(LATENCY_SCHEMA.empty_table(), {})
    total, phases = group_statistics(by_phase, [c.KIND]), interval_statistics(by_phase, _OF_PHASE, _chunks(histogram))
    table = pa.concat_tables([_rows(TOTAL, total), _rows(c.PHASE, phases.table), *seconds])
    return IntervalStatistics(table, phases.reasons)


def slice_latencies(histogram: list[Path], where: pc.Expression) -> list[Latency]:
    """The latencies of the measure phase that `where` chooses, for the summary."""
    chosen = (pc.field(c.PHASE) == MEASURE) & where
    counts = group_sums(histogram, [c.PHASE, c.KIND, c.BUCKET], where=chosen)
    if not counts.num_rows:
        return []
    found = interval_statistics(counts, _OF_PHASE, _chunks(histogram, chosen))
    return latencies(IntervalStatistics(_rows(c.PHASE, found.table), found.reasons), [MEASURE])


def connection_latency_table(histogram: list[Path], connections: list[ConnectionRecord]) -> pa.Table:
    """The rows of each sender, receiver and destination, per phase."""
    counts = group_sums(histogram, [c.PHASE, c.KIND, c.ROLE, c.CONNECTION, c.BUCKET])
    if not counts.num_rows:
        return LATENCY_SCHEMA.empty_table()
    tables, keys = [], [c.PHASE, c.PARTY, c.KIND]
    for role in (c.SENDER, c.RECEIVER):
        of_role = counts.filter(pc.field(c.ROLE) == role)
        of_role = _with_party(of_role, pc.cast(of_role[c.CONNECTION], pa.string()))
        tables.append(_rows(role, group_statistics(of_role, keys)))
    sender_kind = pc.is_in(counts[c.KIND], pa.array(sorted(_SENDER_KINDS)))
    owned = counts.filter(pc.equal(sender_kind, pc.equal(counts[c.ROLE], c.SENDER)))
    destinations = {(item.role, item.id): item.destination for item in connections}
    names = [
        destinations.get(key) for key in zip(owned[c.ROLE].to_pylist(), owned[c.CONNECTION].to_pylist(), strict=True)
    ]
    named = _with_party(owned, pa.array(names, pa.string())).filter(pc.field(c.PARTY).is_valid())
    return pa.concat_tables([*tables, _rows(c.DESTINATION, group_statistics(named, keys))])


def latencies(statistics: IntervalStatistics, phases: list[str]) -> list[Latency]:
    """The rows of the phases, for the summary: phases in the given order, kinds in that of `KINDS`."""
    rows = statistics.table.filter(pc.field(c.SCOPE) == c.PHASE).to_pylist()
    found = {(row[c.PHASE], row[c.KIND]): row for row in rows}
    chosen = [found[phase, kind] for phase in phases for kind in KINDS if (phase, kind) in found]
    same = (c.PHASE, c.KIND, c.COUNT, c.MIN_NS, c.MAX_NS, MEAN_NS, c.NEGATIVE)
    return [
        Latency(
            **{name: row[name] for name in same},
            percentiles_ns={name: row[name] for name in PERCENTILES},
            intervals_ns={
                name: (row[name + LOW], row[name + HIGH]) for name in PERCENTILES if row[name + LOW] is not None
            },
            no_interval=statistics.reasons.get((row[c.PHASE], row[c.KIND]), {}),
        )
        for row in chosen
    ]


def _chunks(files: list[Path], where: pc.Expression | None = None) -> Iterator[pa.Table]:
    """The histogram, ten minutes at a time. Its files are sorted by second, so each row group is read about once."""
    dataset = dataset_of(files)
    # Only ranges that have rows: imported counts may be years apart.
    occupied: set[int] = set()
    for batch in dataset.to_batches(columns=[c.SECOND]):
        occupied.update(np.unique(batch[c.SECOND].to_numpy() // _CHUNK_S).tolist())
    for start in sorted(number * _CHUNK_S for number in occupied):
        within = (ds.field(c.SECOND) >= start) & (ds.field(c.SECOND) < start + _CHUNK_S)
        within = within if where is None else within & where
        yield dataset.to_table(columns=[c.SECOND, c.PHASE, c.KIND, c.BUCKET, *SAMPLES], filter=within)


def _with_party(counts: pa.Table, names: pa.Array) -> pa.Table:
    return counts.append_column(c.PARTY, names)


def _rows(scope: str, rows: pa.Table) -> pa.Table:
    """The rows with the columns of the table; columns that a scope does not have are null."""
    absent = {name: pa.nulls(rows.num_rows, LATENCY_SCHEMA.field(name).type) for name in (c.PHASE, c.SECOND, c.PARTY)}
    known = absent | {name: rows[name] for name in rows.column_names} | {c.SCOPE: pa.repeat(scope, rows.num_rows)}
    return pa.table({name: known[name] for name in LATENCY_SCHEMA.names}).cast(LATENCY_SCHEMA)
