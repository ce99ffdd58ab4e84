"""When could an inspector not read the system, and why?

Pairs the event of a failed inspection with that of the next successful one. Events are few, so the driver does this.
Says nothing about the system: a gap may be the fault of the system, the network or the inspector.
"""

from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds

from crescendo.pipeline.columns import DETAIL, KIND, SOURCE, T_NS

FAILED, RECOVERED = "look-failed", "look-recovered"

GAPS_SCHEMA = pa.schema(
    [("source", pa.string()), ("start_ns", pa.int64()), ("end_ns", pa.int64()), ("reason", pa.string())]
)


def inspector_gaps(event_files: list[str]) -> list[dict[str, Any]]:
    """One row per gap. A gap still open at the end of the run has no `end_ns`."""
    if not event_files:
        return []
    table = ds.dataset(event_files, format="parquet").to_table(
        columns=[T_NS, SOURCE, KIND, DETAIL], filter=ds.field(KIND).isin([FAILED, RECOVERED])
    )
    found: list[dict[str, Any]] = []
    open_gaps: dict[str, dict[str, Any]] = {}
    for event in table.sort_by(T_NS).to_pylist():
        source = event[SOURCE]
        if event[KIND] == RECOVERED:
            if source in open_gaps:
                open_gaps.pop(source)["end_ns"] = event[T_NS]
        elif source not in open_gaps:
            gap = {"source": source, "start_ns": event[T_NS], "end_ns": None, "reason": _reason(event[DETAIL])}
            open_gaps[source] = gap
            found.append(gap)
    return found


def _reason(detail: str) -> str:
    try:
        return str(msgspec.json.decode(detail, type=dict[str, Any]).get("reason", ""))
    except msgspec.MsgspecError:
        return ""
