"""How does a queueing model next to measurements become one page?

Throughput and response over the number of clients, measured, predicted, and predicted after a change; the errors in
a table, the laws of every run, and the stations. A function of the document. Judges nothing.
"""

import os
from pathlib import Path

from crescendo.model.campaign import format_metric
from crescendo.report import formats
from crescendo.report.data.model_document import ModelDocument, ModelRow
from crescendo.report.document import render
from crescendo.report.page_file import write_page
from crescendo.report.plots.time_axis import Chart, line
from crescendo.report.plots.value_axis import value_axis
from crescendo.report.sections.evidence import Grid

_STYLES = {"measured": ("blue", "solid"), "model": ("orange", "7px,4px"), "after the change": ("green", "2px,2px")}


def write_model_page(document: ModelDocument, path: str | os.PathLike[str]) -> Path:
    """Write the page, atomically, and return its path."""
    at = Path(path)
    write_page(at, render_model(document))
    return at


def render_model(document: ModelDocument) -> str:
    """The page as one HTML document."""
    rows = document.rows
    throughput: dict[str, list[float | None]] = {
        "measured": [row.throughput for row in rows],
        "model": [row.predicted_throughput for row in rows],
        "after the change": [row.changed_throughput for row in rows],
    }
    response: dict[str, list[float | None]] = {
        "measured": [row.response_ns for row in rows],
        "model": [row.predicted_response_ns for row in rows],
        "after the change": [row.changed_response_ns for row in rows],
    }
    charts = {
        "throughput": _chart(rows, throughput, "rate", "requests per second"),
        "response": _chart(rows, response, "response_p50", "mean response"),
    }
    return render(
        "model.html.j2",
        charts,
        base=document.base,
        changes=", ".join(document.changes),
        think=formats.nanoseconds(document.think_ns),
        stations=_stations(document),
        predictions=_predictions(document),
        laws=_laws(rows),
    )


def error(predicted: float, measured: float) -> str:
    """How far a prediction is from a measurement, relative to that."""
    text = f"{predicted / measured - 1:+.1%}"
    return "0.0 %" if text in {"+0.0%", "-0.0%"} else text.replace("-", "−").replace("%", " %")


def _chart(rows: list[ModelRow], lines: dict[str, list[float | None]], metric: str, title: str) -> Chart:
    x = [float(row.clients) for row in rows]
    traces, drawn = [], [0.0]
    for name, y in lines.items():
        values = [value for value in y if value is not None]
        if len(values) == len(x):
            tone, dash = _STYLES[name]
            traces.append(line(name, x, values, tone, hover="%{text}", dash=dash))
            traces[-1]["mode"] = "lines+markers"
            traces[-1]["text"] = [_written(metric, value) for value in values]
            drawn += values
    y_axis = value_axis(metric, drawn, title=title) | {"range": [0, max(drawn) * 1.1]}
    y_axis["ticktext"] = [_written(metric, value) for value in y_axis["tickvals"]]
    layout = {
        "xaxis": {"title": {"text": "clients"}, "fixedrange": True, "rangemode": "tozero"},
        "yaxis": y_axis,
        "hovermode": "closest",
    }
    described = "; ".join(
        f"{int(clients)} clients {_written(metric, measured or 0)}, model {_written(metric, predicted or 0)}"
        for clients, measured, predicted in zip(x, lines["measured"], lines["model"], strict=True)
    )
    return Chart({"data": traces, "layout": layout}, f"{title} by clients: {described}.", [])


def _written(metric: str, value: float) -> str:
    return f"{formats.rate(value)}/s" if metric == "rate" else format_metric(metric, value)


def _stations(document: ModelDocument) -> Grid:
    rows = [
        [each.name, formats.nanoseconds(each.demand_ns), "a delay" if each.servers is None else str(each.servers)]
        for each in document.stations
    ]
    return Grid(["Station", "time per request", "servers"], rows)


def _predictions(document: ModelDocument) -> Grid:
    columns = ["Run", "clients", "requests/s", "model", "error", "mean response", "model", "error"]
    if document.changes:
        columns += ["after the change", "response"]
    rows = []
    for row in document.rows:
        cells = [
            row.run, str(row.clients), formats.rate(row.throughput), formats.rate(row.predicted_throughput),
            error(row.predicted_throughput, row.throughput), formats.nanoseconds(row.response_ns),
            formats.nanoseconds(row.predicted_response_ns), error(row.predicted_response_ns, row.response_ns),
        ]  # fmt: skip
        if row.changed_throughput is not None:
            cells += [f"{formats.rate(row.changed_throughput)}/s", formats.nanoseconds(row.changed_response_ns)]
        rows.append(cells)
    return Grid(columns, rows)


def _laws(rows: list[ModelRow]) -> Grid:
    names = list(dict.fromkeys(name for row in rows for name in row.utilization))
    columns = [
        "Run", "requests under way", *(f"{name} busy" for name in names), "bottleneck", "at most, requests/s",
        "waited", "M/M/m", "M/G/1",
    ]  # fmt: skip
    cells = [
        [
            row.run, f"{row.in_system:.3g}",
            *(formats.percent(row.utilization[name]) if name in row.utilization else formats.NOTHING for name in names),
            row.bottleneck, formats.rate(row.most_throughput), formats.nanoseconds(row.waited_ns),
            formats.nanoseconds(row.open_wait_ns), formats.nanoseconds(row.open_wait_general_ns),
        ]
        for row in rows
    ]  # fmt: skip
    return Grid(columns, cells)
