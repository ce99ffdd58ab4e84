"""What do the tables hold that are built in the driver?

Ledger and checks have one row per connection or check. They are computed in the driver and written both to the summary
and, for queries, to tables. Converts rows only; `record.tables` declares the columns.
"""

from typing import Any

import msgspec
import pyarrow as pa

from crescendo.model.verdict import Check
from crescendo.pipeline import columns as c
from crescendo.pipeline.ledger.balance import Suspect
from crescendo.record.summary import Ledger
from crescendo.record.tables import LedgerRow, VerdictCheckRow

SUSPECTS_SCHEMA = pa.schema([(c.BLOCK, pa.int64()), (c.SUBSCRIPTION, pa.int32()), (c.SENDER, pa.int32())])


def ledger_rows(ledger: list[Ledger]) -> list[LedgerRow]:
    """The columns of the table. Undelivered messages are owed and neither delivered nor lost: they need no column."""
    names = [field.name for field in msgspec.structs.fields(LedgerRow)]
    return [LedgerRow(**{name: getattr(row, name) for name in names}) for row in ledger]


def check_rows(checks: list[Check]) -> list[VerdictCheckRow]:
    return [
        VerdictCheckRow(
            metric=check.metric,
            bound=check.bound,
            outcome=check.outcome.value,
            value=check.value,
            limit=check.limit,
            reasons=check.reasons,
        )
        for check in checks
    ]


def suspect_table(suspects: list[Suspect]) -> pa.Table:
    """The blocks to compare message by message, for a join in Spark."""
    keys = (c.SUBSCRIPTION, c.SENDER, c.BLOCK)
    rows: list[dict[str, Any]] = [dict(zip(keys, suspect, strict=True)) for suspect in suspects]
    return pa.Table.from_pylist(rows, SUSPECTS_SCHEMA)
