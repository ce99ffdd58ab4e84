"""When could an inspector not read the system, and why?

Pairs the event of a failed inspection with that of the next successful one. Events are few, so the driver does this.
Says nothing about the system: a gap may be the fault of the system, the network or the inspector.
"""

from typing import Any

import msgspec
import pyarrow.dataset as ds

from crescendo.pipeline.columns import DETAIL, KIND, SOURCE, T_NS
from crescendo.record.tables import ReadingGapRow

FAILED, RECOVERED = "look-failed", "look-recovered"


def inspector_gaps(event_files: list[str]) -> list[ReadingGapRow]:
    """One row per gap. A gap still open at the end of the run has no `end_ns`."""
    if not event_files:
        return []
    table = ds.dataset(event_files, format="parquet").to_table(
        columns=[T_NS, SOURCE, KIND, DETAIL], filter=ds.field(KIND).isin([FAILED, RECOVERED])
    )
    found: list[ReadingGapRow] = []
    open_gaps: dict[str, int] = {}  # source -> position in `found`
    for event in table.sort_by(T_NS).to_pylist():
        source = event[SOURCE]
        if event[KIND] == RECOVERED:
            if source in open_gaps:
                number = open_gaps.pop(source)
                found[number] = msgspec.structs.replace(found[number], end_ns=event[T_NS])
        elif source not in open_gaps:
            open_gaps[source] = len(found)
            found.append(ReadingGapRow(source, event[T_NS], None, _reason(event[DETAIL])))
    return found


def _reason(detail: str) -> str:
    try:
        return str(msgspec.json.decode(detail, type=dict[str, Any]).get("reason", ""))
    except msgspec.MsgspecError:
        return ""
