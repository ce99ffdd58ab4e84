"""How much time does a request spend in each tier?

A tier is an action whose name is that of its request, a slash and its own name. Each kind of request is one bar,
divided into the mean times of its tiers, in the order in which a request passes them. Finds requests and draws them;
measures nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from crescendo.record.tables import SpanRow
from crescendo.report import formats
from crescendo.report.plots.time_axis import Chart, plot_name
from crescendo.report.plots.time_bars import mean_time_layout

SEPARATOR = "/"
BARS_DRAWN = 8
# There are few colours, so some tiers share one and differ in pattern.
_STYLES = {
    "network": ("muted", ""),
    "receive": ("purple", ""),
    "queue wait": ("orange", ""),
    "pool wait": ("orange", "/"),
    "database": ("blue", ""),
    "send": ("green", ""),
    "wait for a message": ("muted", "/"),
}
_OTHER = ("purple", "/")


@dataclass(frozen=True)
class RequestKind:
    """One kind of request and the tiers inside it."""

    whole: SpanRow
    tiers: dict[str, SpanRow]  # by name, in the order in which they are passed

    @property
    def rows(self) -> list[SpanRow]:
        return [self.whole, *self.tiers.values()]

    def mean_ns(self, tier: str) -> float:
        """Mean time per request, including requests that never passed the tier."""
        row = self.tiers.get(tier)
        return 0.0 if row is None else row.total_ns / max(self.whole.statistics.count, 1)


def requests_of(rows: list[SpanRow]) -> list[RequestKind]:
    """The requests with at least two tiers, in the order of the rows."""
    by_action = {row.action: row for row in rows}
    found: dict[str, dict[str, SpanRow]] = {}
    for action, row in by_action.items():
        request, separator, tier = action.rpartition(SEPARATOR)
        if separator and request in by_action:
            found.setdefault(request, {})[tier] = row
    order = {tier: index for index, tier in enumerate(_STYLES)}
    return [
        RequestKind(row, dict(sorted(found[action].items(), key=lambda item: order.get(item[0], len(order)))))
        for action, row in by_action.items()
        if len(found.get(action, ())) > 1
    ]


def request_breakdown(requests: list[RequestKind]) -> Chart:
    """One bar per kind of request, the one with the most total time at the top."""
    upwards = requests[:BARS_DRAWN][::-1]
    tiers = [tier for tier in _STYLES if any(tier in each.tiers for each in upwards)]
    tiers += sorted({tier for each in upwards for tier in each.tiers} - set(tiers))
    names = [plot_name(each.whole.action, 20) for each in upwards]
    layout = mean_time_layout(names) | {"barmode": "stack"}
    description = ". ".join(_description(each, tiers) for each in reversed(upwards))
    return Chart(
        {"data": [_bar(tier, upwards) for tier in tiers], "layout": layout}, f"Mean time by tier: {description}.", []
    )


def _bar(tier: str, requests: Iterable[RequestKind]) -> dict[str, Any]:
    tone, pattern = _STYLES.get(tier, _OTHER)
    seconds = [each.mean_ns(tier) / 1e9 for each in requests]
    return {
        "type": "bar",
        "orientation": "h",
        "name": plot_name(tier, 20),
        "x": [float(f"{value:.6g}") for value in seconds],
        "y": list(range(len(seconds))),
        "line": {},
        "marker": {"pattern": {"shape": pattern}},
        "meta": {"tone": tone},
        "hovertemplate": "%{x:.3s}s<extra>%{fullData.name}</extra>",
    }


def _description(request: RequestKind, tiers: list[str]) -> str:
    parts = (f"{tier} {formats.nanoseconds(request.mean_ns(tier))}" for tier in tiers if tier in request.tiers)
    return f"{request.whole.action} {formats.nanoseconds(request.whole.statistics.mean_ns)}: {', '.join(parts)}"
