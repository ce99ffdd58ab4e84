"""What are the latencies: of the run, a phase, a second, a connection, a destination?

Reads bucket counts, a stretch of seconds at a time, and describes each group of samples; `quantiles` says how. What is
held grows with buckets and connections, not with messages or the length of the run. A destination is the sum of its
connections: of receivers where the message was received, of senders where only they took part.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from crescendo.model.verdict import LATENCY_KINDS, PERCENTILES
from crescendo.pipeline.columns import (
    BUCKET,
    CONNECTION,
    COUNT,
    DESTINATION,
    KIND,
    MAX_NS,
    MIN_NS,
    NEGATIVE,
    PARTY,
    PHASE,
    RECEIVER,
    ROLE,
    SCOPE,
    SECOND,
    SENDER,
)
from crescendo.pipeline.latency.group_sums import SAMPLES, added, dataset_of, folded
from crescendo.pipeline.latency.histogram import LATENESS, ONE_WAY, ROUND_TRIP, SETTLE
from crescendo.pipeline.latency.quantiles import MEAN_NS, STATISTICS, described
from crescendo.record.manifest import ConnectionRecord
from crescendo.record.summary import Latency

KINDS = (*LATENCY_KINDS, LATENESS, ROUND_TRIP, ONE_WAY)
TOTAL = "total"

LATENCY_SCHEMA = pa.schema(
    [
        (SCOPE, pa.string()), (PHASE, pa.string()), (SECOND, pa.int64()), (PARTY, pa.string()), (KIND, pa.string()),
        *STATISTICS,
    ]
)  # fmt: skip

_STRETCH_S = 600
_BY_SENDERS = {SETTLE, LATENESS}
"""Kinds that no receiver had a part in."""


def latency_table(histogram: list[Path]) -> pa.Table:
    """The rows of the run, its phases and its seconds."""
    by_phase, seconds = None, [LATENCY_SCHEMA.empty_table()]
    for stretch in _stretches(histogram):
        by_phase = added(stretch[:0] if by_phase is None else by_phase, stretch, [PHASE, KIND, BUCKET])
        seconds.append(_rows(SECOND, described(stretch, [SECOND, KIND])))
    if by_phase is None:
        return LATENCY_SCHEMA.empty_table()
    total, phases = described(by_phase, [KIND]), described(by_phase, [PHASE, KIND])
    return pa.concat_tables([_rows(TOTAL, total), _rows(PHASE, phases), *seconds])


def connection_latency_table(party_histogram: list[Path], connections: list[ConnectionRecord]) -> pa.Table:
    """The rows of each sender, each receiver and each destination, phase by phase."""
    counts = folded(party_histogram, [PHASE, KIND, ROLE, CONNECTION, BUCKET])
    if not counts.num_rows:
        return LATENCY_SCHEMA.empty_table()
    parts = []
    for role in (SENDER, RECEIVER):
        mine = counts.filter(pc.field(ROLE) == role)
        parts.append(_rows(role, described(_named(mine, pc.cast(mine[CONNECTION], pa.string())), [PHASE, PARTY, KIND])))
    settling = pc.is_in(counts[KIND], pa.array(sorted(_BY_SENDERS)))
    owned = counts.filter(pc.equal(settling, pc.equal(counts[ROLE], SENDER)))
    destinations = {(item.role, item.id): item.destination for item in connections}
    names = [destinations.get(key) for key in zip(owned[ROLE].to_pylist(), owned[CONNECTION].to_pylist(), strict=True)]
    named = _named(owned, pa.array(names, pa.string())).filter(pc.field(PARTY).is_valid())
    return pa.concat_tables([*parts, _rows(DESTINATION, described(named, [PHASE, PARTY, KIND]))])


def latencies(table: pa.Table, phases: list[str]) -> list[Latency]:
    """The rows of the phases, in the order given, kinds in theirs: what the summary tells."""
    found = {(row[PHASE], row[KIND]): row for row in table.filter(pc.field(SCOPE) == PHASE).to_pylist()}
    chosen = [found[phase, kind] for phase in phases for kind in KINDS if (phase, kind) in found]
    same = (PHASE, KIND, COUNT, MIN_NS, MAX_NS, MEAN_NS, NEGATIVE)
    return [
        Latency(**{name: row[name] for name in same}, percentiles_ns={name: row[name] for name in PERCENTILES})
        for row in chosen
    ]


def _stretches(files: list[Path]) -> Iterator[pa.Table]:
    """The histogram, ten minutes at a time. Its files are sorted by second, so each row group is read about once."""
    dataset = dataset_of(files)
    # Only those in which there is something: what was imported together may lie years apart.
    inhabited: set[int] = set()
    for batch in dataset.to_batches(columns=[SECOND]):
        inhabited.update(np.unique(batch[SECOND].to_numpy() // _STRETCH_S).tolist())
    for start in sorted(number * _STRETCH_S for number in inhabited):
        within = (ds.field(SECOND) >= start) & (ds.field(SECOND) < start + _STRETCH_S)
        yield dataset.to_table(columns=[SECOND, PHASE, KIND, BUCKET, *SAMPLES], filter=within)


def _named(counts: pa.Table, names: pa.Array) -> pa.Table:
    return counts.append_column(PARTY, names)


def _rows(scope: str, rows: pa.Table) -> pa.Table:
    """Rows in the columns of the table; null where a scope has none of them."""
    absent = {name: pa.nulls(rows.num_rows, LATENCY_SCHEMA.field(name).type) for name in (PHASE, SECOND, PARTY)}
    known = absent | {name: rows[name] for name in rows.column_names} | {SCOPE: pa.repeat(scope, rows.num_rows)}
    return pa.table({name: known[name] for name in LATENCY_SCHEMA.names}).cast(LATENCY_SCHEMA)
