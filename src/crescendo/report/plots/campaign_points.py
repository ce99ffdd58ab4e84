"""How do the repeats of each point of a campaign vary?

A table of every point with its largest value, mean and deviation, a map of the means over two factors, and the
distribution function of the points that were repeated often enough. Formats what the effects hold; judges nothing.
"""

import statistics

from crescendo.model.campaign import format_metric
from crescendo.record.campaign_effects import MetricEffects
from crescendo.record.campaign_journal import CampaignJournal
from crescendo.report import formats
from crescendo.report.plots.line_styles import LINE_STYLES, LINES_DRAWN
from crescendo.report.plots.time_axis import Chart, line, plot_name
from crescendo.report.sections.evidence import Grid

MIN_REPEATS = 5
"""A distribution function of fewer values would be a few steps."""


def point_grid(journal: CampaignJournal, one: MetricEffects) -> Grid | None:
    """One row per point: its levels, and largest, mean, smallest value and deviation of its repeats."""
    names = [factor.name for factor in journal.factors]
    if not names or not any(one.values):
        return None
    rows = []
    for point, values in zip(journal.points, one.values, strict=True):
        shown = [formats.NOTHING] * 4
        if values:
            deviation = statistics.stdev(values) if len(values) > 1 else None
            found = (max(values), statistics.fmean(values), deviation, min(values))
            shown = [formats.NOTHING if value is None else format_metric(one.metric, value) for value in found]
        rows.append([*point.levels, str(len(values)), *shown])
    return Grid([*names, "runs", "largest", "mean", "deviation", "smallest"], rows, names=len(names))


def map_grid(journal: CampaignJournal, one: MetricEffects) -> Grid | None:
    """The means over two factors; None with another number of factors."""
    if len(journal.factors) != 2 or not any(one.values):
        return None
    down, across = journal.factors
    means = {
        tuple(point.levels): statistics.fmean(values)
        for point, values in zip(journal.points, one.values, strict=True)
        if values
    }
    rows = [[level, *(_mean(one, means.get((level, other))) for other in across.levels)] for level in down.levels]
    return Grid([f"{down.name} ↓ {across.name} →", *across.levels], rows)


def _mean(one: MetricEffects, value: float | None) -> str:
    return formats.NOTHING if value is None else format_metric(one.metric, value)


def distribution_chart(journal: CampaignJournal, one: MetricEffects) -> Chart | None:
    """The share of repeats with at most this value."""
    repeated = [number for number, values in enumerate(one.values) if len(values) >= MIN_REPEATS]
    if not repeated:
        return None
    traces = []
    for number, (tone, dash) in zip(repeated, LINE_STYLES, strict=False):
        values = sorted(one.values[number])
        name = ", ".join(journal.points[number].levels) or journal.name
        shares = [(at + 1) / len(values) for at in range(len(values))]
        trace = line(plot_name(name), values, shares, tone, hover="%{text}", dash=dash)
        trace["line"]["shape"] = "hv"
        trace["text"] = [
            f"{share:.0%} up to {format_metric(one.metric, value)}" for value, share in zip(values, shares, strict=True)
        ]
        traces.append(trace)
    low, high = min(min(one.values[number]) for number in repeated), max(max(one.values[number]) for number in repeated)
    ticks = [low + (high - low) * step / 4 for step in range(5)] if high > low else [low]
    layout = {
        "xaxis": {"title": {"text": plot_name(one.metric)}, "fixedrange": True, "tickvals": ticks,
                  "ticktext": [format_metric(one.metric, tick) for tick in ticks]},
        "yaxis": {"title": {"text": "share of the repeats"}, "tickformat": ".0%", "range": [0, 1.05],
                  "fixedrange": True},
        "hovermode": "closest",
    }  # fmt: skip
    notes = ["Distribution function: the share of repeats with at most this value."]
    if len(repeated) > LINES_DRAWN:
        notes.append(f"The first {LINES_DRAWN} of {len(repeated)} points; the table has all of them.")
    return Chart({"data": traces, "layout": layout}, f"Distribution of {one.metric} over the repeats.", notes)
