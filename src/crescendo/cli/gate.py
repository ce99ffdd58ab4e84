"""The verb `gate`: may this change be merged, as far as its performance goes?"""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from crescendo.cli.baseline import DEFAULT_FILE, DEFAULT_LAKE, BaselineFile, LakeDir
from crescendo.cli.options import Json, check_directory_of
from crescendo.model.errors import ConfigError

if TYPE_CHECKING:
    from crescendo.history.regression_gate import GateResult


def gate(
    runs: Annotated[list[str], typer.Argument(metavar="RUN…", help="Three or more runs, or patterns, as in compare.")],
    history: Annotated[
        str,
        typer.Option("--history", metavar="DIR", help="A directory of runs, or a lake: the series of earlier runs."),
    ] = "runs",
    threshold: Annotated[
        float, typer.Option("--threshold", metavar="PERCENT", help="Changes up to this much count as no difference.")
    ] = 5.0,
    junit: Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Also write JUnit XML.")] = None,
    markdown: Annotated[
        Path | None, typer.Option("--markdown", metavar="FILE", help="Also write a summary for a pull request.")
    ] = None,
    baselines: BaselineFile = DEFAULT_FILE,
    lake: LakeDir = DEFAULT_LAKE,
    as_json: Json = False,
) -> int:
    """Compare runs with their baseline and with the series since then; name the first bad run.

    The exit code is 0 when every metric is better or no different, 1 when one is worse or a run failed its checks, and
    otherwise 3: the evidence is not sufficient.
    """
    from crescendo.history.gate_files import junit_xml, markdown_summary
    from crescendo.history.gate_session import judge_named_runs
    from crescendo.pipeline.compare.outcomes import Change
    from crescendo.record.documents import write_atomically

    if not 0 < threshold < math.inf:
        raise ConfigError(f"--threshold {threshold}: must be a percentage above 0")
    for option, path in (("--junit", junit), ("--markdown", markdown)):
        check_directory_of(path, option)
    result = judge_named_runs(runs, history=history, lake=lake, baselines=baselines, threshold=threshold / 100)
    if junit is not None:
        write_atomically(junit, junit_xml(result).encode())
    if markdown is not None:
        write_atomically(markdown, markdown_summary(result).encode())
    if as_json:
        print(msgspec.json.encode(result).decode())
    else:
        _print(result)
    return {Change.BETTER: 0, Change.SAME: 0, Change.WORSE: 1, Change.UNCLEAR: 3}[result.outcome]


def _print(result: "GateResult") -> None:
    from crescendo.history.regression_gate import format_gate_value
    from crescendo.pipeline.compare.outcomes import format_change

    for each in result.metrics:
        before, after = (format_gate_value(each.metric, value) for value in (each.baseline, each.run))
        change = "–" if each.change is None else format_change(each.change)
        print(f"  {each.metric}  {before} → {after}  {change}  {each.outcome}  {each.reason}")
    for note in result.notes:
        print(f"note      {note}")
    print(f"GATE {result.outcome} · {len(result.runs)} runs · baseline of {len(result.baseline)}")
