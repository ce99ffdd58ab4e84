"""How do the results of a run reach a spreadsheet, a CI server, or a monitoring system?

`csv` writes every table of the analysis, `junit` one test case per check, `openmetrics` every metric of the summary as
a gauge. Everything is written into a hidden directory next to the target and renamed when complete. Computes nothing:
what a summary withholds is missing here too.
"""

from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import csv

from crescendo.exporters.exported_recording import files_below
from crescendo.model.verdict import Outcome
from crescendo.record.contained_files import contained_files
from crescendo.record.metric_families import MetricFamily, exposition
from crescendo.record.new_directory import new_directory
from crescendo.record.summary import TABLES_DIR, Summary, read_summary
from crescendo.record.timeline import MEASURE

_SECOND_NS = 1e9


def export_csv(run_dir: Path, out: Path) -> list[Path]:
    """One file per table of the analysis."""
    read_summary(run_dir)
    with new_directory(out) as draft:
        for folder in sorted((run_dir / TABLES_DIR).glob("*/")):
            if (table := table_of(run_dir, folder.name)) is not None:
                csv.write_csv(flat_table(table), draft / f"{folder.name}.csv")
    return files_below(out)


def export_junit(run_dir: Path, out: Path) -> list[Path]:
    """`junit.xml`: a failed check is a failure, an invalid one an error."""
    summary = read_summary(run_dir)
    with new_directory(out) as draft:
        (draft / "junit.xml").write_text(junit_of(summary), encoding="utf-8")
    return files_below(out)


def export_openmetrics(run_dir: Path, out: Path) -> list[Path]:
    """`metrics.txt`, for a push gateway or the textfile collector of Prometheus."""
    summary = read_summary(run_dir)
    with new_directory(out) as draft:
        (draft / "metrics.txt").write_text(exposition(metrics_of(summary)), encoding="utf-8")
    return files_below(out)


def table_of(run_dir: Path, name: str) -> pa.Table | None:
    """A table of the analysis; None if the run does not have it."""
    files = contained_files(run_dir / TABLES_DIR / name, "*.parquet", run_dir)
    return ds.dataset([str(file) for file in files], format="parquet").to_table() if files else None


def flat_table(table: pa.Table) -> pa.Table:
    """Lists and structs as JSON: CSV has neither."""
    for number, column in enumerate(table.schema):
        if pa.types.is_nested(column.type):
            rows = table.column(number).to_pylist()
            texts = [None if row is None else msgspec.json.encode(row, enc_hook=str).decode() for row in rows]
            table = table.set_column(number, column.name, pa.array(texts, pa.string()))
    return table


def junit_of(summary: Summary) -> str:
    checks = summary.verdict.checks
    count = {outcome: sum(check.outcome is outcome for check in checks) for outcome in Outcome}
    suite = ElementTree.Element(
        "testsuite", name=summary.run, tests=str(len(checks)), failures=str(count[Outcome.FAIL]),
        errors=str(count[Outcome.INVALID]),
    )  # fmt: skip
    kinds = {Outcome.FAIL: "failure", Outcome.INVALID: "error"}
    for check in checks:
        case = ElementTree.SubElement(suite, "testcase", classname="crescendo.checks", name=check.metric)
        if check.outcome in kinds:
            message = f"{check.metric} {check.bound}: {'no value' if check.value is None else f'{check.value:g}'}"
            ElementTree.SubElement(case, kinds[check.outcome], message=message).text = "\n".join(check.reasons)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def metrics_of(summary: Summary) -> list[MetricFamily]:
    """Rates in messages per second, latencies in seconds, counts of the ledger."""
    run = summary.run
    verdict = MetricFamily("crescendo_run_verdict", "gauge", "1 for the verdict of the run.")
    for outcome in Outcome:
        verdict.add(float(summary.verdict.outcome is outcome), run=run, outcome=outcome.value)
    rate = MetricFamily("crescendo_run_rate", "gauge", "Messages per second in the measure phase.")
    for kind in ("offered", "sent", "sustained"):
        rate.add(getattr(summary.rate, kind), run=run, kind=kind)
    latency = MetricFamily("crescendo_run_latency_seconds", "gauge", "Percentiles of the measure phase.")
    for row in summary.latency:
        if row.phase == MEASURE:
            for name, value in row.percentiles_ns.items():
                latency.add(None if value is None else value / _SECOND_NS, run=run, kind=row.kind, percentile=name)
    ledger = MetricFamily("crescendo_run_messages", "gauge", "Messages of the whole run, as the ledger counts them.")
    for kind in ("sent", "owed", "delivered", "lost", "duplicated", "reordered", "corrupt", "stray"):
        ledger.add(getattr(summary.total, kind), run=run, kind=kind)
    return [verdict, rate, latency, ledger]
