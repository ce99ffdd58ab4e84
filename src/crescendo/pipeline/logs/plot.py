"""How are the windows of a log drawn?

With Matplotlib, into memory: no display, no font from outside its package, no settings of the user, and no date in the
file, so that the same logs give the same bytes. Chooses no values: that is the job of `points`.
"""

import io
from collections.abc import Sequence

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.transforms import ScaledTranslation, Transform

from crescendo.pipeline.logs.points import Bars, Centre, PlotLine, Show, plot_lines
from crescendo.pipeline.logs.windows import HIGH_BAR, LOW_BAR, Slot

WIDTH, HEIGHT = 1000, 700
"""Pixels of a PNG, points of an EPS."""

_PER_INCH = 72
_PAD = 12 / _PER_INCH
_FONT = "DejaVu Sans"
# The Okabe-Ito palette, which colour-blind readers can distinguish; from the seventh line on, dashes distinguish lines.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_DASHES = ("-", "--")
_OFFSET = 3
"""Lines are shifted by this many points, so that their bars do not hide each other."""
_LEGEND_CHARACTERS = 110  # that fit next to each other, with a line in front of each name
_INK, _GRID = "#1e1e1e", "#dddddd"
_STYLE = {
    "font.family": _FONT, "font.size": 13, "figure.titlesize": 16, "text.parse_math": False, "ps.fonttype": 3,
    "text.color": _INK, "axes.labelcolor": _INK, "axes.edgecolor": _INK, "xtick.color": _INK, "ytick.color": _INK,
    "axes.grid": True, "axes.axisbelow": True, "grid.color": _GRID, "grid.linewidth": 1, "axes.spines.top": False,
    "axes.spines.right": False, "axes.xmargin": 0.03, "legend.frameon": False, "lines.markersize": 5,
}  # fmt: skip
_METADATA = {"png": {"Software": "crescendo"}, "eps": {"Creator": "crescendo"}}


def plot(slots: Sequence[Slot], show: Show, centre: Centre, bars: Bars, form: str) -> bytes:
    """The content of a file of this format, png or eps."""
    lines = plot_lines(slots, show, centre, bars)
    with style.context(["default", _STYLE]):
        return _rendered(draw(lines, *_titles(show, centre, bars)), form)


def draw(lines: dict[str, PlotLine], title: str, unit: str) -> Figure:
    """One line with error bars per type, and a legend above the axes."""
    figure = Figure(
        (WIDTH / _PER_INCH, HEIGHT / _PER_INCH), _PER_INCH, layout=ConstrainedLayoutEngine(w_pad=_PAD, h_pad=_PAD)
    )
    axes = figure.subplots()
    figure.suptitle(title)
    axes.set_xlabel("seconds")
    axes.set_ylabel(unit)
    axes.xaxis.set_major_formatter("{x:,.10g}")
    axes.yaxis.set_major_formatter("{x:,.10g}")
    handles = []
    for number, line in enumerate(lines.values()):
        shift = _OFFSET * (number - (len(lines) - 1) / 2) / _PER_INCH
        handles += _draw_line(axes, line, number, ScaledTranslation(shift, 0, figure.dpi_scale_trans))
    lowest = float(np.nanmin(np.concatenate([line.middles + line.lows for line in lines.values()])))
    axes.autoscale_view()
    axes.set_ylim(bottom=min(lowest, 0.0))
    names = [_drawable(name) for name in lines]
    columns = min(max(_LEGEND_CHARACTERS // (max(map(len, names)) + 6), 1), len(names))
    axes.legend(handles, names, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=columns)
    return figure


def _draw_line(axes: Axes, line: PlotLine, number: int, shift: Transform) -> list[Line2D]:
    colour, dashes = _COLOURS[number % len(_COLOURS)], _DASHES[number // len(_COLOURS)]
    middles, lows, highs = (np.array(values) for values in (line.middles, line.lows, line.highs))
    shifted = axes.transData + shift
    red, green, blue = to_rgb(colour)
    tint = (1 + red) / 2, (1 + green) / 2, (1 + blue) / 2  # EPS has no transparency
    # Around its own middle: a mean may lie outside the percentiles.
    axes.errorbar(
        line.seconds, (lows + highs) / 2, (highs - lows) / 2,
        fmt="none", ecolor=tint, elinewidth=1, capsize=4, transform=shifted, zorder=2,
    )  # fmt: skip
    for values in (middles, lows, highs):
        axes.update_datalim(np.column_stack((line.seconds, values)))  # Matplotlib ignores what is shifted
    return axes.plot(line.seconds, middles, dashes, color=colour, marker="o", transform=shifted, zorder=3)


def _drawable(text: str) -> str:
    """The text with a question mark for each character that the font does not have."""
    known = get_font(findfont(_FONT)).get_charmap()
    return "".join(character if ord(character) in known else "?" for character in text)


def _titles(show: Show, centre: Centre, bars: Bars) -> tuple[str, str]:
    """The title, and what the vertical axis counts."""
    if show == "throughput":
        return "Throughput", "actions per second"
    spread = f"bars from {LOW_BAR} % to {HIGH_BAR} %" if bars == "percentile" else "bars of one standard deviation"
    return f"Response time: {centre}, {spread}", "milliseconds"


def _rendered(figure: Figure, form: str) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format=form, dpi=_PER_INCH, metadata=_METADATA[form])
    # Matplotlib cannot omit the date of an EPS.
    lines = content.getvalue().splitlines(keepends=True) if form == "eps" else [content.getvalue()]
    return b"".join(line for line in lines if not line.startswith(b"%%CreationDate"))
