"""How does a run become one page that needs nothing else?

Reads manifest, summary and tables, and renders one HTML file that contains its style, its data and plotly. The template
engine escapes all text and `script_json` all data; a content security policy forbids the page to load anything.
Computes no results: the page shows only what the pipeline wrote.
"""

import base64
import gzip
import json
import os
import shlex
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from crescendo.record.documents import write_atomically
from crescendo.record.manifest import Phase, read_manifest
from crescendo.record.summary import read_summary
from crescendo.record.timeline import RunTimeline
from crescendo.report import formats
from crescendo.report.data.chart_tables import RANGES_SHOWN, Tables, read_tables
from crescendo.report.data.reading_tables import ReadingTables
from crescendo.report.data.small_tables import SmallTables
from crescendo.report.plots import charts
from crescendo.report.plots.time_axis import Chart
from crescendo.report.sections import environment, evidence, headline
from crescendo.report.sections.backlog import backlog
from crescendo.report.sections.inspectors import inspectors_section
from crescendo.report.sections.outages import outages
from crescendo.report.sections.section import Section
from crescendo.report.sections.spans import jitter, spans_section

REPORT = "report.html"
_MAX_UNFOLDED_ROWS = 8
"""Longer tables are collapsed until the reader opens them."""


def write_report(run: str | os.PathLike[str]) -> Path:
    """Write the report of an analysed run into its directory, atomically, and return the path of the page."""
    run_dir = Path(run)
    path = run_dir / REPORT
    write_atomically(path, render_report(run_dir).encode())
    return path


def render_report(run_dir: Path) -> str:
    """The report of an analysed run as one HTML document."""
    manifest, summary, tables = read_manifest(run_dir), read_summary(run_dir), read_tables(run_dir)
    drawn: dict[str, Chart | None] = {
        "rate": charts.rate_chart(tables, manifest.phases, summary.rate.offered),
        "latency": charts.latency_chart(tables, manifest.phases),
        "spectrum": charts.spectrum_chart(tables),
        "histogram": charts.histogram_chart(tables),
    }
    origin_ns = RunTimeline.of(manifest.phases).origin_ns
    inspectors = inspectors_section(ReadingTables(run_dir, origin_ns), tables, manifest.phases)
    drawn |= inspectors.charts if inspectors else {}
    sections = _optional_sections(SmallTables(run_dir, origin_ns), tables, manifest.phases)
    drawn |= {section.id: section.chart for section in sections if section.chart is not None}
    names = {item.id: item.peer for item in manifest.connections if item.role == "sender"}
    scopes = ("total", "subscription", "sender")
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            name=str(manifest.experiment.get("name") or summary.run),
            run=summary.run,
            started=formats.moment(manifest.started_ns),
            measured=formats.nanoseconds(summary.rate.duration_ns),
            headline=headline.headline(summary),
            checks=evidence.check_rows(summary.verdict.checks),
            validity=summary.validity,
            command=shlex.join(manifest.command),
            charts=drawn,
            inspectors=inspectors,
            sections=sections,
            kind=charts.judged_kind(tables) or "response",
            latency=evidence.latency_grid(summary.latency),
            withheld=evidence.WITHHELD,
            ledger={scope: evidence.ledger_grid(summary.ledger, scope, names) for scope in scopes},
            ranges=evidence.range_lists(tables.ranges, names),
            ranges_shown=RANGES_SHOWN,
            listed=_MAX_UNFOLDED_ROWS,
            peers=evidence.peer_grid(manifest.peers),
            ended_badly=[peer for peer in manifest.peers if peer.reason],
            environment=environment.environment(run_dir, manifest, summary.total.sent),
            style=_asset("report.css"),
            script=_asset("report.js"),
            figures=script_json({name: chart.figure for name, chart in drawn.items() if chart is not None}),
            plotly=_packed_plotly() if any(drawn.values()) else "",
        )
    )


def _optional_sections(small: SmallTables, tables: Tables, phases: list[Phase]) -> list[Section]:
    """The sections for which this run has data."""
    found = [outages(small), backlog(small, tables.time_bins, phases), jitter(small), spans_section(small)]
    return [section for section in found if section is not None]


def script_json(value: Any) -> Markup:
    """JSON for a script element, without characters that an HTML parser could take for markup."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # noqa: S704 - the loop above escaped the markup


@cache
def _packed_plotly() -> str:
    """The plotly library, compressed: two megabytes instead of five in a file that is sent by mail."""
    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), mtime=0)).decode()


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("crescendo.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _asset(name: str) -> Markup:
    loader = _environment().loader
    if loader is None:
        raise LookupError(name)
    return Markup(loader.get_source(_environment(), name)[0])  # noqa: S704 - a file of this package, not user input
