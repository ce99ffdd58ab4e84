"""How do files of another tool become a recording?

Everything is made in a hidden directory beside its place and renamed when it is whole, so that an import that was
interrupted leaves nothing that could be taken for one. What the files do not hold is not made up: it is listed among
the caveats. The same files give the same recording. Judges nothing: that is for the analysis.
"""

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyspark
from msgspec import Struct
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
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
from crescendo.importers.parts import Parts, write_rejected
from crescendo.importers.registry import format_of
from crescendo.importers.sources import Found, find, stage
from crescendo.model.errors import ConfigError, LostError
from crescendo.model.experiment import experiment_from, to_document
from crescendo.model.workload import MAX_CONNECTIONS
from crescendo.record.manifest import Clock, Manifest, Phase, State, write_manifest
from crescendo.record.schema import EVENTS, HISTOGRAMS, RATES, READINGS, RECEIVED, SENT, SETTLED, SPANS

Progress = Callable[[str], None]

_MESSAGES = {SENT: ("intended_ns", "sent_ns"), RECEIVED: ("sent_ns", "received_ns"), SETTLED: ("settled_ns",)}
_OTHERS = {table: ("t_ns",) for table in (SPANS, RATES, HISTOGRAMS, READINGS)}


class SourceAccount(Struct, frozen=True):
    """What was found in one file."""

    path: str
    kind: str
    octets: int
    sha256: str
    records: int  # lines, or records of a binary file
    rejected: int


class Imported(Struct, frozen=True):
    """What an import read and wrote."""

    run: str
    format: str
    sources: list[SourceAccount]
    skipped: list[str]  # files of a directory that are something else
    tables: dict[str, int]  # table -> rows
    rejected: int
    start_ns: int | None
    end_ns: int | None
    caveats: list[str]


@dataclass(frozen=True)
class ImportOrder:
    """An import that can be carried out: its files are there and are what they should be."""

    form: Format
    found: list[Found]
    skipped: list[Path]
    out: Path
    command: tuple[str, ...]


def order(form: str, paths: list[Path], out: Path) -> ImportOrder:
    """Refuse whatever can be refused before Spark is started."""
    chosen = format_of(form)
    if not paths:
        raise ConfigError("nothing to import; name files or directories")
    try:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise ConfigError(f"{out}: is there already and not empty; choose another --out")
        found, skipped = find(paths, chosen)
    except OSError as err:
        raise ConfigError(f"{err.filename or out}: cannot be read: {err.strerror or err}") from err
    command = ("crescendo", "import", form, *map(str, paths), "--out", str(out))
    return ImportOrder(chosen, found, skipped, out, command)


def carry_out(work: ImportOrder, spark: SparkSession, options: ImportOptions, progress: Progress) -> Imported:
    """Write the recording. Raises LostError when Spark gives up, and leaves nothing then."""
    out = work.out.absolute()
    draft = out.parent / f".{out.name}.tmp"
    try:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        account = _import(work, draft, spark, options, progress)
        draft.rename(out)
    except OSError as err:
        raise ConfigError(f"{work.out}: cannot be written: {err.strerror or err}") from err
    except (PySparkException, Py4JError) as err:
        raise LostError(f"the import into {work.out} did not finish: {str(err).splitlines()[0]}") from err
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return account


def _import(
    work: ImportOrder, draft: Path, spark: SparkSession, options: ImportOptions, progress: Progress
) -> Imported:
    workshop = draft / ".workshop"
    progress(f"looking through {len(work.found):,} files")
    sources = stage(work.found, workshop / "sources")
    progress(f"reading {sum(source.octets for source in sources):,} bytes")
    yielded = _harvest(work.form, Workspace(spark, workshop, progress), sources, options)
    if any(item.id >= MAX_CONNECTIONS for item in yielded.connections):
        raise ConfigError(f"a recording has room for {MAX_CONNECTIONS:,} connections; import fewer files at a time")
    parts = Parts(draft)
    for table, frame in yielded.frames:
        progress(f"writing {table}")
        parts.write_frame(table, frame)
    progress("setting aside what cannot be read")
    rejected = write_rejected(draft, sources, yielded.rejects)
    extent = parts.extent(_MESSAGES) or parts.extent(_OTHERS)
    start_ns, end_ns = (extent[0], extent[1] + yielded.resolution_ns) if extent else (None, None)
    parts.write_rows(
        EVENTS,
        [
            {"t_ns": start_ns or 0, "source": source, "kind": kind, "detail": detail}
            for source, kind, detail in yielded.events
        ],
    )
    parts.write_journal()
    account = Imported(
        run=work.out.absolute().name,
        format=work.form.name,
        sources=[
            SourceAccount(
                str(source.path),
                source.kind,
                source.octets,
                source.sha256,
                yielded.records.get(source.number, 0),
                rejected.get(source.number, 0),
            )
            for source in sources
        ],
        skipped=[str(path) for path in work.skipped],
        tables=parts.rows(),
        rejected=sum(rejected.values()),
        start_ns=start_ns,
        end_ns=end_ns,
        caveats=yielded.caveats,
    )
    shutil.rmtree(workshop)
    write_manifest(draft, _manifest(work, account, yielded, parts, options))
    return account


def _harvest(form: Format, workspace: Workspace, sources: list[SourceFile], options: ImportOptions) -> ImportResult:
    filled = [source for source in sources if source.kind != EMPTY]
    yielded = (
        form.read_sources(workspace, filled, options)
        if filled
        else ImportResult(resolution_ns=1, caveats=["the files are empty"])
    )
    torn = [
        {SOURCE: source.number, LINE: yielded.records.get(source.number, 0) + 1, REASON: source.fault, TEXT: ""}
        for source in sources
        if source.fault
    ]
    if torn:
        yielded.rejects.append(small_frame(workspace.spark, REJECT_DDL, torn))
    return yielded


def _manifest(
    work: ImportOrder, account: Imported, yielded: ImportResult, parts: Parts, options: ImportOptions
) -> Manifest:
    bound_ns = yielded.resolution_ns if options.clock_bound_ns is None else options.clock_bound_ns
    phases = []
    if account.start_ns is not None and account.end_ns is not None:
        phases = [Phase("measure", account.start_ns, account.end_ns)]
    files = [
        f"{source.sha256}  {source.path}  ({source.kind}, {source.records:,} read, {source.rejected:,} rejected)"
        for source in account.sources
    ]
    return Manifest(
        run=account.run,
        tag=0,
        experiment=_stand_in(account, yielded),
        command=list(work.command),
        started_ns=account.start_ns or 0,
        state=State.SEALED,
        versions={"crescendo": __version__, "pyspark": pyspark.__version__},
        system={
            "kind": "imported",
            "format": work.form.name,
            "caveats": account.caveats,
            "configuration": {"sources": "\n".join(files)},
        },
        clocks=[Clock(host=HOST, realtime_offset_ns=0, bound_ns=bound_ns)],
        peers=yielded.peers,
        connections=yielded.connections,
        phases=phases,
        files=parts.listed,
    )


def _stand_in(account: Imported, yielded: ImportResult) -> dict[str, object]:
    """The experiment that an analysis needs: who took part. Nobody knows a schedule, so the rate is unbounded.

    With messages on both sides the usual checks apply; otherwise there is nothing that they could judge.
    """
    roles = [item.role for item in yielded.connections]
    judged = {SENT, RECEIVED} <= account.tables.keys()
    name = re.sub(r"[^A-Za-z0-9._-]", "-", account.run)[:100]
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
        **({} if judged else {"checks": {}}),
    }
    return to_document(experiment_from(document, source="import"))


def summary_json(account: Imported) -> str:
    return msgspec.json.encode(account).decode()
