"""How does a run become a report?

Reads manifest, summary and tables, and puts what they say into the sections of the page, which `document` renders.
Computes no results: the page shows only what the pipeline wrote.
"""

import os
import shlex
from functools import partial
from pathlib import Path

from crescendo.model.arrays import Floats
from crescendo.model.errors import ConfigError
from crescendo.model.experiment import Experiment
from crescendo.record.kept_recording import kept_recording
from crescendo.record.manifest import Manifest, read_manifest
from crescendo.record.recorded_experiment import experiment_of, offered_messages
from crescendo.record.summary import Ledger, read_summary
from crescendo.record.tables import HOPS, OUTAGES, RECOVERY
from crescendo.record.timeline import RunTimeline
from crescendo.report import formats
from crescendo.report.data.chart_tables import RANGES_SHOWN, Tables, read_tables
from crescendo.report.data.range_counts import range_counts
from crescendo.report.data.reading_tables import ReadingTables
from crescendo.report.data.small_tables import SmallTables
from crescendo.report.document import packed_json, render
from crescendo.report.page_file import write_page
from crescendo.report.plots import charts
from crescendo.report.plots.time_axis import Chart, TimeAxis, phase_spans, time_extent
from crescendo.report.sections import environment, evidence, headline
from crescendo.report.sections.agent_events import agents_section
from crescendo.report.sections.backlog import backlog
from crescendo.report.sections.faults import faults_section
from crescendo.report.sections.hop_steps import hops_section
from crescendo.report.sections.hosts_and_links import hosts_and_links
from crescendo.report.sections.inspectors import inspectors_section
from crescendo.report.sections.network_traffic import network_section
from crescendo.report.sections.outages import outages
from crescendo.report.sections.section import Section
from crescendo.report.sections.slice_tables import slices_section
from crescendo.report.sections.spans import jitter, spans_section
from crescendo.report.sections.station_laws import laws_section
from crescendo.report.sections.subject import subject

REPORT = "report.html"


def write_report(run: str | os.PathLike[str]) -> Path:
    """Write the report of an analysed run into its directory, atomically, and return the path of the page."""
    run_dir = Path(run)
    path = run_dir / REPORT
    write_page(path, render_report(run_dir), cure=kept_recording(run_dir, "report"))
    return path


def render_report(run_dir: Path) -> str:
    """The report of an analysed run as one HTML document."""
    manifest, summary, tables = read_manifest(run_dir), read_summary(run_dir), read_tables(run_dir)
    origin_ns = RunTimeline.of(manifest.phases).origin_ns
    small = SmallTables(run_dir, origin_ns)
    axis, checks = _time_axis(manifest, tables, small), summary.verdict.checks
    experiment = _experiment(manifest)
    drawn: dict[str, Chart | None] = {
        "rate": charts.rate_chart(
            tables, axis, _offered(manifest, experiment, tables, axis), checks, _fan_out(summary.total)
        ),
        "latency": charts.latency_chart(tables, axis, checks),
        "spectrum": charts.spectrum_chart(tables, checks),
        "histogram": charts.histogram_chart(tables),
    }
    readings = ReadingTables(run_dir, origin_ns)
    inspectors = inspectors_section(readings, tables, axis)
    drawn |= inspectors.charts if inspectors else {}
    network = network_section(manifest, readings.summaries, small.rows(HOPS), summary.latency)
    first = [slices_section(summary), network]
    sections = [*filter(None, first), *_optional_sections(small, tables, axis, manifest, experiment)]
    laws = laws_section(small, readings.summaries, manifest, experiment, summary)
    sections += [] if laws is None else [laws]
    drawn |= {section.id: section.chart for section in sections if section.chart is not None}
    names = {item.id: item.peer for item in manifest.connections if item.role == "sender"}
    counts = range_counts(run_dir, tables, inspectors.listed if inspectors else {})
    scopes = ("total", "subscription", "sender")
    return render(
        "report.html.j2",
        drawn,
        name=str(manifest.experiment.get("name") or summary.run),
        run=summary.run,
        started=formats.moment(manifest.started_ns),
        measured=formats.nanoseconds(summary.rate.duration_ns),
        subject=subject(manifest, experiment),
        headline=headline.headline(summary),
        checks=evidence.check_rows(checks),
        validity=evidence.validity_rows(summary.validity),
        generator=headline.generator_sentence(summary),
        command=shlex.join(manifest.command),
        inspectors=inspectors,
        counts="" if counts is None else packed_json(counts),
        sections=sections,
        kind=charts.judged_kind(tables) or "response",
        latency=evidence.latency_grid(summary.latency, summary.without_own_delay),
        intervals=evidence.interval_grid(summary.latency),
        ledger={scope: evidence.ledger_grid(summary.ledger, scope, names) for scope in scopes},
        ranges=evidence.range_lists(tables.ranges, names),
        ranges_shown=RANGES_SHOWN,
        peers=evidence.peer_grid(manifest.peers),
        ended_badly=[peer for peer in manifest.peers if peer.reason],
        environment=environment.environment(run_dir, manifest, summary.total.sent),
    )


def _experiment(manifest: Manifest) -> Experiment | None:
    """None if this version, or this machine without a plugin, cannot read it: the page shows its text in any case."""
    try:
        return experiment_of(manifest)
    except ConfigError:
        return None


def _time_axis(manifest: Manifest, tables: Tables, small: SmallTables) -> TimeAxis:
    stopped = [
        (small.second(outage.start_ns), small.second(outage.start_ns + outage.gap_ns)) for outage in small.rows(OUTAGES)
    ]
    broken = tuple(
        (small.second(row.start_ns), small.second(row.until_ns if row.end_ns is None else row.end_ns))
        for row in small.rows(RECOVERY)
    )
    bins = tables.time_bins
    extent, bin_seconds = ((0.0, 1.0), 1) if bins is None else (time_extent(bins), bins.bin_seconds)
    return TimeAxis(extent, phase_spans(manifest.phases), stopped, bin_seconds, broken)


def _offered(manifest: Manifest, experiment: Experiment | None, tables: Tables, axis: TimeAxis) -> Floats | None:
    if experiment is None or tables.time_bins is None:
        return None
    return charts.offered_rate(tables.time_bins, axis, partial(offered_messages, manifest))


def _fan_out(total: Ledger) -> float:
    return total.owed / total.sent if total.owed and total.sent else 1.0


def _optional_sections(
    small: SmallTables, tables: Tables, axis: TimeAxis, manifest: Manifest, experiment: Experiment | None
) -> list[Section]:
    """The sections for which this run has data."""
    found = [
        faults_section(small),
        agents_section(small),
        outages(small),
        backlog(small, tables.time_bins, axis),
        hops_section(small),
        jitter(small, axis),
        spans_section(small),
        hosts_and_links(manifest, experiment),
    ]
    return [section for section in found if section is not None]
