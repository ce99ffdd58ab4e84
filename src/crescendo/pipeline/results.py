"""What do the small tables hold?

Latency, ledger and checks have as many rows as there are phases, connections and checks; they are made in the driver
and stand both in the summary and, for those who query, in tables. Columns and rows only.
"""

from typing import Any

import msgspec
import pyarrow as pa

from crescendo.model.verdict import PERCENTILES, Check
from crescendo.record.summary import Latency, Ledger

Rows = list[dict[str, Any]]

LATENCY_SCHEMA = pa.schema(
    [
        ("phase", pa.string()),
        ("kind", pa.string()),
        ("count", pa.int64()),
        ("min_ns", pa.int64()),
        ("max_ns", pa.int64()),
    ]
    + [("mean_ns", pa.float64()), ("negative", pa.int64())]
    + [(name, pa.int64()) for name in PERCENTILES]
)
LEDGER_SCHEMA = pa.schema(
    [("scope", pa.string()), ("sender", pa.int32()), ("subscription", pa.string())]
    + [(name, pa.int64()) for name in Ledger.__struct_fields__[3:]]
)
CHECKS_SCHEMA = pa.schema(
    [("metric", pa.string()), ("bound", pa.string()), ("value", pa.float64()), ("limit", pa.float64())]
    + [("outcome", pa.string()), ("reasons", pa.list_(pa.string()))]
)
RANGES_SCHEMA = pa.schema(
    [("kind", pa.string()), ("subscription", pa.string()), ("sender", pa.int32())]
    + [("first_seq", pa.int64()), ("last_seq", pa.int64()), ("acknowledged", pa.bool_()), ("count", pa.int64())]
)


def latency_rows(latency: list[Latency]) -> Rows:
    """A percentile that is withheld is null."""
    rows = []
    for row in latency:
        fields = msgspec.structs.asdict(row)
        rows.append(fields | fields.pop("percentiles_ns"))
    return rows


def ledger_rows(ledger: list[Ledger]) -> Rows:
    return [msgspec.structs.asdict(row) for row in ledger]


def check_rows(checks: list[Check]) -> Rows:
    return [msgspec.structs.asdict(check) | {"outcome": check.outcome.value} for check in checks]
