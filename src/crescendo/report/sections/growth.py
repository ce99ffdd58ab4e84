"""How does the page of a campaign show growth: throughput with its laws, and latency with its knee?

Formats and draws what `effects.json` says; fits and judges nothing.
"""

from dataclasses import dataclass
from statistics import fmean
from typing import Any

from crescendo.model.campaign import format_metric
from crescendo.record.campaign_effects import CampaignEffects, FittedLaw, LoadKnee, ScalingCurve
from crescendo.report.plots.time_axis import Chart, band, line, plot_name
from crescendo.report.plots.value_axis import value_axis

LAW_NAMES = {"usl": "Universal Scalability Law", "amdahl": "Amdahl's law"}
_LAW_STYLES = {"usl": ("orange", "solid"), "amdahl": ("green", "7px,4px")}


@dataclass(frozen=True)
class GrowthSection:
    """One chart, what it says in sentences, and warnings."""

    id: str
    title: str
    chart: Chart
    sentences: list[str]
    warnings: list[str]


def growth_sections(effects: CampaignEffects) -> list[GrowthSection]:
    curves = [_scaling(number, curve) for number, curve in enumerate(effects.scaling)]
    return curves + [_knee(number, knee) for number, knee in enumerate(effects.knees)]


def law_sentence(metric: str, law: FittedLaw) -> str:
    """A fitted law in one sentence, with its intervals."""
    parts = []
    for name, (value, low, high) in law.coefficients.items():
        if name == "one":
            continue
        parts.append(f"{name} {value:.3g} ({low:.2g} to {high:.2g})")
    peak = "it only rises" if law.peak is None else f"its peak is at {law.peak:,.0f}"
    one = format_metric(metric, law.coefficients["one"][0])
    return (
        f"{LAW_NAMES[law.law]}: {one} from one unit, {', '.join(parts)}; {peak}; "
        f"residuals {law.residual_share:.1%} of the mean."
    )


def knee_sentence(knee: LoadKnee) -> str:
    """The knee in one sentence."""
    at = knee.loads.index(knee.knee)
    return (
        f"Throughput over {knee.metric} is highest at {knee.factor} {knee.knee:g}: "
        f"{format_metric('rate', knee.throughputs[at])} at {format_metric(knee.metric, knee.latencies[at])}."
    )


def _scaling(number: int, curve: ScalingCurve) -> GrowthSection:
    points = [(size, value) for size, values in zip(curve.sizes, curve.values, strict=True) for value in values]
    traces = [_marks("run", [size for size, _ in points], [value for _, value in points], curve.metric)]
    for law in curve.laws:
        tone, dash = _LAW_STYLES[law.law]
        x, y = [size for size, _ in law.curve], [value for _, value in law.curve]
        traces.append(line(LAW_NAMES[law.law], x, y, tone, hover="%{y:,.4s}", dash=dash) | {"mode": "lines"})
    drawn = [0.0, *(value for _, value in points), *(value for law in curve.laws for _, value in law.curve)]
    layout = {
        "xaxis": {"title": {"text": plot_name(curve.factor)}, "fixedrange": True},
        "yaxis": value_axis(curve.metric, drawn) | {"range": [0, max(drawn) * 1.1]},
        "hovermode": "closest",
    }
    means = "; ".join(
        f"{size:g}: {format_metric(curve.metric, fmean(values))}"
        for size, values in zip(curve.sizes, curve.values, strict=True)
    )
    chart = Chart({"data": traces, "layout": layout}, f"{curve.metric} by {curve.factor}: {means}.", [])
    warnings = [f"{LAW_NAMES[law.law]}: {warning}." for law in curve.laws for warning in law.warnings]
    if curve.reason:
        warnings.append(f"{curve.reason}.")
    sentences = [law_sentence(curve.metric, law) for law in curve.laws]
    title = f"{curve.metric} grows with {curve.factor}"
    return GrowthSection(f"scaling-{number}", title, chart, sentences, warnings)


def _knee(number: int, knee: LoadKnee) -> GrowthSection:
    traces = [
        _marks(knee.metric, knee.throughputs, knee.latencies, knee.metric)
        | {"mode": "lines+markers", "line": {"width": 2, "dash": "solid"}}
    ]
    at = knee.loads.index(knee.knee)
    shown = knee.throughputs[at]
    width = (max(knee.throughputs) - min(knee.throughputs)) * 0.006 or 1.0
    layout = {
        "xaxis": value_axis("rate", knee.throughputs, title="throughput"),
        "yaxis": value_axis(knee.metric, [0.0, *knee.latencies]) | {"range": [0, max(knee.latencies) * 1.1]},
        "shapes": [band(shown - width, shown + width) | {"name": "bracket"}],
        "hovermode": "closest",
    }
    described = "; ".join(
        f"{format_metric('rate', rate)}: {format_metric(knee.metric, value)}"
        for rate, value in zip(knee.throughputs, knee.latencies, strict=True)
    )
    notes = ["Each point is the mean of one level. Marked: the highest ratio of throughput to latency."]
    chart = Chart({"data": traces, "layout": layout}, f"{knee.metric} by throughput: {described}.", notes)
    warnings = [f"{knee.warning[:1].upper()}{knee.warning[1:]}."] if knee.warning else []
    title = f"{knee.metric} against throughput"
    return GrowthSection(f"knee-{number}", title, chart, [knee_sentence(knee)], warnings)


def _marks(name: str, x: list[float], y: list[float], metric: str) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "markers", "name": plot_name(name), "x": x, "y": y, "line": {},
        "marker": {"size": 8}, "meta": {"tone": "blue"}, "text": [format_metric(metric, value) for value in y],
        "hovertemplate": "%{x:.4~g}: %{text}<extra></extra>",
    }  # fmt: skip
