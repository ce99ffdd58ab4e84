"""How is the time of a request made up of its tiers?

A tier is an action named by its request, a slash and its own name. Each kind of request is one bar, cut into what its
tiers took on average, in the order in which a request passes them. Finds requests and draws them; computes no time.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from crescendo.report import formats
from crescendo.report.data.small_tables import Rows
from crescendo.report.plots.time_axis import Chart, plot_name

SLASH = "/"
BARS_DRAWN = 8
# Colours are few, so some tiers share one and differ in their pattern.
_LOOKS = {
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

    whole: dict[str, Any]
    tiers: dict[str, dict[str, Any]]  # by name, in the order in which they are passed

    @property
    def rows(self) -> Rows:
        return [self.whole, *self.tiers.values()]

    def mean_ns(self, tier: str) -> float:
        """What it took of one request: those that never passed the tier count as well."""
        row = self.tiers.get(tier)
        return 0.0 if row is None else float(row["total_ns"]) / max(int(self.whole["count"]), 1)


def requests_of(rows: Rows) -> list[RequestKind]:
    """The requests that have tiers, in the order of the rows. One part alone breaks nothing up."""
    by_action = {row["action"]: row for row in rows}
    found: dict[str, dict[str, Any]] = {}
    for action, row in by_action.items():
        request, slash, tier = action.rpartition(SLASH)
        if slash and request in by_action:
            found.setdefault(request, {})[tier] = row
    places = {tier: place for place, tier in enumerate(_LOOKS)}
    return [
        RequestKind(row, dict(sorted(found[action].items(), key=lambda item: places.get(item[0], len(places)))))
        for action, row in by_action.items()
        if len(found.get(action, ())) > 1
    ]


def request_breakdown(requests: list[RequestKind]) -> Chart:
    """A bar for each request, the one with the most time at the top."""
    upwards = requests[:BARS_DRAWN][::-1]
    tiers = [tier for tier in _LOOKS if any(tier in each.tiers for each in upwards)]
    tiers += sorted({tier for each in upwards for tier in each.tiers} - set(tiers))
    axis = {
        "title": {"text": "mean time"},
        "tickformat": "~s",
        "ticksuffix": "s",
        "rangemode": "tozero",
        "nticks": 5,
        "tickangle": 0,
        "fixedrange": True,
    }
    names = [plot_name(each.whole["action"], 20) for each in upwards]
    places = {"title": {"text": ""}, "tickvals": list(range(len(upwards))), "ticktext": names, "fixedrange": True}
    layout = {"xaxis": axis, "yaxis": places, "hovermode": "closest", "bargap": 0.35, "barmode": "stack"}
    words = ". ".join(_in_words(each, tiers) for each in reversed(upwards))
    return Chart(
        {"data": [_bar(tier, upwards) for tier in tiers], "layout": layout}, f"Mean time by tier: {words}.", []
    )


def _bar(tier: str, requests: Iterable[RequestKind]) -> dict[str, Any]:
    tone, pattern = _LOOKS.get(tier, _OTHER)
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


def _in_words(request: RequestKind, tiers: list[str]) -> str:
    parts = (f"{tier} {formats.nanoseconds(request.mean_ns(tier))}" for tier in tiers if tier in request.tiers)
    return f"{request.whole['action']} {formats.nanoseconds(request.whole['mean_ns'])}: {', '.join(parts)}"
