"""How do files of another tool become a recording?

Everything is written to a hidden directory next to the target and renamed when it is complete, so that an interrupted
import leaves nothing that looks like a recording. What the files do not contain is not invented: it is listed in the
caveats. The same files give the same recording. Judges nothing: that is the job of the analysis.
"""

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyspark
from msgspec import Struct
from pyspark.sql import SparkSession

from crescendo import __version__
from crescendo.importers.format import (
    EMPTY,
    GROUP,
    HOST,
    LINE,
    REASON,
    REJECT_DDL,
    SOURCE,
    TEXT,
    Format,
    ImportOptions,
    ImportResult,
    SourceFile,
    Workspace,
)
from crescendo.importers.lines import small_frame
from crescendo.importers.message_counts import message_counts
from crescendo.importers.parts import PartsWriter, write_rejected
from crescendo.importers.registry import format_of
from crescendo.importers.sources import FoundFile, find_files, most_rows, stage_files
from crescendo.model.errors import ConfigError
from crescendo.model.experiment_file import experiment_from, to_document
from crescendo.model.workload import MAX_CONNECTIONS
from crescendo.pipeline.spark.errors import spark_errors
from crescendo.pipeline.spark.evaluation import evaluation_for
from crescendo.record.durable import sync_tree
from crescendo.record.manifest import Clock, Manifest, Phase, State, write_manifest
from crescendo.record.new_directory import check_new, new_directory
from crescendo.record.schema import EVENTS, HISTOGRAMS, RATES, READINGS, RECEIVED, SENT, SETTLED, SPANS

Progress = Callable[[str], None]

_MESSAGES = {SENT: ("intended_ns", "sent_ns"), RECEIVED: ("sent_ns", "received_ns"), SETTLED: ("settled_ns",)}
_OTHERS = {table: ("t_ns",) for table in (SPANS, RATES, HISTOGRAMS, READINGS)}


class SourceSummary(Struct, frozen=True):
    """What one file contained."""

    path: str
    kind: str
    octets: int
    sha256: str
    records: int  # lines, or records of a binary file
    rejected: int


class ImportSummary(Struct, frozen=True):
    """What an import read and wrote."""

    run: str
    format: str
    sources: list[SourceSummary]
    skipped: list[str]  # files of a directory that are not of the format
    tables: dict[str, int]  # table -> rows
    messages: dict[str, int]  # sent, received, settled, timed -> messages
    rejected: int
    refused: list[str]  # files that expand too far, with the reason
    start_ns: int | None
    end_ns: int | None
    caveats: list[str]


@dataclass(frozen=True)
class ImportPlan:
    """An import that can run: its files exist and are of the format."""

    source_format: Format
    found: list[FoundFile]
    skipped: list[Path]
    out: Path
    command: tuple[str, ...]


def plan_import(format_name: str, paths: list[Path], out: Path) -> ImportPlan:
    """Check everything that can be checked before Spark starts."""
    source_format = format_of(format_name)
    if not paths:
        raise ConfigError("nothing to import; name files or directories")
    try:
        check_new(out)
        found, skipped = find_files(paths, source_format)
    except OSError as err:
        raise ConfigError(f"{err.filename or out}: cannot be read: {err.strerror or err}") from err
    command = ("crescendo", "import", format_name, *map(str, paths), "--out", str(out))
    return ImportPlan(source_format, found, skipped, out, command)


def run_import(plan: ImportPlan, spark: SparkSession, options: ImportOptions, progress: Progress) -> ImportSummary:
    """Write the recording. Raises LostError when Spark fails; then nothing is left."""
    with new_directory(plan.out) as draft, spark_errors(f"the import into {plan.out}"):
        return _import(plan, draft, spark, options, progress)


def _import(
    plan: ImportPlan, draft: Path, spark: SparkSession, options: ImportOptions, progress: Progress
) -> ImportSummary:
    scratch = draft / ".workshop"
    progress(f"checking {len(plan.found):,} files")
    sources = stage_files(plan.found, scratch / "sources", options.limits)
    if all(source.refused for source in sources):
        raise ConfigError(f"{sources[0].path}: {sources[0].fault}")
    with evaluation_for(most_rows(sources), spark):
        return _write_recording(plan, draft, sources, Workspace(spark, scratch, progress), options)


def _write_recording(
    plan: ImportPlan, draft: Path, sources: list[SourceFile], workspace: Workspace, options: ImportOptions
) -> ImportSummary:
    progress = workspace.progress
    progress(f"reading {sum(source.octets for source in sources):,} bytes")
    result = _read_all(plan.source_format, workspace, sources, options)
    if any(item.id >= MAX_CONNECTIONS for item in result.connections):
        raise ConfigError(f"a recording can have {MAX_CONNECTIONS:,} connections; import fewer files at a time")
    parts = PartsWriter(draft)
    for table, frame in result.frames:
        progress(f"writing {table}")
        parts.write_frame(table, frame)
    progress("setting aside lines that cannot be read")
    rejected = write_rejected(draft, sources, result.rejects)
    time_range = parts.time_range(_MESSAGES) or parts.time_range(_OTHERS)
    start_ns, end_ns = (time_range[0], time_range[1] + result.resolution_ns) if time_range else (None, None)
    parts.write_rows(
        EVENTS,
        [
            {"t_ns": start_ns or 0, "source": source, "kind": kind, "detail": detail}
            for source, kind, detail in result.events
        ],
    )
    parts.write_journal()
    summary = ImportSummary(
        run=plan.out.absolute().name,
        format=plan.source_format.name,
        sources=[
            SourceSummary(
                str(source.path),
                source.kind,
                source.octets,
                source.sha256,
                result.records.get(source.number, 0),
                rejected.get(source.number, 0),
            )
            for source in sources
        ],
        skipped=[str(path) for path in plan.skipped],
        tables=parts.rows(),
        messages=message_counts(draft, parts.parts),
        rejected=sum(rejected.values()),
        refused=[f"{source.path}: {source.fault}" for source in sources if source.refused],
        start_ns=start_ns,
        end_ns=end_ns,
        caveats=result.caveats,
    )
    shutil.rmtree(workspace.folder)
    sync_tree(draft)
    write_manifest(draft, _manifest(plan, summary, result, parts, options))
    return summary


def _read_all(
    source_format: Format, workspace: Workspace, sources: list[SourceFile], options: ImportOptions
) -> ImportResult:
    not_empty = [source for source in sources if source.kind != EMPTY and not source.refused]
    result = (
        source_format.read_sources(workspace, not_empty, options)
        if not_empty
        else ImportResult(resolution_ns=1, caveats=["the files are empty"])
    )
    damaged = [
        {SOURCE: source.number, LINE: result.records.get(source.number, 0) + 1, REASON: source.fault, TEXT: ""}
        for source in sources
        if source.fault
    ]
    if damaged:
        result.rejects.append(small_frame(workspace.spark, REJECT_DDL, damaged))
    result.caveats += [f"{source.path} was refused: {source.fault}" for source in sources if source.refused]
    return result


def _manifest(
    plan: ImportPlan, summary: ImportSummary, result: ImportResult, parts: PartsWriter, options: ImportOptions
) -> Manifest:
    bound_ns = result.resolution_ns if options.clock_bound_ns is None else options.clock_bound_ns
    phases = []
    if summary.start_ns is not None and summary.end_ns is not None:
        phases = [Phase("measure", summary.start_ns, summary.end_ns)]
    files = [
        f"{source.sha256}  {source.path}  ({source.kind}, {source.records:,} read, {source.rejected:,} rejected)"
        for source in summary.sources
    ]
    return Manifest(
        run=summary.run,
        tag=0,
        experiment=_placeholder_experiment(summary, result),
        command=list(plan.command),
        started_ns=summary.start_ns or 0,
        state=State.SEALED,
        versions={"crescendo": __version__, "pyspark": pyspark.__version__},
        system={
            "kind": "imported",
            "format": plan.source_format.name,
            "caveats": summary.caveats,
            "configuration": {"sources": "\n".join(files)},
        },
        clocks=[Clock(host=HOST, realtime_offset_ns=0, bound_ns=bound_ns)],
        peers=result.peers,
        connections=result.connections,
        phases=phases,
        files=parts.parts,
    )


def _placeholder_experiment(summary: ImportSummary, result: ImportResult) -> dict[str, object]:
    """The experiment that an analysis needs: its senders and receivers. The schedule is unknown, so the rate is 0.

    With messages on both sides the usual checks apply; otherwise there is nothing for them to judge.
    """
    roles = [item.role for item in result.connections]
    has_messages = {SENT, RECEIVED} <= summary.tables.keys()
    name = re.sub(r"[^A-Za-z0-9._-]", "-", summary.run)[:100]
    document = {
        "name": name if re.match(r"[A-Za-z0-9]", name) else f"import-{name}"[:100],
        "system": {"kind": "imported"},
        "workload": {
            "name": GROUP,
            "address": "queue://imported",
            "senders": max(roles.count("sender"), 1),
            "receivers": max(roles.count("receiver"), 1),
            "rate": 0,
        },
        **({} if has_messages else {"checks": {}}),
    }
    return to_document(experiment_from(document, source="import"))


def summary_json(summary: ImportSummary) -> str:
    return msgspec.json.encode(summary).decode()
