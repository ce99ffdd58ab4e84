"""What do the tables hold that are built in the driver?

Ledger and checks have one row per connection or check. They are computed in the driver and written both to the summary
and, for queries, to tables. Defines columns and rows only.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
import pyarrow as pa

from crescendo.model.verdict import Check
from crescendo.pipeline.ledger.balance import Suspect
from crescendo.record.summary import Ledger

Rows = list[dict[str, Any]]


def _schema(texts: str, integers: Iterable[str], **others: pa.DataType) -> pa.Schema:
    fields = [(name, pa.string()) for name in texts.split()] + [(name, pa.int64()) for name in integers]
    return pa.schema([*fields, *others.items()])


LEDGER_SCHEMA = _schema("scope subscription", Ledger.__struct_fields__[3:], sender=pa.int32())
CHECKS_SCHEMA = _schema(
    "metric bound outcome", [], value=pa.float64(), limit=pa.float64(), reasons=pa.list_(pa.string())
)
RANGES_SCHEMA = _schema(
    "kind subscription", ["first_seq", "last_seq", "count"], sender=pa.int32(), acknowledged=pa.bool_()
)
SUSPECTS_SCHEMA = _schema("", ["block"], subscription=pa.int32(), sender=pa.int32())


def ledger_rows(ledger: list[Ledger]) -> Rows:
    return [msgspec.structs.asdict(row) for row in ledger]


def check_rows(checks: list[Check]) -> Rows:
    return [msgspec.structs.asdict(check) | {"outcome": check.outcome.value} for check in checks]


def suspect_rows(suspects: list[Suspect]) -> Rows:
    return [dict(zip(("subscription", "sender", "block"), suspect, strict=True)) for suspect in suspects]
