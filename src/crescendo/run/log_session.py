"""How are MLMQ's performance logs read and queried?

The lines are parsed as `import mlmq-log` parses them, in a scratch directory; lines that cannot be parsed are counted
and never stop the analysis. Prints nothing and draws nothing.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from crescendo.importers.format import (
    EMPTY,
    LINE,
    REASON,
    SOURCE,
    ImportOptions,
    ImportResult,
    SourceFile,
    UnpackLimits,
    Workspace,
)
from crescendo.importers.formats.mlmq_log import MLMQ_LOG
from crescendo.importers.sources import FoundFile, find_files, most_rows, stage_files
from crescendo.model.errors import ConfigError
from crescendo.pipeline.logs.job import LogQuery, UnreadableLines, actions, run_query, unreadable_lines
from crescendo.pipeline.logs.windows import Slot
from crescendo.pipeline.spark.errors import spark_errors
from crescendo.pipeline.spark.evaluation import evaluation_for
from crescendo.run.analysis import Progress, opened_analyst


@dataclass(frozen=True)
class AnalysedLogs:
    """The answer to a query, or the actions in the logs if it names none; and what was read."""

    slots: list[Slot]
    actions: list[tuple[str, int]]
    """The most frequent actions and their numbers."""

    sources: list[SourceFile]
    lines: int
    unreadable: UnreadableLines
    skipped: int
    """Files of other kinds."""


def analyze_logs(
    directory: Path, query: LogQuery, limits: UnpackLimits, progress: Progress, *, most_actions: int = 50
) -> AnalysedLogs:
    """Read every log below a directory and answer the query."""
    found, skipped = find_files([directory], MLMQ_LOG)
    with opened_analyst(None) as analyst, tempfile.TemporaryDirectory(prefix="crescendo-logs-") as folder:
        workspace = Workspace(analyst.session(progress), Path(folder), progress)
        with spark_errors(f"reading {directory}"):
            sources = stage_logs(workspace, found, limits)
            with evaluation_for(most_rows(sources), workspace.spark):
                read = read_logs(workspace, sources)
                progress("computing")
                lines = read.frames[0][1]
                return AnalysedLogs(
                    slots=run_query(lines, query) if query.types else [],
                    actions=[] if query.types else actions(lines, most_actions),
                    sources=sources,
                    lines=sum(read.records.values()),
                    unreadable=unreadable_lines(read.rejects, SOURCE, LINE, REASON),
                    skipped=len(skipped),
                )


def stage_logs(workspace: Workspace, found: Sequence[FoundFile], limits: UnpackLimits) -> list[SourceFile]:
    """The logs, where Spark can read them; at least one has lines."""
    workspace.progress(f"reading {len(found):,} files")
    sources = stage_files(list(found), workspace.folder / "sources", limits)
    filled = _filled(sources)
    if refused := [f"{source.path}: {source.fault}" for source in sources if source.refused and not filled]:
        raise ConfigError(refused[0])
    if not filled:
        raise ConfigError(f"{found[0].path.parent}: all its logs are empty; give a directory with logs of a run")
    return sources


def read_logs(workspace: Workspace, sources: Sequence[SourceFile]) -> ImportResult:
    """The logs as parsed lines, apart from empty and refused ones."""
    return MLMQ_LOG.read_sources(workspace, _filled(sources), ImportOptions())


def _filled(sources: Sequence[SourceFile]) -> list[SourceFile]:
    return [source for source in sources if source.kind != EMPTY and not source.refused]
