"""How evenly did messages arrive, and where did the time of a request go?

Two sections of plain tables: jitter by receiver, and spans by action with a bar for the mean of each. Both are there
only when the pipeline made the table. Finds words; computes nothing.
"""

from typing import Any

from crescendo.report import formats
from crescendo.report.evidence import WITHHELD, Grid
from crescendo.report.overtime import Chart, plot_name
from crescendo.report.parts import ROWS_SHOWN, Part, Rows, SmallTables

BARS_DRAWN = 12


def jitter(tables: SmallTables) -> Part | None:
    found = sorted(tables.rows("jitter"), key=lambda row: -row["max_ns"])
    if not found:
        return None
    rows = [
        [
            str(row["receiver"]),
            formats.count(row["count"]),
            formats.nanoseconds(row["max_ns"]),
            formats.nanoseconds(row["mean_abs_ns"]),
            *(WITHHELD if row[name] is None else formats.nanoseconds(row[name]) for name in ("p50", "p99", "p99.9")),
            formats.nanoseconds(row["min_ns"]),
            formats.nanoseconds(row["rfc3550_ns"]),
        ]
        for row in found[:ROWS_SHOWN]
    ]
    columns = ["Receiver", "samples", "max", "mean size", "p50", "p99", "p99.9", "min", "RFC 3550"]
    lead = (
        "Time between two deliveries less the time between their intentions. Above zero a message came later after"
        " the one before it than it was meant to; below zero earlier, as held messages do after an interruption."
    )
    grids = {"Jitter by receiver": Grid(columns, rows)}
    return Part("jitter", "Jitter", lead, None, grids, max(len(found) - ROWS_SHOWN, 0))


def tiers(tables: SmallTables) -> Part | None:
    found = [row for row in tables.rows("spans") if row["phase"] == "measure"]
    if not found:
        return None
    whole = sorted((row for row in found if row["outcome"] is None), key=lambda row: (-row["total_ns"], row["action"]))
    rows = []
    for row in whole[:ROWS_SHOWN]:
        outcomes = [each for each in found if each["action"] == row["action"] and each["outcome"] is not None]
        rows += [_tier_row(each, each["outcome"] or "all") for each in (row, *outcomes)]
    columns = ["Action", "Outcome", "count", "share", "mean", "p50", "p90", "p99", "p99.9", "max"]
    lead = (
        "What clients and brokers timed themselves in the measure phase, the most time first. The share is that of the"
        " first line: where actions are tiers of one request, that is the request as a whole."
    )
    grids = {"Spans by action": Grid(columns, rows, names=2)}
    return Part("tiers", "Tiers", lead, _bars(whole[:BARS_DRAWN]), grids, max(len(whole) - ROWS_SHOWN, 0))


def _bars(rows: Rows) -> Chart:
    """The mean of each action, the one with the most time at the top."""
    upwards = rows[::-1]
    names = [plot_name(row["action"], 20) for row in upwards]
    bars = {
        "type": "bar",
        "orientation": "h",
        "name": "mean",
        "x": [float(f"{row['mean_ns'] / 1e9:.6g}") for row in upwards],
        "y": list(range(len(upwards))),
        "customdata": names,
        "line": {},
        "marker": {},
        "meta": {"tone": "blue"},
        "hovertemplate": "%{x:.3s}s<extra>%{customdata}</extra>",
    }
    axis = {
        "title": {"text": "mean time"},
        "tickformat": "~s",
        "ticksuffix": "s",
        "rangemode": "tozero",
        "nticks": 5,
        "tickangle": 0,
    }
    # By place and not by name: two long names may be the same when they are shortened.
    places = {"title": {"text": ""}, "tickvals": list(range(len(upwards))), "ticktext": names, "fixedrange": True}
    layout = {"xaxis": axis | {"fixedrange": True}, "yaxis": places, "hovermode": "closest", "bargap": 0.35}
    words = "; ".join(f"{row['action']} {formats.nanoseconds(row['mean_ns'])}" for row in rows)
    return Chart({"data": [bars], "layout": layout}, f"Mean time by action: {words}.", [])


def _tier_row(row: dict[str, Any], outcome: str) -> list[str]:
    told = [row[name] for name in ("p50", "p90", "p99", "p99.9")]
    return [
        row["action"],
        outcome,
        formats.count(row["count"]),
        formats.NOTHING if row["share"] is None else formats.percent(row["share"]),
        formats.nanoseconds(row["mean_ns"]),
        *(WITHHELD if value is None else formats.nanoseconds(value) for value in told),
        formats.nanoseconds(row["max_ns"]),
    ]
