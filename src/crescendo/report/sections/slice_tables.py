"""How did each group, destination and protocol do?

One table per division that says something new: a run of several groups, sizes or protocols has no single p99. Every
number comes from the pipeline; this module only formats.
"""

from crescendo.model.metrics import RESPONSE, SETTLE, TRANSFER
from crescendo.record.summary import Latency, SliceResult, Summary
from crescendo.report import formats
from crescendo.report.sections.evidence import Grid
from crescendo.report.sections.section import Section

_PERCENTILES = ("p50", "p90", "p99", "p99.9")
_TITLES = {"group": "By group", "destination": "By destination", "protocol": "By protocol"}
_LOSSES = 11
"""The column from which on anything but 0 is trouble."""


def slices_section(summary: Summary) -> Section | None:
    """None if nothing divides the run."""
    divisions = summary.divisions
    if not divisions:
        return None
    names = " and ".join(f"{len(slices)} {scope}s" for scope, slices in divisions.items())
    lead = (
        f"The measure phase by {names}. A slice has the messages of its senders; one that only receives has what its "
        "receivers got. Latency is response, from the time a message was due, or transfer where there is no schedule."
    )
    grids = {_TITLES[scope]: _grid(scope, slices) for scope, slices in divisions.items()}
    return Section("slices", "Groups, destinations, protocols", lead, None, grids)


def _grid(scope: str, slices: list[SliceResult]) -> Grid:
    columns = [
        scope.capitalize(), "Latency", "offered msg/s", "msg/s", *_PERCENTILES, "max", "settle p99", "outage", "lost",
        "undelivered", "duplicated", "reordered",
    ]  # fmt: skip
    alarms = None if any(each.shares_queue for each in slices) else _LOSSES
    return Grid(columns, [_cells(each) for each in slices], names=2, alarms=alarms)


def _cells(found: SliceResult) -> list[str]:
    kind = RESPONSE if found.latency_of(RESPONSE) else TRANSFER
    latency, settle = found.latency_of(kind), found.latency_of(SETTLE)
    ledger = found.ledger
    counts = [formats.count(count) for count in (ledger.lost, ledger.undelivered, ledger.duplicated, ledger.reordered)]
    return [
        found.name,
        kind if latency else formats.NOTHING,
        formats.rate(found.rate.offered) if found.rate.offered else "unbounded",
        formats.NOTHING if found.shares_queue else formats.rate(found.rate.sustained),
        *(_percentile(latency, name) for name in _PERCENTILES),
        formats.nanoseconds(latency.max_ns if latency else None),
        _percentile(settle, "p99"),
        formats.NOTHING if found.shares_queue else formats.nanoseconds(found.outage_ns),
        *([formats.NOTHING] * len(counts) if found.shares_queue else counts),
    ]


def _percentile(latency: Latency | None, name: str) -> str:
    if latency is None:
        return formats.NOTHING
    value_ns = latency.percentiles_ns.get(name)
    return formats.WITHHELD if value_ns is None else formats.nanoseconds(value_ns)
