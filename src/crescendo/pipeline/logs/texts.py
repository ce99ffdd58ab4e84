"""How are windows written as CSV and as text?

CSV has the columns of the original analyzer in their order, then the type, the seconds that the window covers, and the
rate. Text has one line per type. Durations are in milliseconds, whatever the unit of the log. A missing value is an
empty cell, not a zero. Only converts units.
"""

import csv
import io
from collections.abc import Iterable
from datetime import UTC, datetime

from crescendo.pipeline.logs.windows import MEDIAN, PERCENTILES, Sample, Slot

_MS_NS = 1_000_000
_NS_PER_S = 10**9
_SHOWN = [percent for percent in PERCENTILES if percent != MEDIAN]
TITLES = [
    *("Time", "Timestamp", "Variance", "StdDev", "Mean", "Count", "Min", "Max", "Median"),
    *(f"Percentile {percent}" for percent in _SHOWN),
    *("Type", "Seconds", "Rate"),
]


def as_csv(slots: Iterable[Slot]) -> str:
    """One line per window, with semicolons between the columns."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter=";", lineterminator="\n")
    writer.writerow(TITLES)
    for slot in slots:
        seconds = slot.length_ns / _NS_PER_S
        count = slot.sample.count if slot.sample else 0
        writer.writerow(
            [
                moment(slot.start_ns),
                slot.start_ns // _MS_NS,
                *_cells(slot.sample),
                slot.type,
                _number(seconds),
                _number(count / seconds) if seconds else "",
            ]
        )
    return text.getvalue()


def as_text(slots: Iterable[Slot]) -> str:
    """One line per type, for windows that cover the whole time of the logs."""
    return "".join(f"{_text_line(slot)}\n" for slot in slots)


def moment(t_ns: int) -> str:
    """The time in UTC with milliseconds."""
    ms = t_ns // _MS_NS
    return f"{datetime.fromtimestamp(ms // 1000, UTC):%Y-%m-%d %H:%M:%S}.{ms % 1000:03d}"


def _cells(sample: Sample | None) -> list[str]:
    if sample is None:
        return ["", "", "", "0", *[""] * (3 + len(_SHOWN))]
    variance = "" if sample.variance_ns2 is None else _number(sample.variance_ns2 / _MS_NS**2)
    return [
        variance,
        _ms(sample.deviation_ns),
        _ms(sample.mean_ns),
        str(sample.count),
        _ms(sample.min_ns),
        _ms(sample.max_ns),
        _ms(sample.percentiles_ns[MEDIAN]),
        *(_ms(sample.percentiles_ns[percent]) for percent in _SHOWN),
    ]


def _text_line(slot: Slot) -> str:
    sample = slot.sample
    if sample is None:
        return f"Type: {slot.type}, Count: 0"
    facts = {
        "Type": slot.type,
        "Mean": _ms(sample.mean_ns),
        "Stddev": _ms(sample.deviation_ns) or "none",
        "Count": str(sample.count),
        "Min": _ms(sample.min_ns),
        "Max": _ms(sample.max_ns),
        "Median": _ms(sample.percentiles_ns[MEDIAN]),
        "Seconds": _number(slot.length_ns / _NS_PER_S),
    }
    return ", ".join(f"{name}: {value}" for name, value in facts.items())


def _ms(value_ns: float | None) -> str:
    return "" if value_ns is None else _number(value_ns / _MS_NS)


def _number(value: float) -> str:
    """Six decimals, without trailing zeros."""
    return f"{value:.6f}".rstrip("0").rstrip(".")
