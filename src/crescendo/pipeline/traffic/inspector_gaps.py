"""When could an inspector not look, and why?

Pairs the events of a look that failed and of the first one that succeeded again. Events are few, so this is done in
the driver. Says nothing about the system: a gap may be its fault, the network's or the inspector's own.
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
    """One row a gap. A gap that was still open at the end has no `end_ns`."""
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
