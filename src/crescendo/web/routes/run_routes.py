"""Results: the runs, their reports, tables, logs, notes and downloads, and up to five of them beside each other."""

import io
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pyarrow as pa
from fastapi import APIRouter, Query, Request
from pyarrow import csv
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import FileResponse, Response, StreamingResponse

from crescendo.exporters.results.export_results import flat_table
from crescendo.model.errors import ConfigError
from crescendo.model.metrics import metric_of
from crescendo.record.contained_files import file_fault
from crescendo.record.manifest import read_manifest
from crescendo.record.run_metrics import summary_value
from crescendo.record.summary import Summary, read_summary
from crescendo.report.formats import metric_value
from crescendo.report.page import REPORT
from crescendo.run.recorded_run import open_recording
from crescendo.web.gatekeeper import REPORT_POLICY
from crescendo.web.log_analysis import MEDIA, LogAnalyzer, LogForm
from crescendo.web.page_routes import action, page, services_of
from crescendo.web.run_index import RunNote
from crescendo.web.sql_process import ask
from crescendo.web.web_access import Role
from crescendo.web.web_directory import NotFoundError
from crescendo.web.zip_stream import files_below, zip_stream

ROUTES = APIRouter(tags=["runs"])
MAX_COMPARED = 5
_COMPARED = ("rate", "response_p50", "response_p90", "response_p99", "response_p99.9", "transfer_p50", "transfer_p99",
             "lost", "duplicated", "reordered")  # fmt: skip
_MAX_ROWS = 10_000
_PARTS = {"logs": "logs", "tables": "tables", "everything": ""}


class NoteBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: str = Field(default="", max_length=20_000)
    tags: str = Field(default="", max_length=1000, description="separated by spaces")


class SqlBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    sql: str = Field(max_length=20_000)


@page(ROUTES, "/runs", "runs.html.j2")
def runs(request: Request, experiment: str = "", outcome: str = "", tag: str = "") -> dict[str, Any]:
    index = services_of(request).index
    tags = index.tags()
    found = [run | {"tags": tags.get(run["name"], [])} for run in index.runs(experiment=experiment, outcome=outcome)]
    return {
        "runs": [run for run in found if not tag or tag in run["tags"]],
        "experiment": experiment,
        "outcome": outcome,
        "tag": tag,
        "tags": sorted({name for names in tags.values() for name in names}),
        "any": bool(index.counts()),
    }


@page(ROUTES, "/runs/{name}", "run.html.j2")
def run(request: Request, name: str) -> dict[str, Any]:
    services = services_of(request)
    directory = services.directory.run(name)
    manifest = read_manifest(directory)
    note = services.index.note(name)
    summary = _summary(directory)
    experiment = str(manifest.experiment.get("name", ""))
    return {
        "name": name,
        "experiment": experiment,
        "started_ns": manifest.started_ns,
        "state": manifest.state.value,
        "reason": manifest.reason,
        "summary": None if summary is None else msgspec.to_builtins(summary),
        "outcome": "" if summary is None else summary.outcome_text,
        "report": not file_fault(directory, REPORT),
        "tables": open_recording(directory).tables,
        "logs": sorted(path.name for path in (directory / "logs").glob("*") if path.is_file()),
        "note": note.text,
        "tags": note.tags,
        "stored": services.experiments.exists(experiment),
        "earlier": [one["name"] for one in services.index.runs(experiment=experiment, limit=20) if one["name"] != name],
    }


@page(ROUTES, "/runs/{name}/logs", "logs.html.j2")
def logs(request: Request, name: str) -> dict[str, Any]:
    directory = services_of(request).directory.run(name)
    folder = directory / "logs"
    return {
        "name": name,
        "logs": [
            {"name": path.name, "bytes": path.stat().st_size}
            for path in sorted(folder.glob("*"))
            if not file_fault(directory, f"logs/{path.name}")
        ],
        "form": LogForm().model_dump(),
    }


@page(ROUTES, "/runs/{name}/tables", "tables.html.j2")
def tables(request: Request, name: str, table: str = "") -> dict[str, Any]:
    directory = services_of(request).directory.run(name)
    recording = open_recording(directory)
    shown = recording.table(table) if table else None
    return {
        "name": name,
        "tables": recording.tables,
        "table": table,
        "columns": [] if shown is None else shown.column_names,
        "rows": [] if shown is None else [_plain(row) for row in shown.slice(0, 200).to_pylist()],
        "count": 0 if shown is None else shown.num_rows,
    }


@page(ROUTES, "/compare", "compare.html.j2")
def compare(request: Request, run: Annotated[list[str], Query(max_length=MAX_COMPARED)] = []) -> dict[str, Any]:  # noqa: B006
    """Up to five runs; the first is the baseline."""
    services = services_of(request)
    names = list(dict.fromkeys(run))
    directories = [services.directory.run(name) for name in names]
    summaries = [(path.name, _summary(path)) for path in directories]
    return {
        "runs": [
            {"name": name, "outcome": summary.outcome_text if summary else "not analysed"}
            for name, summary in summaries
        ],
        "metrics": [row for metric in _COMPARED if (row := _metric_row(metric, summaries)) is not None],
        "judged": [_judged(directories[0], other) for other in directories[1:]],
        "known": [one["name"] for one in services.index.runs(limit=100)],
    }


@action(ROUTES, "GET", "/runs/{name}/report.html", Role.VIEWER)
def report(request: Request, name: str) -> Response:
    directory = services_of(request).directory.run(name)
    if fault := file_fault(directory, REPORT):
        raise NotFoundError(f"{name}: its report {fault}; write it with: crescendo report {name}")
    headers = {"content-security-policy": REPORT_POLICY}
    return FileResponse(directory / REPORT, media_type="text/html", headers=headers)


@action(ROUTES, "GET", "/api/runs/{name}/tables/{table}", Role.VIEWER)
def table_rows(request: Request, name: str, table: str, offset: int = 0, limit: int = 1000) -> dict[str, Any]:
    """Rows of one table of the analysis."""
    found = open_recording(services_of(request).directory.run(name)).table(table)
    piece = found.slice(max(offset, 0), min(max(limit, 0), _MAX_ROWS))
    return {"columns": found.column_names, "count": found.num_rows, "rows": [_plain(row) for row in piece.to_pylist()]}


@action(ROUTES, "GET", "/runs/{name}/tables/{table}.csv", Role.VIEWER)
def table_csv(request: Request, name: str, table: str) -> Response:
    found = open_recording(services_of(request).directory.run(name)).table(table)
    headers = {"content-disposition": f'attachment; filename="{name}-{table}.csv"'}
    return StreamingResponse(_csv(flat_table(found)), media_type="text/csv", headers=headers)


@action(ROUTES, "GET", "/runs/{name}/download/{part}.zip", Role.VIEWER)
def download(request: Request, name: str, part: str) -> Response:
    directory = services_of(request).directory.run(name)
    if part not in _PARTS:
        raise NotFoundError(f"there is no download {part[:40]!r}; choose one of {', '.join(_PARTS)}")
    headers = {"content-disposition": f'attachment; filename="{name}-{part}.zip"'}
    files = files_below(directory, _PARTS[part])
    return StreamingResponse(zip_stream(directory, files), media_type="application/zip", headers=headers)


@action(ROUTES, "POST", "/api/runs/{name}/note")
def set_note(request: Request, name: str, body: NoteBody) -> dict[str, Any]:
    """Write a note and tags."""
    tags = list(dict.fromkeys(body.tags.split()))
    try:
        note = msgspec.convert({"text": body.text, "tags": tags}, RunNote)
    except msgspec.ValidationError:
        raise ConfigError("tags: at most 20, each of letters, digits, '.', ':', '_' and '-', up to 40") from None
    services_of(request).index.set_note(name, note)
    return {"message": "saved", "tags": tags}


@action(ROUTES, "POST", "/api/runs/{name}/log-analysis")
async def analyze_logs(request: Request, name: str, body: LogForm) -> dict[str, Any]:
    """Analyse the performance logs of a run; the answer names the result. Without types, lists the actions."""
    directory = services_of(request).directory.run(name)
    analyzer: LogAnalyzer = request.app.state.analyzer
    result = await analyzer.analyze(directory, body)
    path = analyzer.result(result)
    text = path.read_text(errors="replace")[:200_000] if path.suffix in {".csv", ".txt"} else ""
    return {"result": f"/analyses/{result}", "text": text}


@action(ROUTES, "POST", "/api/runs/{name}/sql")
async def sql(request: Request, name: str, body: SqlBody) -> dict[str, Any]:
    """Ask one question in SQL about the tables of a run; it can read this run and nothing else."""
    directory = services_of(request).directory.run(name)
    with tempfile.TemporaryDirectory(prefix="crescendo-sql-") as scratch:
        found: dict[str, Any] = msgspec.to_builtins(await ask(directory, body.sql, Path(scratch)))
    return found


@action(ROUTES, "GET", "/analyses/{result}", Role.VIEWER)
def analysis(request: Request, result: str, download: bool = False) -> Response:
    analyzer: LogAnalyzer = request.app.state.analyzer
    path = analyzer.result(result)
    kind = "attachment" if download or path.suffix != ".png" else "inline"
    headers = {"content-disposition": f'{kind}; filename="analysis{path.suffix}"'}
    return FileResponse(path, media_type=MEDIA[path.suffix.removeprefix(".")], headers=headers)


def _summary(directory: Path) -> Summary | None:
    try:
        return read_summary(directory)
    except ConfigError:
        return None


def _metric_row(metric: str, summaries: list[tuple[str, Summary | None]]) -> dict[str, Any] | None:
    metric_of(metric)
    values = [None if summary is None else summary_value(summary, metric) for _, summary in summaries]
    if all(value is None for value in values):
        return None
    return {"metric": metric, "values": values, "shown": [metric_value(metric, value) for value in values]}


def _judged(baseline: Path, other: Path) -> dict[str, Any]:
    """What `crescendo compare` says about these two."""
    from crescendo.api import compare as compared  # scipy, which most pages do not need

    try:
        answer = compared(baseline, other)
    except ConfigError as err:
        return {"run": other.name, "outcome": "cannot say", "problem": str(err), "metrics": []}
    found: dict[str, Any] = msgspec.to_builtins(answer) | {"baseline": baseline.name, "run": other.name, "problem": ""}
    return found | {"outcome": answer.outcome.value}


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Values that JSON has."""
    found: dict[str, Any] = msgspec.to_builtins(row, enc_hook=str)
    return found


def _csv(table: pa.Table) -> Iterator[bytes]:
    first = True
    for batch in table.to_batches(max_chunksize=20_000) or [table]:
        buffer = io.BytesIO()
        csv.write_csv(batch, buffer, csv.WriteOptions(include_header=first))
        first = False
        yield buffer.getvalue()
