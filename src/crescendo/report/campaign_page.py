"""How does a campaign become one page?

For every metric the ranked factors in a sentence each, the effects with their intervals, interactions and residuals;
then the design, and every run with its report. A function of the journal and the effects, the only files that it reads.
Judges nothing.
"""

import math
import os
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import quote

from crescendo.model.campaign import format_metric
from crescendo.model.verdict import Outcome
from crescendo.record.campaign_effects import CampaignEffects, FactorEffect, Interaction, MetricEffects, read_effects
from crescendo.record.campaign_journal import Attempt, AttemptState, CampaignJournal, read_journal
from crescendo.record.stand_in import stand_in_remarks
from crescendo.report import formats
from crescendo.report.document import render
from crescendo.report.page_file import write_page
from crescendo.report.plots.campaign_points import distribution_chart, map_grid, point_grid
from crescendo.report.plots.line_styles import line_style
from crescendo.report.plots.size_curves import size_curves
from crescendo.report.plots.time_axis import Chart, line, plot_name
from crescendo.report.plots.value_axis import value_axis
from crescendo.report.sections.growth import growth_sections
from crescendo.report.sections.headline import ICONS, HeadlineTile

CAMPAIGN_PAGE = "campaign.html"
_MOST_BARS = 15
_LOGARITHMIC = "logarithmic"
_BASES = {
    "repeats": "Intervals are 95 %, from the pooled variance of the repeats.",
    "lenth": "Nothing was repeated: bars are Lenth's margin of error, by the size of the other effects.",
    "lack of fit": "Nothing was repeated: intervals are 95 %, from what the factors leave unexplained.",
    "none": "Nothing was repeated, so how certain these effects are is unknown.",
}


def write_campaign_page(directory: str | os.PathLike[str]) -> Path:
    """Write the page of a campaign next to its journal, atomically, and return its path."""
    at = Path(directory)
    path = at / CAMPAIGN_PAGE
    write_page(path, render_campaign(read_journal(at), read_effects(at)))
    return path


def render_campaign(journal: CampaignJournal, effects: CampaignEffects) -> str:
    """The page as one HTML document."""
    charts: dict[str, Chart | None] = {}
    sections = []
    for number, one in enumerate(effects.metrics):
        charts[f"effects-{number}"] = _effect_chart(one)
        interactions = []
        for position, interaction in enumerate(one.interactions):
            charts[f"interaction-{number}-{position}"] = _interaction_chart(one, interaction)
            interactions.append(f"interaction-{number}-{position}")
        charts[f"residuals-{number}"] = _residual_chart(one)
        charts[f"distribution-{number}"] = distribution_chart(journal, one)
        grids = {"Every point": point_grid(journal, one), "Map of means": map_grid(journal, one)}
        shown = {title: grid for title, grid in grids.items() if grid is not None}
        sections.append(_section(number, one, interactions) | {"grids": shown})
    growth = growth_sections(effects)
    charts |= {section.id: section.chart for section in growth}
    curves = size_curves(journal)
    charts |= {f"curve-{number}": each.chart for number, each in enumerate(curves)}
    failed = sum(attempt.outcome == Outcome.FAIL for attempt in journal.counted)
    outcome = Outcome.PASS if journal.complete else Outcome.INVALID
    return render(
        "campaign.html.j2",
        charts,
        name=journal.name,
        outcome=str(outcome),
        icon=ICONS[outcome],
        title="complete" if journal.complete else "incomplete",
        sentence=_ending(journal, failed),
        remarks=stand_in_remarks([attempt.stand_ins for attempt in journal.counted]),
        tiles_shown=_tiles(journal),
        curves=curves,
        sections=sections,
        growth=growth,
        factors=[(factor.name, ", ".join(factor.levels), ", ".join(factor.keys)) for factor in journal.factors],
        design=_design(journal),
        aliases=journal.aliases,
        metrics=[formats.metric_title(metric) for metric in journal.metrics],
        runs=[_run_row(number, journal, attempt) for number, attempt in enumerate(journal.attempts, 1)],
    )


def _ending(journal: CampaignJournal, failed: int) -> str:
    text = journal.ending or "still in progress"
    text = f"{text[:1].upper()}{text[1:]}."
    return f"{text} {formats.plural(failed, 'run')} of them failed their checks." if failed else text


def _tiles(journal: CampaignJournal) -> list[HeadlineTile]:
    states = Counter(attempt.state for attempt in journal.attempts)
    repeats = Counter(attempt.point for attempt in journal.counted)
    per_point = sorted({repeats[point] for point in range(len(journal.points))})
    several = f"{per_point[0]} to {per_point[-1]}" if len(per_point) > 1 else str(per_point[0])
    seconds = sum(attempt.seconds for attempt in journal.attempts)
    left_out = states[AttemptState.INVALID] + states[AttemptState.INTERRUPTED] + states[AttemptState.STARTED]
    took = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
    took = took if seconds < 3600 else f"{seconds / 3600:.1f} h"
    return [
        HeadlineTile("Runs that count", formats.count(states[AttemptState.COUNTED]), note=f"{several} per point"),
        HeadlineTile("Points", formats.count(len(journal.points)), note=f"design {journal.design}"),
        HeadlineTile("Not counted", formats.count(left_out), note="invalid or interrupted; never part of a number"),
        HeadlineTile("Time", took, note="of all runs, with start and analysis"),
    ]


def _design(journal: CampaignJournal) -> str:
    varied = formats.plural(len(journal.factors), "factor")
    order = f"order drawn with seed {journal.seed}, in blocks of one repeat of every point"
    stated = "; ".join(f"{name} = {'·'.join(parts)}" for name, parts in journal.generators.items())
    generated = f", generators {stated}" if stated else ""
    return f"{journal.design} over {varied}: {formats.plural(len(journal.points), 'point')}{generated}; {order}."


def _section(number: int, one: MetricEffects, interactions: list[str]) -> dict[str, Any]:
    mean = formats.NOTHING if one.mean is None else format_metric(one.metric, one.mean)
    ends = ""
    if one.low is not None and one.high is not None:
        ends = f" ({format_metric(one.metric, one.low)} to {format_metric(one.metric, one.high)})"
    return {
        "id": f"metric-{number}",
        "number": number,
        "metric": formats.metric_title(one.metric),
        "mean": mean + ends,
        "scale": one.scale,
        "scale_reason": one.scale_reason,
        "basis": _BASES.get(one.basis, ""),
        "error_share": formats.percent(one.error_share),
        "sentences": [each.sentence for each in one.effects if each.order == 1],
        "joint": [each.sentence for each in one.effects if each.order == 2 and each.significant],
        "notes": one.notes,
        "interactions": interactions,
        "rows": [_effect_row(one, each) for each in one.effects],
    }


def _effect_row(one: MetricEffects, effect: FactorEffect) -> dict[str, Any]:
    judged = {True: "yes", False: "no", None: formats.NOTHING}[effect.significant]
    ends = formats.NOTHING
    if effect.low is not None and effect.high is not None:
        ends = f"{_value(one, effect.low)} to {_value(one, effect.high)}"
    value = formats.NOTHING if effect.value is None else _value(one, effect.value)
    return {
        "name": effect.name, "cells": [value, ends, formats.percent(effect.share), judged],
        "aliases": ", ".join(effect.aliases),
    }  # fmt: skip


def _value(one: MetricEffects, value: float) -> str:
    if one.scale == _LOGARITHMIC:
        return f"× {value:.3g}"
    return f"{'−' if value < 0 else '+'}{format_metric(one.metric, abs(value))}"


def _effect_chart(one: MetricEffects) -> Chart | None:
    """One mark per effect with its interval, the largest on top."""
    drawn = [each for each in one.effects if each.value is not None][:_MOST_BARS][::-1]
    if not drawn:
        return None
    scale = _relative(one)
    traces = []
    for judged, name, tone, symbol in (
        (True, "effect", "orange", "circle"),
        (False, "no effect found", "muted", "circle-open"),
        (None, "not judged", "blue", "diamond-open"),
    ):
        mine = [(at, each) for at, each in enumerate(drawn) if each.significant is judged]
        if not mine:
            continue
        x = [scale(each.value) for _, each in mine]
        ends = [(scale(each.low), scale(each.high)) for _, each in mine]
        bars = {
            "type": "data", "symmetric": False, "thickness": 1.5, "width": 5,
            "array": [high - at for at, (_, high) in zip(x, ends, strict=True)],
            "arrayminus": [at - low for at, (low, _) in zip(x, ends, strict=True)],
        }  # fmt: skip
        trace: dict[str, Any] = {
            "type": "scatter", "mode": "markers", "name": name, "x": x, "y": [at for at, _ in mine],
            "line": {}, "marker": {"size": 9, "symbol": symbol}, "meta": {"tone": tone},
            "text": [plot_name(each.sentence, 160) for _, each in mine], "hovertemplate": "%{text}<extra></extra>",
        }  # fmt: skip
        if all(each.low is not None for _, each in mine):
            trace["error_x"] = bars
        traces.append(trace)
    layout = {
        "xaxis": {"title": {"text": "relative to the mean"},
                  "tickformat": "+~%", "fixedrange": True, "zeroline": True, "zerolinewidth": 2, "nticks": 4,
                  "tickangle": 0},
        "yaxis": {"title": {"text": ""}, "tickvals": list(range(len(drawn))), "fixedrange": True, "zeroline": False,
                  "ticktext": _short_names([each.name for each in drawn]), "range": [-0.7, len(drawn) - 0.3]},
        "hovermode": "closest",
    }  # fmt: skip
    label = f"Effects on {one.metric}, the largest first: {', '.join(each.name for each in reversed(drawn))}."
    return Chart({"data": traces, "layout": layout}, label, [_BASES.get(one.basis, "")])


def _short_names(names: list[str]) -> list[str]:
    """Without the part of each key that says where it stands, if that leaves them different."""
    short = ["·".join(part.rpartition(".")[2] for part in name.split("·")) for name in names]
    return [plot_name(name, 22) for name in (short if len(set(short)) == len(names) else names)]


def _relative(one: MetricEffects) -> Any:
    """A value of an effect relative to the mean."""
    mean = one.mean or 1.0
    if one.scale == _LOGARITHMIC:
        return lambda value: 0.0 if value is None else value - 1
    return lambda value: 0.0 if value is None else value / abs(mean)


def _interaction_chart(one: MetricEffects, found: Interaction) -> Chart | None:
    """One line per level of the second factor: parallel lines do not interact."""
    first, second = found.factors
    traces = []
    for number, level in enumerate(found.levels[1]):
        column = [row[number] for row in found.means]
        y = [math.nan if value is None else value for value in column]
        tone, dash = line_style(number)
        trace = line(
            plot_name(f"{second} {level}"), list(range(len(found.levels[0]))), y, tone, hover="%{text}", dash=dash
        )
        trace["mode"] = "lines+markers"
        trace["text"] = ["" if value is None else format_metric(one.metric, value) for value in column]
        traces.append(trace)
    drawn = [value for row in found.means for value in row if value is not None]
    if not drawn:
        return None
    layout = {
        "xaxis": {"title": {"text": plot_name(first)}, "tickvals": list(range(len(found.levels[0]))),
                  "ticktext": [plot_name(level) for level in found.levels[0]], "fixedrange": True,
                  "range": [-0.3, len(found.levels[0]) - 0.7]},
        "yaxis": value_axis(one.metric, drawn),
        "hovermode": "closest",
    }  # fmt: skip
    return Chart({"data": traces, "layout": layout}, f"Means of {one.metric} by {first} and {second}.", [])


def _residual_chart(one: MetricEffects) -> Chart | None:
    """Residuals against normal quantiles: a straight line if they are normal."""
    if not one.residuals:
        return None
    points = [(each.normal, each.residual) for each in one.residuals]
    trace = {
        "type": "scatter", "mode": "markers", "name": "repeat", "x": [x for x, _ in points],
        "y": [y for _, y in points], "line": {}, "marker": {"size": 7}, "meta": {"tone": "blue"},
        "hovertemplate": "%{y:.4g}<extra>residual</extra>",
    }  # fmt: skip
    unit = "of the logarithm" if one.scale == _LOGARITHMIC else "in base units"
    layout = {
        "xaxis": {"title": {"text": "normal quantile"}, "fixedrange": True},
        "yaxis": {"title": {"text": f"residual, {unit}"}, "fixedrange": True},
        "hovermode": "closest",
    }
    note = "Points on a straight line are normal. " + (one.scale_reason[:1].upper() + one.scale_reason[1:])
    return Chart({"data": [trace], "layout": layout}, f"Residuals of {one.metric}.", [f"{note}."])


def _run_row(number: int, journal: CampaignJournal, attempt: Attempt) -> dict[str, Any]:
    point = journal.points[attempt.point]
    counted = attempt.state is AttemptState.COUNTED
    values = [
        format_metric(metric, attempt.values[metric]) if metric in attempt.values else formats.NOTHING
        for metric in journal.metrics
    ]
    outcome = Outcome(attempt.outcome) if counted else Outcome.INVALID
    return {
        "number": number, "point": attempt.point + 1, "repeat": attempt.repeat + 1, "levels": point.levels,
        "shown": values, "outcome": str(outcome), "icon": ICONS[outcome],
        "state": str(attempt.state), "reason": attempt.reason,
        "link": f"{quote(attempt.run)}/report.html" if attempt.run and attempt.outcome else "",
    }  # fmt: skip
