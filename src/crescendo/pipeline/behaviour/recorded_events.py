"""What was recorded about the run itself, and when, on one clock?

Reads the events of all peers, with their times as the conductor would have read them. Interprets none, except that a
fault and its cure belong together.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from crescendo.pipeline.columns import DETAIL, KIND, SOURCE, T_NS
from crescendo.record.clock_mapping import PeerTimes

FAULT, CURE, DISCONNECT = "fault", "cure", "disconnect"
"""Kinds of events."""


def read_events(files: list[str], kinds: Collection[str], times: PeerTimes) -> list[dict[str, Any]]:
    """The events of these kinds, in order of time."""
    if not files:
        return []
    wanted = ds.field(KIND).isin(list(kinds))
    table = ds.dataset(files, format="parquet").to_table(columns=[T_NS, SOURCE, KIND, DETAIL], filter=wanted)
    written = zip(table[SOURCE].to_pylist(), table[T_NS].to_pylist(), strict=True)
    ours = [times.to_ours(source, t_ns) for source, t_ns in written]
    table = table.set_column(0, T_NS, pa.array(ours, pa.int64()))
    rows: list[dict[str, Any]] = table.sort_by([(T_NS, "ascending"), (SOURCE, "ascending")]).to_pylist()
    return rows


@dataclass(frozen=True)
class FaultWindow:
    """One fault from its first effect to its cure; without an end if it lasted until the run was over."""

    number: int
    action: str
    target: str
    means: str
    planned_ns: int
    start_ns: int
    end_ns: int | None


def fault_windows(events: list[dict[str, Any]]) -> list[FaultWindow]:
    """The faults among these events, in order of time. A cure after the run was over does not count."""
    cured: dict[int, int] = {}
    begun: list[tuple[int, dict[str, Any]]] = []
    for event in events:
        if event[KIND] not in {FAULT, CURE}:
            continue
        detail = _detail(event[DETAIL])
        if "fault" not in detail:
            continue  # of another tool
        if event[KIND] == FAULT:
            begun.append((event[T_NS], detail))
        elif not detail.get("final"):
            cured[detail["fault"]] = event[T_NS]
    return [
        FaultWindow(
            number=detail["fault"],
            action=str(detail.get("do", "")),
            target=str(detail.get("on", "")),
            means=str(detail.get("means", "")),
            planned_ns=int(detail.get("planned_ns", t_ns)),
            start_ns=t_ns,
            end_ns=cured.get(detail["fault"]),
        )
        for t_ns, detail in begun
    ]


def _detail(text: str) -> dict[str, Any]:
    try:
        detail = json.loads(text)
    except ValueError:
        return {}
    return detail if isinstance(detail, dict) else {}
