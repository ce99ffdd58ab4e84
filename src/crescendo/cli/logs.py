"""The verb `logs`: performance logs of MLMQ as numbers and plots.

The lines are parsed as `import mlmq-log` parses them. Lines that cannot be parsed are counted and shown; they never
stop the analysis.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from crescendo.cli.options import UnpackLimit, check_directory_of, duration_ns
from crescendo.cli.terminal import Progress
from crescendo.model.errors import ConfigError
from crescendo.model.suggestions import choice
from crescendo.record.documents import write_atomically

if TYPE_CHECKING:
    from crescendo.pipeline.logs.points import Bars, Centre, Show
    from crescendo.pipeline.logs.windows import Slot
    from crescendo.run.log_session import AnalysedLogs

_TEXTS = ("csv", "txt")
_PICTURES = ("png", "eps")
_MIN_NS = 10**6  # the resolution of the logs


@dataclass(frozen=True)
class LogOptions:
    """How to show the result."""

    form: str
    show: "Show"
    centre: "Centre"
    bars: "Bars"
    out: Path | None


def logs(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Performance logs, at any depth, plain or compressed.")
    ],
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type", metavar="BEGINNING", help="Actions whose names begin with this, e.g. 'CSndReq#OK#'. Repeatable."
        ),
    ] = None,
    window: Annotated[str, typer.Option("--window", help="Length of a window, e.g. 60s or 500ms.")] = "60s",
    trim: Annotated[str, typer.Option("--trim", help="How much to leave out at the start and at the end.")] = "0s",
    form: Annotated[str, typer.Option("--format", help="csv, txt (one line per type), png or eps.")] = "csv",
    show: Annotated[str, typer.Option("--show", help="What a plot shows: response or throughput.")] = "response",
    centre: Annotated[str, typer.Option("--centre", help="The line of a plot: median or mean.")] = "median",
    bars: Annotated[
        str,
        typer.Option("--bars", help="The bars of a plot: percentile (2.5 % to 97.5 %) or stddev (plus and minus one)."),
    ] = "percentile",
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Default: standard output.")] = None,
    limit: UnpackLimit = None,
) -> int:
    """Analyse performance logs of MLMQ: the duration and number of actions, window by window.

    Without --type it lists the actions in the logs. Then, for example:

    crescendo logs logs/run_56 --type 'CSndReq#OK#' --type BDb --trim 60s --format png --out plot.png

    Lines that cannot be parsed are counted and shown on stderr; the rest is still analysed.
    """
    from crescendo.importers.format import unpack_limits
    from crescendo.pipeline.logs.job import LogQuery
    from crescendo.run.log_session import analyze_logs

    types = types or []
    options = _log_options(form, show, centre, bars, out)
    window_ns = duration_ns(window, "--window", min_ns=_MIN_NS)
    # The text format covers the whole time at once, as the original tool did.
    trim_ns = duration_ns(trim, "--trim")
    query = LogQuery(tuple(dict.fromkeys(types)), None if form == "txt" else window_ns, trim_ns)
    if any(not name for name in types):
        raise ConfigError("--type: empty; give the beginning of an action's name, such as 'CSndReq#OK#'")
    limits = unpack_limits(limit or [])
    with Progress() as progress:
        analysed = analyze_logs(directory, query, limits, progress)
    _report(analysed)
    _deliver(_shown(analysed.slots, options) if types else _listing(analysed.actions).encode(), out)
    return 0


def _log_options(form: str, show: str, centre: str, bars: str, out: Path | None) -> LogOptions:
    from crescendo.pipeline.logs.points import Bars, Centre, Show

    _one_of("--format", form, (*_TEXTS, *_PICTURES))
    _one_of("--show", show, get_args(Show))
    _one_of("--centre", centre, get_args(Centre))
    _one_of("--bars", bars, get_args(Bars))
    if out is None and form in _PICTURES:
        raise ConfigError(f"--format {form}: a plot needs a file; give one with --out, such as --out plot.{form}")
    check_directory_of(out, "--out")
    return LogOptions(form, show, centre, bars, out)  # type: ignore[arg-type]


def _one_of(option: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ConfigError(f"{option} {value}: {choice(value, known)}")


def _shown(slots: "list[Slot]", options: LogOptions) -> bytes:
    from crescendo.pipeline.logs.texts import as_csv, as_text

    if options.form in _TEXTS:
        return {"csv": as_csv, "txt": as_text}[options.form](slots).encode()
    from crescendo.pipeline.logs.plot import plot  # here, because Matplotlib is needed for pictures only

    return plot(slots, options.show, options.centre, options.bars, options.form)


def _listing(named: list[tuple[str, int]]) -> str:
    lines = "".join(f"{count:>12,}  {name}\n" for name, count in named)
    return f"{lines}Give one or more of these, or their beginnings, with --type.\n"


def _report(analysed: "AnalysedLogs") -> None:
    """Print to stderr what was read, and what was not."""
    sources, aside = analysed.sources, analysed.unreadable
    lines = [f"read {analysed.lines:,} lines of {len(sources):,} files"]
    if analysed.skipped:
        lines.append(f"skipped {analysed.skipped:,} files of other kinds")
    if aside.count:
        lines.append(f"could not read {aside.count:,} lines")
    paths = {source.number: source.path for source in sources}
    lines += [f"  {paths[source]}:{line}: {reason}" for source, line, reason in aside.first]
    if aside.count > len(aside.first) > 0:
        lines.append(f"  and {aside.count - len(aside.first):,} more")
    lines += [
        f"refused {source.path}: {source.fault}"
        if source.refused
        else f"{source.path}: {source.fault}; everything before it was read"
        for source in sources
        if source.fault
    ]
    for sentence in lines:
        print(f"  {sentence}", file=sys.stderr)


def _deliver(content: bytes, out: Path | None) -> None:
    if out is None:
        sys.stdout.write(content.decode())
        return
    try:
        write_atomically(out, content)
    except OSError as err:
        raise ConfigError(f"--out {out}: cannot be written: {err.strerror or err}") from err
