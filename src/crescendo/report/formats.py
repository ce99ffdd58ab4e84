"""How is a number written, with its unit?

Turns values in base units (nanoseconds, messages per second, bytes, fractions between 0 and 1) into text; the values of
metrics are written as `model.metrics` says. Computes nothing and escapes nothing: the template does that.
"""

from datetime import UTC, datetime
from typing import Any

from crescendo.model.metrics import format_report_value
from crescendo.model.units import format_count, format_ns, format_rate

NOTHING = "–"
WITHHELD = "too few"
"""Instead of a percentile with fewer than ten samples beyond it."""

_DECIMAL_BYTES = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))

count = format_count
rate = format_rate


_KNOWN_SINCE_NS = 10**18  # in 2001: earlier times are not dates


def percent(share: float) -> str:
    """Never rounds up to 100 %: 99.96 % of the load is not all of it."""
    hundredfold = share * 100
    text = f"{hundredfold:.1f}"
    return f"{hundredfold:.2f} %" if text == "100.0" and share < 1 else f"{text} %"


def octets(value: float) -> str:
    for unit, scale in _DECIMAL_BYTES:
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value:.0f} B"


def nanoseconds(value: float | None) -> str:
    return NOTHING if value is None else format_ns(value)


def metric_value(metric: str, value: float | None) -> str:
    """The value of a check, in the unit of its metric."""
    return NOTHING if value is None else format_report_value(metric, value)


def bound(text: str) -> str:
    """A bound with mathematical symbols: ≤ instead of <=."""
    for written, read in (("<=", "≤"), (">=", "≥"), ("==", "=")):
        text = text.replace(written, read)
    return text


def plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def label(key: str) -> str:
    """The name of a fact, without the unit, which is shown with its value."""
    for suffix in ("_ns", "_bytes", "_octets", "_share"):
        key = key.removesuffix(suffix)
    return key.replace("_", " ")


def fact(key: str, value: Any) -> str:
    """A fact from the manifest. The suffix of its name is its unit."""
    if isinstance(value, dict):
        return ", ".join(f"{label(str(inner))} {fact(str(inner), of)}" for inner, of in value.items()) or NOTHING
    if isinstance(value, list):
        return ", ".join(fact(key, item) for item in value) or NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        if key.endswith("_ns"):
            return format_ns(value)
        if key.endswith(("_bytes", "_octets")):
            return octets(value)
        if key.endswith("_share"):
            return percent(value)
        if isinstance(value, int):
            return str(value)  # no thousands separator, for example in a pid
        return count(value) if value.is_integer() else f"{value:,.4g}"
    return NOTHING if value in {None, ""} else str(value)


def moment(realtime_ns: int) -> str:
    if realtime_ns < _KNOWN_SINCE_NS:  # an import whose file counts from the start of its test
        return "date unknown"
    return datetime.fromtimestamp(realtime_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def metric_title(metric: str) -> str:
    """A metric as a heading: response p99. What stands before the last dot is a name that people gave."""
    named, dot, last = metric.rpartition(".")
    return f"{named}{dot}{last.replace('_', ' ')}"
