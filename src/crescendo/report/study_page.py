"""How does a study become one page, and one text for the documentation?

Every published figure next to ours with the ratio of both, as a chart and as a table, what differs and why, and a link
to the campaign behind each number; of campaigns over sizes also the curves. A function of the document and of the
journals beside it. Judges nothing.
"""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from crescendo.model.campaign import format_metric
from crescendo.record.campaign_journal import read_journal
from crescendo.report import formats
from crescendo.report.data.study_document import StudyDocument, StudyPartResult, StudyPoint, read_study_document
from crescendo.report.document import render
from crescendo.report.page_file import write_page
from crescendo.report.plots.size_curves import SizeCurve, size_curves
from crescendo.report.plots.time_axis import Chart, line, plot_name
from crescendo.report.sections.evidence import Grid

STUDY_PAGE, STUDY_TEXT = "study.html", "study.md"


def write_study_page(directory: str | os.PathLike[str]) -> Path:
    """Write the page and the text of a study next to its document, atomically; returns the path of the page."""
    at = Path(directory)
    document = read_study_document(at)
    path = at / STUDY_PAGE
    curves = {part.name: size_curves(read_journal((at / part.page).parent)) for part in document.parts if part.page}
    write_page(path, render_study(document, curves))
    write_page(at / STUDY_TEXT, study_text(document, curves))
    return path


def render_study(document: StudyDocument, curves: Mapping[str, list[SizeCurve]] | None = None) -> str:
    """The page as one HTML document, with the curves of each of its campaigns over sizes."""
    drawn = [
        (part, point)
        for part in document.parts
        for point in part.points
        if point.ours is not None and point.published is not None
    ]
    missing = [part for part in document.parts if part.reason]
    measured = len(document.parts) - len(missing)
    shown = [(part, curve) for part in document.parts for curve in (curves or {}).get(part.name, ())]
    charts: dict[str, Chart | None] = {"ratios": _chart(drawn)}
    return render(
        "study.html.j2",
        charts | {f"curve-{number}": curve.chart for number, (_, curve) in enumerate(shown)},
        name=document.name,
        title=document.title,
        source=document.source,
        machine=document.machine,
        differs=document.differs,
        sentence=f"{measured} of {len(document.parts)} experiments measured, {len(drawn)} figures beside ours.",
        height=140 + 30 * len(drawn),
        curves=[(part.name, curve) for part, curve in shown],
        parts=[_part(part) for part in document.parts],
    )


def study_text(document: StudyDocument, curves: Mapping[str, list[SizeCurve]] | None = None) -> str:
    """The same numbers in Markdown. A campaign over sizes has a table per curve instead of a row per point."""
    curves = curves or {}
    lines = [
        f"# {document.title}", "", f"Published in: {document.source}. Measured on: {document.machine}.", "",
        "| experiment | figure | published | ours | runs | ours ÷ published | what differs |",
        "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for part in document.parts:
        for point in part.points:
            if curves.get(part.name) and point.published is None:
                continue
            cells = _cells(point)
            ours = cells["ours"] if point.ours is not None else f"not measured: {part.reason or 'no value'}"
            row = [
                f"`{part.file}`", point.label, cells["published"], ours, cells["repeats"], cells["quotient"],
                point.differs,
            ]  # fmt: skip
            lines.append(_row(row))
        if not part.points:
            lines.append(f"| `{part.file}` | | | not measured: {part.reason} | | | |")
    remarks = [f"- `{part.file}`: {each}" for part in document.parts for each in part.remarks]
    lines += ["", *remarks] if remarks else []
    lines += ["", "What differs in all of them:", "", *(f"- {each}" for each in document.differs)]
    for part in document.parts:
        for curve in curves.get(part.name, ()):
            lines += ["", f"## {part.name}: {curve.title}", "", *_table(curve.grid)]
    return "\n".join(lines) + "\n"


def _table(grid: Grid) -> list[str]:
    return [_row(grid.columns), _row(["---"] * len(grid.columns)), *map(_row, grid.rows)]


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(text.replace('|', '/') for text in cells)} |"


def _part(part: StudyPartResult) -> dict[str, Any]:
    return {
        "name": part.name, "file": part.file, "question": part.question, "reason": part.reason,
        "link": quote(part.page), "remarks": part.remarks, "points": [_cells(point) for point in part.points],
    }  # fmt: skip


def _cells(point: StudyPoint) -> dict[str, str]:
    ours = formats.NOTHING
    if point.ours is not None:
        ours = format_metric(point.unit_metric, point.ours)
        if point.low is not None and point.high is not None:
            ends = (format_metric(point.unit_metric, end) for end in (point.low, point.high))
            ours += f" ({' to '.join(ends)})"
    ratio = formats.NOTHING
    if point.ours is not None and point.published:
        ratio = f"× {point.ours / point.published:.3g}"
    published = formats.NOTHING if point.published is None else format_metric(point.unit_metric, point.published)
    return {
        "label": point.label, "metric": point.metric, "published": published, "ours": ours, "quotient": ratio,
        "repeats": str(point.repeats), "differs": point.differs,
    }  # fmt: skip


def _chart(drawn: list[tuple[StudyPartResult, StudyPoint]]) -> Chart | None:
    """One mark per figure: how many times the published value ours is."""
    if not drawn:
        return None
    upwards = drawn[::-1]
    rows = list(range(len(upwards)))
    ratios = [(point.ours or 0.0) / (point.published or 1.0) for _, point in upwards]
    names = [plot_name(f"{part.name}, {point.label}", 40) for part, point in upwards]
    ends = [math.log10(ratio) for ratio in [*ratios, 1.0] if ratio > 0]
    margin = 0.06 * (max(ends) - min(ends)) + 0.03
    marks = {
        "type": "scatter", "mode": "markers", "name": "ours", "x": ratios, "y": rows, "line": {},
        "marker": {"size": 10}, "meta": {"tone": "orange"}, "text": names,
        "hovertemplate": "%{text}: × %{x:.3g}<extra></extra>",
    }  # fmt: skip
    equal = line("published", [1.0, 1.0], [-0.6, len(rows) - 0.4], "blue", hover="published", dash="7px,4px")
    layout = {
        "xaxis": {"title": {"text": "ours ÷ published"}, "type": "log", "fixedrange": True, "nticks": 6,
                  "tickformat": "~g", "range": [min(ends) - margin, max(ends) + margin]},
        "yaxis": {"title": {"text": ""}, "tickvals": rows, "ticktext": names, "fixedrange": True, "zeroline": False,
                  "range": [-0.7, len(rows) - 0.3]},
        "hovermode": "closest",
    }  # fmt: skip
    described = "; ".join(f"{name} × {ratio:.3g}" for name, ratio in zip(names, ratios, strict=True))
    return Chart({"data": [equal | {"mode": "lines"}, marks], "layout": layout}, f"Ours by published: {described}.", [])
