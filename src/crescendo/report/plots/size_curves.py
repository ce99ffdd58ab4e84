"""How do the figures of a campaign depend on the size of messages?

For campaigns over sizes and one other factor, such as the network: a curve per level of that factor, on logarithmic
axes; of a rate also the bandwidth and the time that 10,000 messages take. The tables have the values, and how many
times those of a single system they are: of the level `single-NAME` where a level is `NAME-…`, else of the first one.
Draws nothing for other campaigns.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from crescendo.model.campaign import format_metric
from crescendo.model.metrics import RATE
from crescendo.model.units import Size, format_ns
from crescendo.record.campaign_journal import CampaignJournal, JournalFactor
from crescendo.report import formats
from crescendo.report.plots.line_styles import line_style
from crescendo.report.plots.log_axis import value_axis
from crescendo.report.plots.time_axis import Chart, line, plot_name
from crescendo.report.sections.evidence import Grid

_TOTAL = 10_000
SINGLE = "single-"
_NS_PER_S = 1e9
_LEAST_SIZES = 2

Values = Mapping[str, Mapping[int, float]]
"""Level of the other factor -> size in bytes -> mean."""

Written = Callable[[float], str]


@dataclass(frozen=True)
class SizeCurve:
    """One chart with the values behind it."""

    title: str
    by: str  # the factor that has a curve per level
    chart: Chart
    grid: Grid


def size_curves(journal: CampaignJournal) -> list[SizeCurve]:
    """The curves of every metric; none if the campaign is not over sizes and one other factor."""
    sizes = [factor for factor in journal.factors if len(factor.keys) == 1 and _is_size(factor.keys[0])]
    others = [factor for factor in journal.factors if factor not in sizes]
    if len(sizes) != 1 or len(others) != 1 or len(sizes[0].levels) < _LEAST_SIZES:
        return []
    found = []
    for metric in journal.metrics:
        values = _means(journal, metric, sizes[0], others[0])
        found += [_curve(metric, others[0].name, values, lambda value, metric=metric: format_metric(metric, value))]  # type: ignore[misc]
        if metric == RATE:
            found.append(_curve("bandwidth", others[0].name, _bandwidth(values), _per_second))
            found.append(_curve(f"total time of {_TOTAL:,} messages", others[0].name, _total_time(values), format_ns))
    return [each for each in found if each is not None]


def _is_size(key: str) -> bool:
    return key.startswith("workload.") and key.endswith(".size")


def _means(journal: CampaignJournal, metric: str, size: JournalFactor, other: JournalFactor) -> Values:
    names = [factor.name for factor in journal.factors]
    at_size, at_other = names.index(size.name), names.index(other.name)
    collected: dict[str, dict[int, list[float]]] = {level: defaultdict(list) for level in other.levels}
    for attempt in journal.counted:
        value = attempt.values.get(metric)
        levels = journal.points[attempt.point].levels
        if value is not None and value > 0:
            collected[levels[at_other]][int(Size.parse(levels[at_size]))].append(value)
    return {
        level: {octets: fmean(found) for octets, found in sorted(mine.items())} for level, mine in collected.items()
    }


def _bandwidth(rates: Values) -> Values:
    return {level: {octets: rate * octets for octets, rate in mine.items()} for level, mine in rates.items()}


def _total_time(rates: Values) -> Values:
    return {
        level: {octets: _TOTAL / rate * _NS_PER_S for octets, rate in mine.items()} for level, mine in rates.items()
    }


def _per_second(value: float) -> str:
    return f"{formats.octets(value)}/s"


def _curve(title: str, by: str, values: Values, written: Written) -> SizeCurve | None:
    drawn = {level: mine for level, mine in values.items() if mine}
    if not drawn:
        return None
    traces = []
    for number, (level, mine) in enumerate(drawn.items()):
        tone, dash = line_style(number)
        trace = line(plot_name(level), list(mine), list(mine.values()), tone, hover="%{text}", dash=dash)
        trace["mode"] = "lines+markers"
        trace["text"] = [f"{formats.octets(octets)}: {written(value)}" for octets, value in mine.items()]
        traces.append(trace)
    sizes = sorted({octets for mine in drawn.values() for octets in mine})
    size_axis = value_axis("size of messages", sizes, formats.octets)
    size_axis |= {"tickvals": sizes, "ticktext": [formats.octets(octets) for octets in sizes]}
    every = [value for mine in drawn.values() for value in mine.values()]
    layout = {"xaxis": size_axis, "yaxis": value_axis(plot_name(title), every, written), "hovermode": "closest"}
    label = f"{title} against the size of messages: {', '.join(drawn)}."
    return SizeCurve(title, by, Chart({"data": traces, "layout": layout}, label, []), _grid(drawn, sizes, written))


def _grid(values: Values, sizes: list[int], written: Written) -> Grid:
    rows = []
    for level, mine in values.items():
        reference = values[reference_level(level, list(values))]
        cells = []
        for octets in sizes:
            ratio = f" (× {mine[octets] / reference[octets]:.2f})" if octets in mine and octets in reference else ""
            cells.append(written(mine[octets]) + ratio if octets in mine else formats.NOTHING)
        rows.append([level, *cells])
    return Grid(["Level", *(formats.octets(octets) for octets in sizes)], rows)


def reference_level(level: str, levels: Sequence[str]) -> str:
    """Which level this one is compared with."""
    names = {each.removeprefix(SINGLE): each for each in levels if each.startswith(SINGLE)}
    begun = [name for name in names if f"{level.removeprefix(SINGLE)}-".startswith(f"{name}-")]
    return names[max(begun, key=len)] if begun else levels[0]
